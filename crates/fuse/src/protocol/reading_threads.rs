//! The threads of a mount that read requests, and those that are parked until they are called. How many should read is decided in
//! `readers`.
//!
//! A parked thread begins to read
//! - when it is called ([`ReadingThreads::call`]): whoever took a request thinks that one more should read;
//! - when a request waits, nobody reads, and nobody has come back from answering within [`WATCH_INTERVAL`]: one of the parked threads,
//!   the *watch*, looks for that while there are requests. Also without a waiting request once that has lasted for [`IDLE_CHECKS`] looks.
//!
//! # Invariants
//! - A thread counts in `reading` while it reads, and not while it answers.
//! - As long as a thread is parked, a request that takes long holds up the others for two [`WATCH_INTERVAL`]s at most.
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::Duration;

/// Between two looks of the watch.
pub(super) const WATCH_INTERVAL: Duration = Duration::from_millis(2);
/// After this many checks without a request the watch sleeps until there is one.
const IDLE_CHECKS: u32 = 50;

/// See the head of this file.
#[derive(Default)]
pub(super) struct ReadingThreads {
    reading: AtomicUsize,
    /// Requests that were read.
    taken: AtomicU64,
    /// The watch sleeps until there is a request.
    quiet: AtomicBool,
    parking: Mutex<ParkedThreads>,
    /// As in `parking`.
    parked: AtomicUsize,
    /// Wakes parked threads but the watch.
    woken: Condvar,
    watch_woken: Condvar,
}

#[derive(Default)]
struct ParkedThreads {
    parked: usize,
    /// Threads that are called and have not woken yet.
    called: usize,
    watched: bool,
    ended: bool,
}

impl ReadingThreads {
    /// A thread reads from now on.
    pub fn begin(&self) {
        self.reading.fetch_add(1, SeqCst);
    }

    /// A thread reads from now on, if no other one does. `false`: another one does.
    pub fn begin_alone(&self) -> bool {
        self.reading.compare_exchange(0, 1, SeqCst, SeqCst).is_ok()
    }

    /// A thread that reads has a request, and answers it now. `true`: nobody reads any more.
    pub fn request_taken(&self) -> bool {
        self.taken.fetch_add(1, SeqCst);
        let last = self.reading.fetch_sub(1, SeqCst) == 1;
        if self.quiet.load(SeqCst) {
            let _parking = self.parking.lock();
            self.watch_woken.notify_one();
        }
        last
    }

    /// Whether no thread reads: all that do not wait to be called are answering.
    pub fn nobody_reads(&self) -> bool {
        self.reading.load(SeqCst) == 0
    }

    /// How many threads are parked.
    pub fn parked(&self) -> usize {
        self.parked.load(SeqCst)
    }

    /// Has a parked thread read, if there is one.
    pub fn call(&self) {
        if self.parked() == 0 {
            return;
        }
        self.call_one(&mut self.parking.lock());
    }

    fn call_one(&self, parking: &mut ParkedThreads) {
        if parking.called < parking.parked {
            parking.called += 1;
            // Those that were woken before and have not run since are spoken for.
            if !self.woken.notify_one() {
                self.watch_woken.notify_one();
            }
        }
    }

    /// The mount has ended: nobody stays parked.
    pub fn end(&self) {
        self.parking.lock().ended = true;
        self.woken.notify_all();
        self.watch_woken.notify_all();
    }

    /// Returns once this thread should read; it counts as reading then. `false`: the mount has ended. `one_waits`: whether a request
    /// waits to be read; called when nobody has read for a [`WATCH_INTERVAL`].
    pub fn park(&self, one_waits: impl Fn() -> bool) -> bool {
        let mut parking = self.parking.lock();
        parking.parked += 1;
        self.parked.store(parking.parked, SeqCst);
        while !parking.ended && parking.called == 0 {
            if parking.watched {
                self.woken.wait(&mut parking);
                continue;
            }
            parking.watched = true;
            let stuck = self.watch(&mut parking, &one_waits);
            parking.watched = false;
            if stuck {
                break;
            }
        }
        parking.parked -= 1;
        self.parked.store(parking.parked, SeqCst);
        parking.called = parking.called.saturating_sub(1);
        if !parking.watched {
            // Another one is the watch.
            self.woken.notify_one();
        }
        self.begin();
        !parking.ended
    }

