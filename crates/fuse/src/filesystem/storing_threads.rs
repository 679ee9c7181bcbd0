//! The threads that put pages into the kernel's page cache before they answer a read. The kernel has them wait for pages that
//! are being read, which others must be free to answer.
//!
//! Invariant: no more than half of the mount's threads do it at a time.
use crate::options::answering_threads;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the head of this file.
pub(crate) struct StoringThreads {
    busy: AtomicUsize,
    most: usize,
}

/// One of them.
pub(crate) struct StoringThread<'a>(&'a StoringThreads);

impl Default for StoringThreads {
    fn default() -> StoringThreads {
        StoringThreads {
            busy: AtomicUsize::new(0),
            // To find out how many there are takes some system calls.
            most: answering_threads() / 2,
        }
    }
}

impl StoringThreads {
    /// Makes the calling thread one of them; `None`: there are enough.
    pub fn take(&self) -> Option<StoringThread<'_>> {
        let more = |busy| (busy < self.most).then_some(busy + 1);
        let order = Ordering::Relaxed;
        let taken = self.busy.fetch_update(order, order, more).is_ok();
        taken.then(|| StoringThread(self))
    }
}

impl Drop for StoringThread<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}
