//! The words of the data plane.
use crate::LogId;
use serde::{Deserialize, Serialize};

/// Bytes of one log that a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The log.
    pub log: LogId,
    /// First address.
    pub addr: u64,
    /// How many bytes.
    pub len: u32,
}

/// What a member asks another's data plane.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum DataRequest {
    /// All pieces in one request; the bulk of the reply holds one buffer a piece, in order.
    Read {
        /// What to read; at most `READ_BYTES` together.
        pieces: Vec<Piece>,
    },
    /// Bytes no file uses any more (from a slice owner's outbox; idempotent).
    Free {
        /// Log, first address, length.
        ranges: Vec<(LogId, u64, u64)>,
    },
    /// All log bytes that were written before are on disk when it answers, and the records that find them.
    Sync,
    /// Which of these can be read whole: verified, not sent. Answers `Readable`.
    Verify {
        /// Log, first address, length.
        ranges: Vec<(LogId, u64, u64)>,
    },
    /// How full the member is.
    Space,
}

/// The answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum DataReply {
    /// To `Free` and `Sync`.
    Done,
    /// To `Verify`, in the order asked.
    Readable(Vec<bool>),
    /// To `Read`; the bytes are in the bulk.
    Read,
    /// To `Space`, in bytes.
    Space {
        /// Bytes stored.
        live: u64,
        /// Quota, or size of the disk.
        total: u64,
        /// Room left.
        free: u64,
    },
}
