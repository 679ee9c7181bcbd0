//! Limits the threads that store pages in the kernel's page cache before they answer a read. The kernel makes such a thread wait
//! for pages that are being read, and the reads of these must be answered by other threads.
//!
//! Invariant: at most half of the mount's threads do it at a time.
use crate::options::answering_threads;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the head of this file.
pub(crate) struct PageFillThreads {
    busy: AtomicUsize,
    most: usize,
}

/// One of them.
pub(crate) struct PageFillThread<'a>(&'a PageFillThreads);

impl Default for PageFillThreads {
    fn default() -> PageFillThreads {
        PageFillThreads {
            busy: AtomicUsize::new(0),
            // To find out how many there are takes some system calls.
            most: answering_threads() / 2,
        }
    }
}

impl PageFillThreads {
    /// Makes the calling thread one of them; `None`: there are enough.
    pub fn take(&self) -> Option<PageFillThread<'_>> {
        let more = |busy| (busy < self.most).then_some(busy + 1);
        let order = Ordering::Relaxed;
        let taken = self.busy.fetch_update(order, order, more).is_ok();
        taken.then(|| PageFillThread(self))
    }
}

impl Drop for PageFillThread<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}
