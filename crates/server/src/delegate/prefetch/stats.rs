//! What has become of the bytes fetched ahead: the figures of status and metrics.
/// What has become of all pieces. Bytes, pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PrefetchStats {
    /// Pieces that were put in the queue.
    pub predicted: u64,
    /// Pieces that were read, in part at least.
    pub right: u64,
    /// Bytes that were fetched.
    pub fetched_bytes: u64,
    /// Bytes of them that were read.
    pub used_bytes: u64,
    /// Bytes of them that were thrown away unread.
    pub wasted_bytes: u64,
    /// Reads that were answered from here.
    pub hits: u64,
    /// Those of them that waited for bytes on their way.
    pub waits: u64,
    /// Bytes held now, or kept free for what is on its way.
    pub held_bytes: u64,
}

impl PrefetchStats {
    /// Of both.
    #[must_use]
    pub fn and(self, other: PrefetchStats) -> PrefetchStats {
        PrefetchStats {
            predicted: self.predicted + other.predicted,
            right: self.right + other.right,
            fetched_bytes: self.fetched_bytes + other.fetched_bytes,
            used_bytes: self.used_bytes + other.used_bytes,
            wasted_bytes: self.wasted_bytes + other.wasted_bytes,
            hits: self.hits + other.hits,
            waits: self.waits + other.waits,
            held_bytes: self.held_bytes + other.held_bytes,
        }
    }
}
