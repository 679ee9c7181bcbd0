//! What a thread does: it takes the next piece from the queue and reads it as the client would.
//!
//! Invariant: what is fetched is what a read at that generation of the file would have got; else nothing is.
use super::pieces::Wanted;
use super::{Prefetch, settled};
use crate::delegate::Delegate;
use crate::delegate::open_file::OpenFile;
use bytes::Bytes;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

impl Prefetch {
    pub(super) fn start(self: &Arc<Prefetch>) -> Option<JoinHandle<()>> {
        let prefetch = self.clone();
        let thread = std::thread::Builder::new().name("prefetch".into());
        let started = thread.spawn(move || prefetch.run());
        if let Err(e) = &started {
            tracing::debug!(error = %e, "no thread to fetch ahead");
        }
        started.ok()
    }

    /// A thread's life.
    fn run(self: Arc<Prefetch>) {
        let mut done = false;
        while let Some(job) = self.pool.next(done, || self.start()) {
            done = true;
            let Some(delegate) = self.delegate.get().and_then(Weak::upgrade) else {
                continue;
            };
            let fid = job.file.fid;
            if !self.pieces.lock().begin(fid, &job.wanted) {
                continue;
            }
            let (begun, mut waited) = (Instant::now(), Duration::ZERO);
            let bytes = delegate.fetch_ahead(&job.file, job.generation, &job.wanted, &mut waited);
            drop(delegate);
            if bytes.is_some() {
                self.learn(begun.elapsed());
            }
            let mut pieces = self.pieces.lock();
            pieces.fill(fid, &job.wanted, bytes, waited, Instant::now());
            self.count(&pieces);
            drop(pieces);
            self.arrived.notify_all();
        }
    }

    /// A fetch took so long.
    fn learn(&self, took: Duration) {
        let took = took.as_nanos().min(u128::from(u32::MAX)) as u64;
        let before = self.usual.load(Ordering::Relaxed);
        let now = match before {
            0 => took,
            _ => before - before / 8 + took / 8,
        };
        self.usual.store(now.max(1), Ordering::Relaxed);
    }
}

impl Delegate {
    /// One piece as the file is at `generation`; `None` if it cannot be had as simply as that.
    fn fetch_ahead(
        &self,
        file: &OpenFile,
        generation: u64,
        wanted: &Wanted,
        waited: &mut Duration,
    ) -> Option<Bytes> {
        let range = &wanted.range;
        let still = || {
            let state = file.state.lock();
            settled(&state, range).is_some_and(|now| now == (generation, range.clone()))
        };
        let len = u32::try_from(range.end - range.start).ok()?;
        if !still() {
            return None;
        }
        let bytes = self
            .reader
            .read_view(file, range.start, len, generation, waited);
        let bytes = bytes.ok()?;
        // What a client wrote meanwhile may be in it, and is still pending then, or the generation has moved.
        still().then_some(bytes)
    }
}
