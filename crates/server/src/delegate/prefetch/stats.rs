//! Counters of the bytes fetched ahead and of what became of them, for status and metrics.
use crate::merged_stats::stats;
use std::ops::Add;

stats! {
/// What has become of all pieces. Bytes, pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
PrefetchStats {
    /// Pieces that were put in the queue.
    predicted: u64 = Add::add,
    /// Pieces that were read, in part at least.
    right: u64 = Add::add,
    /// Bytes that were fetched.
    fetched_bytes: u64 = Add::add,
    /// Bytes of them that were read.
    used_bytes: u64 = Add::add,
    /// Bytes of them that were thrown away unread.
    wasted_bytes: u64 = Add::add,
    /// Reads that were answered from here.
    hits: u64 = Add::add,
    /// Those of them that waited for bytes on their way.
    waits: u64 = Add::add,
    /// Bytes held now, or kept free for what is on its way.
    held_bytes: u64 = Add::add,
}
}
