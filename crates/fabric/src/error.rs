//! Errors of requests and messages that did not get through.

use crate::Rank;
use std::time::Duration;

/// Why a request or message did not get through.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The rank has closed, died, or gave up on the request. It may have acted on it.
    #[error("rank {0} is dead")]
    Dead(Rank),
    /// No reply in time. The rank may have acted on the request, or may still do so.
    #[error("rank {rank} did not answer within {after:?}")]
    Deadline {
        /// The rank asked.
        rank: Rank,
        /// The deadline given.
        after: Duration,
    },
    /// The number is not below the fabric's size.
    #[error("no rank {0} in this service")]
    NoSuchRank(Rank),
    /// This rank's own end is closed.
    #[error("the fabric is closed")]
    Closed,
}
