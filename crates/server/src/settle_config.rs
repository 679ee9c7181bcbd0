//! How stored bytes are deduplicated: settings of settling.
use forebay_data::SettleOptions;
use forebay_data::chunk::ChunkSize;
use forebay_data::fingerprint::FingerprintKind;

/// Settings; sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettleConfig {
    /// What is written is settled in the background. If not, what was settled before is there all the same.
    pub enabled: bool,
    /// The size of chunks.
    pub chunk: ChunkSize,
    /// What chunks are known by.
    pub fingerprint: FingerprintKind,
    /// What may wait to be settled before writes wait for it; `None`: a quarter of the quota, or of the disk.
    pub backlog: Option<u64>,
}

/// Where neither says how large it is.
const UNKNOWN_BACKLOG: u64 = 64 << 30;
/// The index of chunks has this part of a member's memory, and what is known of contents that were cut half of that.
const INDEX_SHARE: u64 = 24;

impl Default for SettleConfig {
    fn default() -> SettleConfig {
        SettleConfig {
            enabled: false,
            chunk: ChunkSize::MIN,
            fingerprint: FingerprintKind::Blake3,
            backlog: None,
        }
    }
}

impl SettleConfig {
    /// The options for a member with `memory` bytes of memory and a disk or quota of `total` bytes. `None`: settling is off.
    pub(crate) fn options(&self, memory: u64, total: Option<u64>) -> Option<SettleOptions> {
        let backlog = total.map_or(UNKNOWN_BACKLOG, |total| total / 4);
        let index_bytes = (memory / INDEX_SHARE) as usize;
        self.enabled.then(|| SettleOptions {
            chunk: self.chunk,
            fingerprint: self.fingerprint,
            index_bytes,
            anchor_bytes: index_bytes / 2,
            backlog_bytes: self.backlog.unwrap_or(backlog),
        })
    }
}
