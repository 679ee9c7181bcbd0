//! The background thread of the content side: removes files without a name, publishes what could not be published,
//! asks about staged parts whose writer has gone, and sweeps receipts of closed files.
use super::Shared;
use super::outcomes::SWEEP;
use crate::{Fid, Member, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

/// How long to wait before a member that could not be reached is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How often to look for staged parts whose writer has gone.
const PATROL: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Queue {
    removals: VecDeque<Fid>,
    /// Removals that failed; tried again in the next retry round.
    later: Vec<Fid>,
    /// Receipts whose writer has closed the file, by the token they had then.
    receipts: Vec<(Fid, Member, u64)>,
    retry: bool,
    running: bool,
    closed: bool,
}

/// What is to be done in the background.
#[derive(Default)]
pub(super) struct Chores {
    queue: Mutex<Queue>,
    wake: Condvar,
}

impl Chores {
    pub(super) fn remove(&self, fid: Fid) {
        self.queue.lock().removals.push_back(fid);
        self.wake.notify_all();
    }
    pub(super) fn retry_later(&self) {
        self.queue.lock().retry = true;
        self.wake.notify_all();
    }
    pub(super) fn sweep_receipt(&self, fid: Fid, writer: Member, token: u64) {
        let mut queue = self.queue.lock();
        queue.receipts.push((fid, writer, token));
        if queue.receipts.len() >= SWEEP {
            self.wake.notify_all();
        }
    }
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.wake.notify_all();
    }
    /// Removals not done yet.
    pub(super) fn pending(&self) -> usize {
        let queue = self.queue.lock();
        queue.removals.len() + queue.later.len() + usize::from(queue.running)
    }
}

impl Shared {
    /// The background thread.
    pub(super) fn run_chores(&self) {
        loop {
            {
                let mut queue = self.chores.queue.lock();
                let idle =
                    |q: &Queue| !q.closed && q.removals.is_empty() && q.receipts.len() < SWEEP;
                if idle(&queue) {
                    if queue.retry {
                        self.chores.wake.wait_for(&mut queue, RETRY);
                    } else if self.staged.is_empty() {
                        self.chores.wake.wait(&mut queue);
                    } else {
                        self.chores.wake.wait_for(&mut queue, PATROL);
                    }
                }
                if queue.closed {
                    return;
                }
            }
            self.do_chores();
        }
    }

    /// One round of all chores.
    pub(super) fn do_chores(&self) {
        let retry = {
            let mut queue = self.chores.queue.lock();
            let later = std::mem::take(&mut queue.later);
            queue.removals.extend(later);
            std::mem::take(&mut queue.retry)
        };
        self.do_removals();
        if let Err(error) = self.sweep_receipts() {
            tracing::warn!(%error, "receipts of commits were not swept; they cost a little room");
        }
        if retry {
            for fid in self.decisions.files() {
                if let Some(_busy) = self.busy.try_lock(fid)
                    && let Err(error) = self.settle(fid, true)
                {
                    tracing::warn!(fid = fid.0, %error, "a decided commit is still not published everywhere");
                }
            }
        }
        for id in self.staged.abandoned() {
            if let Err(error) = self.resolve(id, true) {
                tracing::warn!(fid = id.fid.0, token = id.token, %error, "what became of a staged commit is still not known");
            }
        }
    }

    fn do_removals(&self) {
        let mut failed = Vec::new();
        loop {
            let fid = {
                let mut queue = self.chores.queue.lock();
                let next = queue.removals.pop_front().filter(|_| !queue.closed);
                queue.running = next.is_some();
                next
            };
            let Some(fid) = fid else { break };
            if let Err(error) = self.remove_file(fid) {
                tracing::warn!(fid = fid.0, %error, "a file without a name is not removed yet; it will be retried");
                failed.push(fid);
            }
        }
        if !failed.is_empty() {
            let mut queue = self.chores.queue.lock();
            queue.later.extend(failed);
            queue.retry = true;
        }
    }

    fn sweep_receipts(&self) -> Result<()> {
        let receipts = std::mem::take(&mut self.chores.queue.lock().receipts);
        let mut sweeps = receipts.chunks(SWEEP);
        sweeps.try_for_each(|receipts| self.delete_receipts(receipts))
    }
}
