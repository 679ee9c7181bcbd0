//! The queue of the background thread of `files`: removals, receipts to sweep, and whether to publish again.
use crate::{Fid, Member};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

/// Receipts that make a sweep worth a batch.
pub(super) const RECEIPTS_PER_SWEEP: usize = 256;
/// How long to wait before a member that could not be reached is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How often to look for staged parts whose writer has gone.
const STAGED_CHECK: Duration = Duration::from_secs(20);

/// A receipt whose writer has closed the file, with the token that it had then.
pub(super) type ClosedReceipt = (Fid, Member, u64);

#[derive(Default)]
struct QueuedWork {
    removals: VecDeque<Fid>,
    /// Removals that failed; tried again in the next round.
    failed_removals: Vec<Fid>,
    receipts: Vec<ClosedReceipt>,
    retry: bool,
    removing: bool,
    closed: bool,
}

/// See the head of this file. Its lock is the innermost.
#[derive(Default)]
pub(super) struct WorkQueue {
    queue: Mutex<QueuedWork>,
    wake: Condvar,
}

impl WorkQueue {
    /// A file without a name that nobody holds open.
    pub fn remove(&self, fid: Fid) {
        self.queue.lock().removals.push_back(fid);
        self.wake.notify_all();
    }

    /// A member could not be reached.
    pub fn retry_later(&self) {
        self.queue.lock().retry = true;
        self.wake.notify_all();
    }

    pub fn sweep_receipt(&self, receipt: ClosedReceipt) {
        let mut queue = self.queue.lock();
        queue.receipts.push(receipt);
        if queue.receipts.len() >= RECEIPTS_PER_SWEEP {
            self.wake.notify_all();
        }
    }

    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.wake.notify_all();
    }

    /// Removals not done yet.
    pub fn pending(&self) -> usize {
        let queue = self.queue.lock();
        queue.removals.len() + queue.failed_removals.len() + usize::from(queue.removing)
    }

    /// Waits until there is something to do. `staged`: parts are staged here, to be looked at now and then. False: closed.
    pub fn wait(&self, staged: bool) -> bool {
        let mut queue = self.queue.lock();
        if !queue.closed && queue.removals.is_empty() && queue.receipts.len() < RECEIPTS_PER_SWEEP {
            if queue.retry {
                self.wake.wait_for(&mut queue, RETRY);
            } else if staged {
                self.wake.wait_for(&mut queue, STAGED_CHECK);
            } else {
                self.wake.wait(&mut queue);
            }
        }
        !queue.closed
    }

    /// Begins a round: what failed in the last one is tried again. Returns whether to publish again what is not published.
    pub fn begin_round(&self) -> bool {
        let mut queue = self.queue.lock();
        let failed = std::mem::take(&mut queue.failed_removals);
        queue.removals.extend(failed);
        std::mem::take(&mut queue.retry)
    }

    /// The next file to remove. The one before is done.
    pub fn next_removal(&self) -> Option<Fid> {
        let mut queue = self.queue.lock();
        let next = queue.removals.pop_front().filter(|_| !queue.closed);
        queue.removing = next.is_some();
        next
    }

    /// These could not be removed.
    pub fn removals_failed(&self, fids: Vec<Fid>) {
        if !fids.is_empty() {
            let mut queue = self.queue.lock();
            queue.failed_removals.extend(fids);
            queue.retry = true;
        }
    }

    pub fn take_receipts(&self) -> Vec<ClosedReceipt> {
        std::mem::take(&mut self.queue.lock().receipts)
    }
}