    /// Looks now and then whether somebody reads, until this thread is woken. `true`: nobody does, nor has come back since the last look, and
    /// a request waits, or that has lasted for [`IDLE_CHECKS`] looks.
    fn watch(
        &self,
        parking: &mut MutexGuard<'_, ParkedThreads>,
        one_waits: impl Fn() -> bool,
    ) -> bool {
        let (mut seen, mut looks) = (self.taken.load(SeqCst), 0);
        while self
            .watch_woken
            .wait_for(parking, WATCH_INTERVAL)
            .timed_out()
        {
            let taken = self.taken.load(SeqCst);
            // It may have been told of either after its wait was over.
            if parking.called > 0 || parking.ended {
                return false;
            } else if taken != seen {
                (seen, looks) = (taken, 0);
            } else if self.reading.load(SeqCst) == 0 && one_waits() {
                return true;
            } else if looks < IDLE_CHECKS {
                looks += 1;
            } else if self.reading.load(SeqCst) == 0 {
                // Only a thread that reads can end the sleep below.
                return true;
            } else {
                self.quiet.store(true, SeqCst);
                // Who takes a request after this look sees that it is quiet, and wakes the watch.
                if self.taken.load(SeqCst) == seen {
                    self.watch_woken.wait(parking);
                }
                self.quiet.store(false, SeqCst);
                return false;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(60);

    struct EndOnDrop<'a>(&'a ReadingThreads);

    impl Drop for EndOnDrop<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }

    /// Threads of a mount: one reads, and so many are parked, who say when they stop being it.
    fn with_parked(parked: usize, test: impl FnOnce(&ReadingThreads, &dyn Fn() -> bool)) {
        let threads = ReadingThreads::default();
        threads.begin();
        let (send, woken) = channel();
        std::thread::scope(|scope| {
            for _ in 0..parked {
                let (threads, send) = (&threads, send.clone());
                scope.spawn(move || send.send(threads.park(|| true)).unwrap());
            }
            while threads.parked() < parked {
                std::thread::yield_now();
            }
            // Also if the test fails.
            let _end = EndOnDrop(&threads);
            test(&threads, &|| woken.recv_timeout(LONG).unwrap());
        });
    }

    #[test]
    fn who_does_not_come_back_is_replaced_though_the_watch_slept() {
        with_parked(1, |threads, woken| {
            while !threads.quiet.load(SeqCst) {
                std::thread::yield_now();
            }
            assert!(threads.request_taken());
            assert!(woken());
            assert_eq!(threads.reading.load(SeqCst), 1);
        });
    }

    #[test]
    fn who_does_not_come_back_is_replaced_though_no_request_waits_for_long() {
        let threads = ReadingThreads::default();
        threads.begin();
        let (send, woken) = channel();
        std::thread::scope(|scope| {
            let _end = EndOnDrop(&threads);
            let parked = &threads;
            scope.spawn(move || send.send(parked.park(|| false)).unwrap());
            while threads.parked() == 0 {
                std::thread::yield_now();
            }
            assert!(threads.request_taken());
            assert!(woken.recv_timeout(LONG).unwrap());
        });
    }

    #[test]
    fn one_is_woken_for_each_call() {
        with_parked(2, |threads, woken| {
            threads.call();
            assert!(woken());
            threads.call();
            assert!(woken());
            assert_eq!((threads.reading.load(SeqCst), threads.parked()), (3, 0));
            assert!(!threads.request_taken() && !threads.request_taken());
            assert!(!threads.begin_alone());
            assert!(threads.request_taken() && threads.begin_alone());
        });
    }

    #[test]
    fn calls_that_follow_at_once_wake_another_one_each_the_watch_at_last() {
        with_parked(2, |threads, woken| {
            while !threads.quiet.load(SeqCst) {
                std::thread::yield_now();
            }
            let mut parking = threads.parking.lock();
            threads.call_one(&mut parking);
            threads.call_one(&mut parking);
            drop(parking);
            assert!(woken() && woken());
        });
    }

    #[test]
    fn the_watch_hears_of_the_end_though_it_was_just_looking() {
        with_parked(1, |threads, woken| {
            let mut parking = threads.parking.lock();
            while !parking.watched {
                MutexGuard::bump(&mut parking);
            }
            // Its wait is over, and it waits for the lock.
            std::thread::sleep(20 * WATCH_INTERVAL);
            parking.ended = true;
            threads.watch_woken.notify_all();
            drop(parking);
            assert!(!woken());
        });
    }

    #[test]
    fn all_are_told_of_the_end() {
        with_parked(3, |threads, woken| {
            threads.end();
            assert!(!woken() && !woken() && !woken());
        });
    }
}
