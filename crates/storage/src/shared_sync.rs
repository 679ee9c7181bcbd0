//! Syncs of one open file by several threads, so that each is told of every failure.
//!
//! The kernel reports that written bytes were lost once for each open file, to whoever asks first. Another thread that syncs the same open
//! file then, or later, is told that all is well.
//!
//! Invariants: after a sync has failed, each later one fails, and each that waited behind it. One runs at a time. A call returns only
//! after a sync that began later than the call; calls that wait share the next one.
use parking_lot::{Condvar, Mutex};
use std::io;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct SharedSync {
    state: Mutex<SyncState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct SyncState {
    /// Syncs that have begun, and that have ended.
    begun: u64,
    ended: u64,
    /// The number of the error of the first that failed, or its kind where it has none.
    failure: Option<Result<i32, io::ErrorKind>>,
}

impl SyncState {
    fn check(&self) -> io::Result<()> {
        match self.failure {
            None => Ok(()),
            Some(Ok(number)) => Err(io::Error::from_raw_os_error(number)),
            Some(Err(kind)) => Err(kind.into()),
        }
    }
}

impl SharedSync {
    /// Runs `sync` on the file, or waits for another thread that does.
    ///
    /// # Errors
    /// Those of `sync`, also of an earlier one.
    pub fn run(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        let wanted = state.begun + 1;
        while state.begun > state.ended {
            self.ended.wait(&mut state);
            if state.ended >= wanted {
                return state.check();
            }
        }
        state.check()?;
        state.begun += 1;
        drop(state);
        let mut running = RunningSync {
            shared: self,
            failure: Some(Err(io::ErrorKind::Other)),
        };
        let synced = sync();
        let failure = synced.as_ref().err();
        running.failure = failure.map(|e| e.raw_os_error().ok_or(e.kind()));
        synced
    }
}

/// A sync under way, until it is dropped; one that panics has failed.
struct RunningSync<'a> {
    shared: &'a SharedSync,
    failure: Option<Result<i32, io::ErrorKind>>,
}

impl Drop for RunningSync<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.ended = state.begun;
        state.failure = state.failure.or(self.failure);
        drop(state);
        self.shared.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn after_a_failure_each_later_sync_fails() {
        let shared = SharedSync::default();
        shared.run(|| Ok(())).unwrap();
        let failed = shared.run(|| Err(io::Error::from_raw_os_error(5)));
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(5));
        let later = shared.run(|| panic!("it is not tried again"));
        assert_eq!(later.unwrap_err().raw_os_error(), Some(5));
        let shared = SharedSync::default();
        let full = shared.run(|| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        let later = shared.run(|| Ok(()));
        assert_eq!(later.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn one_that_panics_has_failed_and_nobody_waits_for_it() {
        let shared = SharedSync::default();
        let panicked = std::panic::AssertUnwindSafe(|| shared.run(|| panic!("on purpose")));
        assert!(std::panic::catch_unwind(panicked).is_err());
        assert!(shared.run(|| Ok(())).is_err());
    }

    /// Calls that come while one runs, which ends with `outcome`: how many syncs ran, and how many calls failed.
    fn concurrent_syncs(outcome: fn() -> io::Result<()>) -> (usize, usize) {
        const CALLS: usize = 6;
        let (shared, ran, failed) = (
            SharedSync::default(),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        );
        let (begun, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let (first_ran, first_shared) = (&ran, &shared);
            let first = scope.spawn(move || {
                first_shared.run(|| {
                    first_ran.fetch_add(1, SeqCst);
                    begun.send(()).unwrap();
                    may_end.recv().unwrap();
                    outcome()
                })
            });
            has_begun.recv().unwrap();
            let others: Vec<_> = (0..CALLS)
                .map(|_| {
                    scope.spawn(|| {
                        shared.run(|| {
                            ran.fetch_add(1, SeqCst);
                            Ok(())
                        })
                    })
                })
                .collect();
            thread::sleep(std::time::Duration::from_millis(50));
            end.send(()).unwrap();
            let all = std::iter::once(first).chain(others);
            let ends = all.map(|call| call.join().unwrap());
            failed.store(ends.filter(Result::is_err).count(), SeqCst);
        });
        (ran.into_inner(), failed.into_inner())
    }

    #[test]
    fn calls_behind_a_failing_one_fail_and_behind_another_one_they_share_a_sync() {
        assert_eq!(
            concurrent_syncs(|| Err(io::ErrorKind::Other.into())),
            (1, 7)
        );
        let (ran, failed) = concurrent_syncs(|| Ok(()));
        // All that had come share the second; one that comes late runs its own.
        assert!((2..=7).contains(&ran) && failed == 0, "{ran} {failed}");
    }
}
