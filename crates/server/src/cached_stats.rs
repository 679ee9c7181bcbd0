//! Statistics that take a scan of every record or segment, read seldom enough and kept: how many files and extents, how much
//! disk.
//!
//! ```text
//!  asked -> nothing has changed since the last scan ------------------------> that one, age zero
//!        -> the last scan is younger than RESCAN_COST_FACTOR times its cost -> that one, with its age
//!        -> else a thread scans, waited for `max_wait` at most -------------> the new one, or the last one with its age
//! ```
//!
//! Invariants: one scan at a time; scanning takes at most 1/RESCAN_COST_FACTOR of the time of one core, however often the
//! figures are asked for; no caller waits for a scan longer than `max_wait`; the next caller gets the error of a scan
//! that failed, and the scan is then tried again.
use crate::Result;
use crate::worker_thread::WorkerThread;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A scan is repeated after this many times the time that it took.
const RESCAN_COST_FACTOR: u32 = 20;
/// A scan that took no longer is repeated whenever it is asked for.
const CHEAP_SCAN: Duration = Duration::from_millis(5);

/// What a scan found, and how long ago.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AgedStats<T> {
    /// What was found.
    pub value: T,
    /// How long ago the scan began that found it; zero if nothing has changed since.
    pub age: Duration,
}

/// How to scan, and how to know that it would find the same.
pub trait StatsScan: Send + Sync + 'static {
    /// What is found.
    type Stats: Clone + Send + 'static;
    /// Scans; soon ends with an error once `stop` is set.
    ///
    /// # Errors
    /// As reading the store.
    fn scan(&self, stop: &AtomicBool) -> Result<Self::Stats>;
    /// A number that is another one after every change; `None` if there is none.
    fn changes(&self) -> Option<u64>;
}

struct LastScan<T> {
    value: T,
    begun: Instant,
    took: Duration,
    changes: Option<u64>,
}

struct CacheState<T> {
    last: Option<LastScan<T>>,
    failed: Option<crate::Error>,
    scanning: bool,
}

/// See the head of this file.
pub struct CachedStats<S: StatsScan> {
    scan: Arc<S>,
    state: Arc<(Mutex<CacheState<S::Stats>>, Condvar)>,
    stop: Arc<AtomicBool>,
    thread: WorkerThread,
}

impl<S: StatsScan> CachedStats<S> {
    /// Nothing is scanned before somebody asks.
    pub fn new(scan: S) -> CachedStats<S> {
        let state = CacheState {
            last: None,
            failed: None,
            scanning: false,
        };
        CachedStats {
            scan: Arc::new(scan),
            state: Arc::new((Mutex::new(state), Condvar::new())),
            stop: Arc::default(),
            thread: WorkerThread::default(),
        }
    }

