//! Calls of the foreground that are under way: reads, and syncs. Settling gives way to them; writes it sees by what they leave to it.
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
