//! Counts the foreground's calls under way, reads and syncs, for which settling pauses. Writes are not counted here: settling sees
//! them by its backlog.
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// See the head of this file. Shared by threads.
#[derive(Debug, Default)]
pub struct ForegroundCalls(AtomicUsize);

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct ForegroundCall<'a>(&'a AtomicUsize);

impl ForegroundCalls {
    /// One more begins.
    pub fn begin(&self) -> ForegroundCall<'_> {
        self.0.fetch_add(1, Relaxed);
        ForegroundCall(&self.0)
    }

    /// Whether there is one.
    pub fn any(&self) -> bool {
        self.0.load(Relaxed) > 0
    }
}

impl Drop for ForegroundCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
