//! Counts the foreground's calls under way, reads and syncs, for which settling pauses, and reads that programs make themselves
//! (`direct_read`), of which only the begin is seen. Writes are not counted here: settling sees them by its backlog.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// See the head of this file. Shared by threads.
#[derive(Debug, Default)]
pub struct ForegroundCalls {
    under_way: AtomicUsize,
    direct: AtomicU64,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct ForegroundCall<'a>(&'a AtomicUsize);

impl ForegroundCalls {
    /// One more begins.
    pub fn begin(&self) -> ForegroundCall<'_> {
        self.under_way.fetch_add(1, Relaxed);
        ForegroundCall(&self.under_way)
    }

    /// Whether there is one.
    pub fn any(&self) -> bool {
        self.under_way.load(Relaxed) > 0
    }

    /// A program begins to read by itself.
    pub fn direct_read(&self) {
        self.direct.fetch_add(1, Relaxed);
    }

    /// How many such reads have begun.
    pub fn direct_reads(&self) -> u64 {
        self.direct.load(Relaxed)
    }
}

impl Drop for ForegroundCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
