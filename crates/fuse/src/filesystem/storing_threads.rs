//! The threads that put pages into the kernel's page cache before they answer a read. The kernel has them wait for pages that
//! are being read, which others must be free to answer.
//!
//! Invariant: no more than half of the mount's threads do it at a time.
use crate::options::answering_threads;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the head of this file.
#[derive(Default)]
pub(crate) struct StoringThreads(AtomicUsize);

/// One of them.
pub(crate) struct StoringThread<'a>(&'a StoringThreads);

impl StoringThreads {
    /// Makes the calling thread one of them; `None`: there are enough.
    pub fn take(&self) -> Option<StoringThread<'_>> {
        let most = answering_threads() / 2;
        let more = |busy| (busy < most).then_some(busy + 1);
        let order = Ordering::Relaxed;
        let taken = self.0.fetch_update(order, order, more).is_ok();
        taken.then(|| StoringThread(self))
    }
}

impl Drop for StoringThread<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
