//! The words of the data plane.
use crate::data::LogId;
use serde::{Deserialize, Serialize};

/// Bytes of one log that a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece { pub log: LogId, pub addr: u64, pub len: u32 }

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum DataRequest {
    /// All pieces in one request; the bulk of the reply holds one buffer a piece, in order.
    Read { pieces: Vec<Piece> },
    /// Bytes no file uses any more (from a slice owner's outbox; idempotent).
    Free { ranges: Vec<(LogId, u64, u64)> },
    Space,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum DataReply { Done, Read, Space { live: u64, total: u64, free: u64 } }
