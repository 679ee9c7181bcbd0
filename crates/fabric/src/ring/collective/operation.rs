//! A collective operation, and the bounds on how many of them a rank keeps.

use super::super::group::{CollectiveTimeouts, Group};
use super::super::wire::{ChildMessage, CollectiveFailure, OperationId};
use crate::{Message, Rank};
use bytes::Bytes;
use std::time::Duration;

/// Bounds on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBounds {
    /// Operations that wait here at once; more are refused with `Busy`.
    pub pending: usize,
    /// Ended operations remembered, the last ones.
    pub remembered: usize,
}

impl Default for MemoryBounds {
    fn default() -> MemoryBounds {
        MemoryBounds {
            pending: 1024,
            remembered: 4096,
        }
    }
}

/// One collective operation, described alike at every member.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Who takes part.
    pub group: Group,
    /// What it is about.
    pub key: Bytes,
    /// Tells operations of the same group and key apart: each has a higher one than those before.
    pub round: u64,
    /// Who carries it out.
    pub root: Rank,
    /// How long it may last.
    pub limits: CollectiveTimeouts,
}

impl Operation {
    pub(super) fn id(&self) -> OperationId {
        OperationId {
            group: self.group.number(),
            digest: self.group.digest(),
            round: self.round,
            key: self.key.clone(),
        }
    }

    /// What a rank sends to its parent; the sender waits for `keep_for`.
    pub(super) fn message(
        &self,
        content: Result<Bytes, CollectiveFailure>,
        keep_for: Duration,
    ) -> Message {
        let up = ChildMessage {
            id: self.id(),
            root: self.root,
            keep_for,
            content,
        };
        up.encode()
    }
}
