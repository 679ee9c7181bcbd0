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
        /// Reads pieces, all in one request. `Gone` if bytes of one were freed.
        read_pieces(ReadPieces {
            /// What to read; at most `READ_BYTES` together.
            pieces: Vec<LogPiece>,
        }) -> PiecesRead, bulk buffers;

        /// Frees bytes that no file uses any more (from a slice owner's outbox; idempotent).
        free_ranges(FreeRanges {
            /// Log, first address, length.
            ranges: Vec<(LogId, u64, u64)>,
        }) -> ();

        /// All log bytes that were written before are on disk when it answers, and the records that find them.
        sync_logs(SyncLogs) -> ();

        /// Which of these can be read whole: verified, not sent. Answers one word a range, in the order asked.
        verify_ranges(VerifyRanges {
            /// Log, first address, length.
            ranges: Vec<(LogId, u64, u64)>,
        }) -> Vec<bool>;

        /// How full the member is.
        get_usage(GetUsage) -> StoreUsage;
    }
}

/// The reply to [`ReadPieces`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PiecesRead {
    /// One buffer a piece, in order; not part of the head.
    #[serde(skip)]
    pub buffers: Vec<Bytes>,
}

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
