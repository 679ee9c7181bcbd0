//! What writers and the background threads tell each other, and how they wake each other.
//!
//! Invariant: `full` is a copy of the field of [`SignalState`], to be read without its lock; both change under it.
use crate::{Error, Shortage};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};

/// What is told.
#[derive(Default)]
pub struct SignalState {
    /// Why the last flush or compaction could not be made for now, if none has succeeded since.
    pub shortage: Option<Shortage>,
    /// Attempts that failed for a shortage.
    pub shortages: u64,
    /// The disk is full and there are deletes: compact everything to reclaim space.
    pub reclaim: bool,
    /// Most entries of the tables may be deleted: compact everything, for there is time.
    pub shrink: bool,
    /// The last put found no room.
    pub full: bool,
    /// Refused puts, and deletes, since reclaiming was last tried.
    pub requests: u64,
    /// How often that was tried since it last helped.
    pub tries: u32,
    /// Bytes of reclaiming batches taken beyond the limit while there is no room.
    pub beyond: u64,
}

/// See the head of this file.
#[derive(Default)]
pub struct WorkSignals {
    state: Mutex<SignalState>,
    full: AtomicBool,
    /// Wakes the background threads.
    pub work: Condvar,
    /// Wakes those who wait for them.
    pub progress: Condvar,
}

impl WorkSignals {
    /// To look at what is told, or to change it.
    pub fn lock(&self) -> MutexGuard<'_, SignalState> {
        self.state.lock()
    }

    /// Whether the last put found no room.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether it did, from now on.
    pub fn set_full(&self, state: &mut SignalState, full: bool) {
        state.full = full;
        self.full.store(full, Ordering::Relaxed);
    }

    /// Wakes the background threads.
    pub fn wake(&self) {
        let _state = self.lock();
        self.work.notify_all();
    }

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
        if let Some(shortage) = Shortage::of(error) {
            signals.shortage = Some(shortage);
            signals.shortages += 1;
        }
        self.progress.notify_all();
    }
}
