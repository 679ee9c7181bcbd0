//! The signals by which writers and the background threads wake each other.
use crate::Error;
use crate::engine::BackgroundWork;

/// What is told.
#[derive(Default)]
pub struct SignalState {
    /// Why the last flush or compaction could not be made for now, if none has succeeded since.
    pub shortage: Option<Error>,
    /// Attempts that failed for a shortage.
    pub shortages: u64,
    /// The disk is full and there are deletes: compact everything to reclaim space.
    pub reclaim: bool,
    /// Most entries of the tables may be deleted: compact everything, for there is time.
    pub shrink: bool,
    /// Refused puts, and deletes, since reclaiming was last tried.
    pub requests: u64,
    /// How often that was tried since it last helped.
    pub tries: u32,
    /// Bytes of reclaiming batches taken beyond the limit while there is no room.
    pub beyond: u64,
}

impl BackgroundWork<SignalState> {
    /// Work got on: whoever waits looks again.
    pub fn note_progress(&self) {
        let mut signals = self.lock();
        signals.shortage = None;
        signals.beyond = 0;
        self.progress.notify_all();
        self.work.notify_all();
    }

    /// Work failed: whoever waits looks again.
    pub fn note_failure(&self, error: &Error) {
        let mut signals = self.lock();
        if error.is_transient() {
            signals.shortage = Some(error.clone());
            signals.shortages += 1;
        }
        self.progress.notify_all();
    }
}