    /// The newest that there are within `max_wait`; `None` if there are none yet.
    ///
    /// # Errors
    /// What the last scan failed with, once.
    pub fn get(&self, max_wait: Duration) -> Result<Option<AgedStats<S::Stats>>> {
        let (lock, ended) = &*self.state;
        let until = Instant::now() + max_wait;
        let mut state = lock.lock();
        if let Some(last) = &state.last {
            if last.changes.is_some() && last.changes == self.scan.changes() {
                return Ok(Some(AgedStats {
                    value: last.value.clone(),
                    age: Duration::ZERO,
                }));
            }
            let pause = if last.took <= CHEAP_SCAN {
                Duration::ZERO
            } else {
                last.took * RESCAN_COST_FACTOR
            };
            if last.begun.elapsed() < pause {
                return Ok(with_age(&state.last));
            }
        }
        if !state.scanning && !self.stop.load(Ordering::Relaxed) {
            self.start(&mut state)?;
        }
        // A scan that took longer than that last time is not worth the wait: the next one to ask gets what it finds.
        let too_slow = state.last.as_ref().is_some_and(|last| last.took > max_wait);
        while !too_slow && state.scanning && !ended.wait_until(&mut state, until).timed_out() {}
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(with_age(&state.last)),
        }
    }

    fn start(&self, state: &mut CacheState<S::Stats>) -> Result<()> {
        let (scan, shared, stop) = (self.scan.clone(), self.state.clone(), self.stop.clone());
        self.thread.start("stats".into(), move || {
            let begun = Instant::now();
            // Read first: what changes meanwhile makes the result old, never new.
            let changes = scan.changes();
            let scanned =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scan.scan(&stop)));
            let (lock, ended) = &*shared;
            let mut state = lock.lock();
            match scanned {
                Ok(Ok(value)) => {
                    state.failed = None;
                    state.last = Some(LastScan {
                        value,
                        begun,
                        took: begun.elapsed(),
                        changes,
                    });
                }
                Ok(Err(error)) => state.failed = Some(error),
                Err(_) => {
                    let why = "counting files and extents panicked; see the log".into();
                    state.failed = Some(crate::Error::Refused(why));
                }
            }
            state.scanning = false;
            ended.notify_all();
        })?;
        state.scanning = true;
        Ok(())
    }

    /// Ends a scan under way, and begins no more.
    pub fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join();
    }
}

fn with_age<T: Clone>(last: &Option<LastScan<T>>) -> Option<AgedStats<T>> {
    last.as_ref().map(|last| AgedStats {
        value: last.value.clone(),
        age: last.begun.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{Receiver, Sender, unbounded};
    use std::sync::atomic::AtomicU64;

    const TEST_LIMIT: Duration = Duration::from_secs(60);

    /// Finds what it is told, when it is told.
    struct ToldStats {
        changes: Arc<AtomicU64>,
        found: Receiver<Option<u32>>,
    }

    impl StatsScan for ToldStats {
        type Stats = u32;
        fn scan(&self, _: &AtomicBool) -> Result<u32> {
            match self.found.recv_timeout(TEST_LIMIT) {
                Ok(Some(value)) => Ok(value),
                _ => Err(crate::Error::Corrupt("as told".into())),
            }
        }
        fn changes(&self) -> Option<u64> {
            Some(self.changes.load(Ordering::SeqCst))
        }
    }

    fn told() -> (CachedStats<ToldStats>, Sender<Option<u32>>, Arc<AtomicU64>) {
        let (tell, found) = unbounded();
        let changes = Arc::new(AtomicU64::new(0));
        let told = ToldStats {
            changes: changes.clone(),
            found,
        };
        (CachedStats::new(told), tell, changes)
    }

    #[test]
    fn what_has_not_changed_is_not_scanned_again() {
        let (stats, tell, changes) = told();
        tell.send(Some(1)).unwrap();
        let first = stats.get(TEST_LIMIT).unwrap().unwrap();
        assert_eq!(first.value, 1);
        // Nobody tells anything: a second scan would not end.
        let again = stats.get(Duration::ZERO).unwrap().unwrap();
        assert_eq!((again.value, again.age), (1, Duration::ZERO));
        changes.store(1, Ordering::SeqCst);
        tell.send(Some(2)).unwrap();
        // Perhaps the first scan took so long that the next is not due yet.
        let until = Instant::now() + TEST_LIMIT;
        while stats.get(TEST_LIMIT).unwrap().unwrap().value != 2 {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn nobody_waits_for_a_long_scan_and_a_failure_is_told_once() {
        let (stats, tell, _) = told();
        assert_eq!(stats.get(Duration::ZERO).unwrap(), None);
        assert_eq!(stats.get(Duration::from_millis(1)).unwrap(), None);
        tell.send(None).unwrap();
        assert!(stats.get(TEST_LIMIT).is_err());
        tell.send(Some(7)).unwrap();
        assert_eq!(stats.get(TEST_LIMIT).unwrap().unwrap().value, 7);
        stats.end();
    }
}
