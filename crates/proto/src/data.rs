//! Requests for the log bytes that a member stores. Offsets and lengths in bytes.
use crate::LogId;
use crate::call::service;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Bytes of one log that a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPiece {
    /// The log.
    pub log: LogId,
    /// First address.
    pub addr: u64,
    /// How many bytes.
    pub len: u32,
}

service! {
    /// What a member answers about the log bytes that it stores.
    DataService, DataRequest {
        read_pieces(ReadPieces) -> PiecesRead, bulk buffers;
        free_ranges(FreeRanges) -> ();
        sync_logs(SyncLogs) -> ();
        verify_ranges(VerifyRanges) -> Vec<bool>;
        get_usage(GetUsage) -> StoreUsage;
    }
}

/// Reads pieces, all in one request. `Gone` if bytes of one were freed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadPieces {
    /// What to read; at most `READ_BYTES` together.
    pub pieces: Vec<LogPiece>,
}

/// The reply to [`ReadPieces`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PiecesRead {
    /// One buffer a piece, in order; not part of the head.
    #[serde(skip)]
    pub buffers: Vec<Bytes>,
}

/// Gives bytes back that no file uses any more (from a slice owner's outbox; idempotent).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FreeRanges {
    /// Log, first address, length.
    pub ranges: Vec<(LogId, u64, u64)>,
}

/// All log bytes that were written before are on disk when it answers, and the records that find them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SyncLogs;

/// Which of these can be read whole: verified, not sent. Answers one word a range, in the order asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VerifyRanges {
    /// Log, first address, length.
    pub ranges: Vec<(LogId, u64, u64)>,
}

/// How full the member is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetUsage;

/// The reply to [`GetUsage`], in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreUsage {
    /// Bytes stored.
    pub live: u64,
    /// Quota, or size of the disk.
    pub total: u64,
    /// Room left.
    pub free: u64,
}
