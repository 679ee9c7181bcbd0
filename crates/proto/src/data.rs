//! Requests for the log bytes that a member stores. Offsets and lengths in bytes.
use crate::call::service;
use crate::{LogId, hint_text};
use bytes::Bytes;
use forebay_codec::CodecHint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

        /// How what is left of these ranges is stored.
        get_storage(GetStorage {
            /// Log, first address, length.
            ranges: Vec<(LogId, u64, u64)>,
        }) -> StorageReport;

        /// Encodes what is left of these ranges again. It is on disk when it answers, so ask for little at once.
        recode_ranges(RecodeRanges {
            /// Log, first address, length.
            ranges: Vec<(LogId, u64, u64)>,
            /// By this hint; `None`: by `auto`.
            #[serde(with = "hint_text")]
            hint: Option<CodecHint>,
        }) -> RecodeReport;
    }
}

/// The reply to [`ReadPieces`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PiecesRead {
    /// Of these pieces, by their place in the request, ascending, the buffer has the transfer form (`transfer_form` of the crate
    /// `data`): they are stored encoded.
    pub encoded: Vec<u32>,
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

/// How bytes of logs are stored; bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageReport {
    /// By the name of the codec: what is encoded by it.
    pub codecs: BTreeMap<String, EncodedBytes>,
    /// Settled, and stored as it is.
    pub raw: u64,
    /// Zeros, for which nothing is stored.
    pub zeros: u64,
    /// Stored as it was written: not settled yet, or never to be.
    pub unsettled: u64,
}

/// What one codec made of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedBytes {
    /// Before.
    pub bytes: u64,
    /// After: their part of what is stored.
    pub stored: u64,
}

impl StorageReport {
    /// Adds what another one counts.
    pub fn add(&mut self, other: StorageReport) {
        for (codec, of) in other.codecs {
            let sum = self.codecs.entry(codec).or_default();
            sum.bytes = sum.bytes.saturating_add(of.bytes);
            sum.stored = sum.stored.saturating_add(of.stored);
        }
        for (sum, of) in [
            (&mut self.raw, other.raw),
            (&mut self.zeros, other.zeros),
            (&mut self.unsettled, other.unsettled),
        ] {
            *sum = sum.saturating_add(of);
        }
    }

    /// Bytes before.
    pub fn bytes(&self) -> u64 {
        let encoded = self.codecs.values().map(|of| of.bytes);
        [self.raw, self.zeros, self.unsettled]
            .into_iter()
            .chain(encoded)
            .fold(0, u64::saturating_add)
    }

    /// Bytes stored for them.
    pub fn stored(&self) -> u64 {
        let encoded = self.codecs.values().map(|of| of.stored);
        [self.raw, self.unsettled]
            .into_iter()
            .chain(encoded)
            .fold(0, u64::saturating_add)
    }
}

/// What became of ranges that were to be encoded again; bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecodeReport {
    /// Bytes of the ranges that were looked at.
    pub bytes: u64,
    /// What was stored for them before.
    pub before: u64,
    /// What is stored for them now.
    pub after: u64,
}

impl RecodeReport {
    /// Adds what another one counts.
    pub fn add(&mut self, other: RecodeReport) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.before = self.before.saturating_add(other.before);
        self.after = self.after.saturating_add(other.after);
    }
}
