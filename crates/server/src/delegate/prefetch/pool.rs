//! The threads that fetch ahead, and their queue.
//!
//! Invariants: at most [`MAX_QUEUED`] pieces are queued, for at most [`MAX_THREADS`] threads, which start when there is first
//! something to do. The more reads of the node's clients wait for their bytes, the fewer threads fetch ahead, down to one. No
//! thread outlives [`FetchPool::stop`].
use super::fetched_pieces::WantedPiece;
use crate::delegate::open_file::OpenFile;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Threads of one delegate at most. They wait for others most of the time.
const MAX_THREADS: usize = 8;
/// Most pieces in the queue.
const MAX_QUEUED: usize = 512;

/// A piece that is to be fetched.
#[derive(Clone)]
pub struct FetchJob {
    /// Of which file.
    pub file: Arc<OpenFile>,
    /// As of this generation.
    pub generation: u64,
    /// What.
    pub wanted: WantedPiece,
}

#[derive(Default)]
struct PoolQueue {
    jobs: VecDeque<FetchJob>,
    threads: Vec<JoinHandle<()>>,
    /// Threads at work on a piece.
    busy: usize,
    closing: bool,
}

/// See the head of this file.
#[derive(Default)]
pub struct FetchPool {
    inner: Mutex<PoolQueue>,
    /// Reads of clients that wait for their bytes.
    demands: AtomicUsize,
    /// Pieces in the queue.
    queued: AtomicUsize,
    wake: Condvar,
}

/// A client's read that waits for its bytes, until it is dropped.
pub struct DemandRead<'a>(&'a FetchPool);

impl Drop for DemandRead<'_> {
    fn drop(&mut self) {
        self.0.demands.fetch_sub(1, Ordering::Relaxed);
        if self.0.queued.load(Ordering::Relaxed) > 0 {
            // Locked, or a thread that has just looked, and waits in a moment, would not hear it.
            drop(self.0.inner.lock());
            self.0.wake.notify_one();
        }
    }
}

impl FetchPool {
    /// A client's read waits for its bytes from now on.
    pub fn demand(&self) -> DemandRead<'_> {
        self.demands.fetch_add(1, Ordering::Relaxed);
        DemandRead(self)
    }

    /// Whether another thread may go to work.
    fn more(&self, inner: &PoolQueue) -> bool {
        let demands = self.demands.load(Ordering::Relaxed);
        let allowed = MAX_THREADS.saturating_sub(demands).max(1);
        self.queued.store(inner.jobs.len(), Ordering::Relaxed);
        !inner.jobs.is_empty() && inner.busy < allowed
    }

    /// Adds as many of these as there is room for; the others come back. `start` makes a thread that does the work of
    /// [`FetchPool::next`] until there is none.
    pub fn add(
        &self,
        jobs: impl IntoIterator<Item = FetchJob>,
        start: impl Fn() -> Option<JoinHandle<()>>,
    ) -> Vec<FetchJob> {
        let mut inner = self.inner.lock();
        let mut left = Vec::new();
        for job in jobs {
            match inner.jobs.len() < MAX_QUEUED && !inner.closing {
                true => inner.jobs.push_back(job),
                false => left.push(job),
            }
        }
        let idle = inner.threads.len() - inner.busy.min(inner.threads.len());
        if self.more(&inner) && idle == 0 && inner.threads.len() < MAX_THREADS {
            inner.threads.extend(start());
        }
        let more = self.more(&inner);
        drop(inner);
        if more {
            self.wake.notify_one();
        }
        left
    }

    /// The next piece; `done`: the thread had one before. `None`: the delegate stops.
    pub fn next(&self, done: bool, start: impl Fn() -> Option<JoinHandle<()>>) -> Option<FetchJob> {
        let mut inner = self.inner.lock();
        inner.busy -= usize::from(done);
        while !inner.closing && !self.more(&inner) {
            self.wake.wait(&mut inner);
        }
        if inner.closing {
            return None;
        }
        let job = inner.jobs.pop_front()?;
        inner.busy += 1;
        let more = self.more(&inner);
        if more && inner.busy == inner.threads.len() && inner.busy < MAX_THREADS {
            inner.threads.extend(start());
        }
        drop(inner);
        // Each wakes the next one, so that who reads need wake only the first.
        if more {
            self.wake.notify_one();
        }
        Some(job)
    }

    /// Ends all threads, once they have what they wait for.
    pub fn stop(&self) {
        let mut inner = self.inner.lock();
        inner.closing = true;
        inner.jobs.clear();
        let threads = std::mem::take(&mut inner.threads);
        drop(inner);
        self.wake.notify_all();
        for thread in threads {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}
