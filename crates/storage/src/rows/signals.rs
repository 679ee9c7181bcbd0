//! The signals by which writers and the background threads wake each other.
use crate::Error;
use crate::engine::BackgroundWork;

/// What writers and background threads tell each other.
#[derive(Default)]
pub struct SignalState {
    /// The transient error (no space, no descriptors) of the last flush or compaction, until one succeeds.
    pub shortage: Option<Error>,
    /// Number of flushes and compactions that failed with a transient error.
    pub shortages: u64,
    /// The disk is full and there are deletes: compact everything to reclaim space.
    pub reclaim: bool,
    /// Half of the entries are deletes, and the store is idle: compact everything.
    pub shrink: bool,
    /// Refused puts, and deletes, since the last attempt to reclaim space.
    pub requests: u64,
    /// Attempts to reclaim space since the last successful one.
    pub tries: u32,
    /// Bytes of reclaiming batches that were accepted over the MemTable limit while there is no room.
    pub beyond: u64,
}

impl BackgroundWork<SignalState> {
    /// A flush or compaction succeeded: wakes all waiters.
    pub fn note_progress(&self) {
        let mut signals = self.lock();
        signals.shortage = None;
        signals.beyond = 0;
        self.progress.notify_all();
        self.work.notify_all();
    }

    /// A flush or compaction failed: wakes waiting writers.
    pub fn note_failure(&self, error: &Error) {
        let mut signals = self.lock();
        if error.is_transient() {
            signals.shortage = Some(error.clone());
            signals.shortages += 1;
        }
        self.progress.notify_all();
    }
}
