//! Which threads of a mount read requests, where requests seldom wait for anything.
//!
//! To wake a thread on another processor costs more than to answer most requests, and the kernel wakes one that sleeps in a read for
//! each. So one thread reads, and after an answer it looks for the next request for a moment before it sleeps, while requests follow each
//! other that quickly and nobody else needs the processor ([`Pace`]). The others are *parked*. A parked thread begins to read
//! - when it is called: the one that reads got a request that waits ([`waits`]), or had no pause for [`BUSY_TIME`], so there is
//!   more to do than one can;
//! - when nobody reads, and nobody has come back from answering within [`WATCH_INTERVAL`]: one of the parked threads, the *watch*,
//!   looks for that while there are requests.
//!
//! It is parked again once it finds nothing to do while another one reads.
//!
//! All this pays while one thread of one program asks ([`ONE_CALLER`]): it sleeps while it is answered, so a processor is free. While several
//! ask, processors have other work, and all threads of the mount sleep in reads.
//!
//! # Invariants
//! - A thread counts in `reading` while it reads, and not while it answers.
//! - While there is one caller, one thread at most sleeps in the kernel over reading, but for those that slept there before.
//! - As long as a thread is parked, a request that takes long holds up the others for two [`WATCH_INTERVAL`]s at most.
use super::opcode;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

/// How long a thread looks for the next request: as long as a program takes that is woken by an answer and asks again.
const POLL_TIME: Duration = Duration::from_micros(50);
/// The same while another thread reads.
const EXTRA_POLL_TIME: Duration = Duration::from_micros(10);
/// Quick requests that are remembered: after so many slow ones a thread sleeps at once.
const QUICK_REMEMBERED: u32 = 8;
/// A thread that was kept from looking for so long was not let run: others need the processors, and one that sleeps is let run sooner
/// than one that looks. It stops looking for a while, each time longer.
const KEPT_FROM_LOOKING: Duration = Duration::from_micros(100);
const MIN_BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// A thread that had no pause for so long calls another.
const BUSY_TIME: Duration = Duration::from_micros(100);
/// So many requests in a row of one thread are no accident: it is the only one that asks.
const ONE_CALLER: u32 = 16;
/// Between two looks of the watch.
const WATCH_INTERVAL: Duration = Duration::from_millis(1);
/// After so many looks without a request the watch sleeps until there is one.
const QUIET_LOOKS: u32 = 100;

/// Whether such a request is answered after what it asks for is on disk, or many bytes were copied.
pub(super) fn waits(opcode: u32) -> bool {
    use opcode::{COPY_FILE_RANGE, FALLOCATE, FSYNC, FSYNCDIR};
    matches!(opcode, FSYNC | FSYNCDIR | FALLOCATE | COPY_FILE_RANGE)
}

/// How quickly requests come to one thread, and whether it may look for them meanwhile.
#[derive(Debug)]
pub(super) struct Pace {
    quick: u32,
    /// When it found no request last.
    paused: Instant,
    /// It does not look before that.
    looks_from: Instant,
    backoff: Duration,
}

impl Pace {
    /// As if the last request came long ago.
    pub fn new() -> Pace {
        let now = Instant::now();
        Pace {
            quick: 0,
            paused: now,
            looks_from: now,
            backoff: Duration::ZERO,
        }
    }

    /// How long to look for the next request.
    fn poll_time(&self, now: Instant) -> Duration {
        match self.quick > 0 && now >= self.looks_from {
            true => POLL_TIME,
            false => Duration::ZERO,
        }
    }

    /// There was no request just now. It has looked since `since`.
    pub fn pauses(&mut self, since: Instant, now: Instant) {
        if now.duration_since(self.paused.max(since)) >= KEPT_FROM_LOOKING {
            self.back_off(now);
        }
        self.paused = now;
    }

    /// It has slept.
    pub fn woke(&mut self, now: Instant) {
        self.paused = now;
    }

    /// A request came, which it has looked for since `since`, or over which it has `slept`.
    pub fn came(&mut self, since: Instant, now: Instant, slept: bool) {
        let wait = now.duration_since(since);
        // A thread that slept was woken late.
        self.quick = match wait < 2 * POLL_TIME {
            true => QUICK_REMEMBERED.min(self.quick + 1),
            false => self.quick.saturating_sub(1),
        };
        if !slept && wait >= KEPT_FROM_LOOKING {
            self.back_off(now);
        } else if now >= self.looks_from + self.backoff {
            self.backoff = Duration::ZERO;
        }
    }

    fn back_off(&mut self, now: Instant) {
        self.backoff = (2 * self.backoff).clamp(MIN_BACKOFF, MAX_BACKOFF);
        self.looks_from = now + self.backoff;
    }

    fn is_busy(&self, now: Instant) -> bool {
        now.duration_since(self.paused) >= BUSY_TIME
    }
}

/// What a thread does that finds no request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRequest {
    /// Looks again.
    Look,
    /// Sleeps until there is one: it is the only one that reads.
    Sleep,
    /// Is parked.
    Park,
}

/// See the head of this file.
#[derive(Default)]
pub(super) struct Readers {
    reading: AtomicUsize,
    /// Requests that were read.
    taken: AtomicU64,
    /// The thread that asked last, and how many requests in a row were its.
    caller: AtomicU32,
    in_a_row: AtomicU32,
    /// The watch sleeps until there is a request.
    quiet: AtomicBool,
    parking: Mutex<Parking>,
    /// As in `parking`.
    parked: AtomicUsize,
    /// Wakes parked threads but the watch.
    woken: Condvar,
    watch_woken: Condvar,
}

#[derive(Default)]
struct Parking {
    parked: usize,
    /// Threads that are called and have not woken yet.
    called: usize,
    watched: bool,
    ended: bool,
}

impl Readers {
    /// A thread reads from now on.
    pub fn begin(&self) {
        self.reading.fetch_add(1, SeqCst);
    }

    /// A thread that reads has found nothing since `since`. If the answer is `Park`, it counts as reading no more.
    pub fn found_nothing(&self, pace: &Pace, since: Instant, now: Instant) -> NoRequest {
        let (looked, poll_time) = (now.duration_since(since), pace.poll_time(now));
        let leave = |reading: usize| (reading > 1).then(|| reading - 1);
        if looked < poll_time.min(EXTRA_POLL_TIME) {
            return NoRequest::Look;
        }
        if self.reading.fetch_update(SeqCst, SeqCst, leave).is_ok() {
            return NoRequest::Park;
        }
        match looked < poll_time {
            true => NoRequest::Look,
            false => NoRequest::Sleep,
        }
    }

    /// Whether one thread alone asks.
    pub fn has_one_caller(&self) -> bool {
        self.in_a_row.load(Relaxed) >= ONE_CALLER
    }

    /// The thread `caller` asked; 0: the kernel for itself.
    fn count_caller(&self, caller: u32) {
        if caller == 0 {
        } else if self.caller.load(Relaxed) == caller {
            // Two that count at once may lose one.
            let before = self.in_a_row.load(Relaxed);
            self.in_a_row.store(ONE_CALLER.min(before + 1), Relaxed);
        } else {
            self.caller.store(caller, Relaxed);
            self.in_a_row.store(0, Relaxed);
        }
    }

    /// A thread that reads has a request of the thread `caller`, and answers it now. `waits`: see [`waits`].
    pub fn took(&self, pace: &Pace, caller: u32, waits: bool) {
        self.taken.fetch_add(1, SeqCst);
        self.count_caller(caller);
        let last = self.reading.fetch_sub(1, SeqCst) == 1;
        let all_read = !self.has_one_caller() && self.parked.load(SeqCst) > 0;
        if all_read || last && (waits || pace.is_busy(Instant::now())) {
            self.call();
        } else if self.quiet.load(SeqCst) {
            let _parking = self.parking.lock();
            self.watch_woken.notify_one();
        }
    }

    /// Has a parked thread read, if there is one.
    fn call(&self) {
        let mut parking = self.parking.lock();
        if parking.called < parking.parked {
            parking.called += 1;
            match parking.parked {
                1 if parking.watched => self.watch_woken.notify_one(),
                _ => self.woken.notify_one(),
            };
        }
    }

    /// The mount has ended: nobody stays parked.
    pub fn end(&self) {
        self.parking.lock().ended = true;
        self.woken.notify_all();
        self.watch_woken.notify_all();
    }

    /// Returns once this thread should read; it counts as reading then. `false`: the mount has ended.
    pub fn park(&self) -> bool {
        let mut parking = self.parking.lock();
        parking.parked += 1;
        self.parked.store(parking.parked, SeqCst);
        while !parking.ended && parking.called == 0 {
            if parking.watched {
                self.woken.wait(&mut parking);
                continue;
            }
            parking.watched = true;
            let stuck = self.watch(&mut parking);
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

    /// Looks now and then whether somebody reads, until this thread is woken. `true`: nobody does, nor has come back since the last look.
    fn watch(&self, parking: &mut MutexGuard<'_, Parking>) -> bool {
        let (mut seen, mut looks) = (self.taken.load(SeqCst), 0);
        while self
            .watch_woken
            .wait_for(parking, WATCH_INTERVAL)
            .timed_out()
        {
            let taken = self.taken.load(SeqCst);
            if parking.called > 0 {
                return false;
            } else if taken != seen {
                (seen, looks) = (taken, 0);
            } else if self.reading.load(SeqCst) == 0 {
                return true;
            } else if looks < QUIET_LOOKS {
                looks += 1;
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

    struct EndOnDrop<'a>(&'a Readers);

    impl Drop for EndOnDrop<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }

    /// Threads of a mount: one reads, and so many are parked, who say when they stop being it.
    fn with_parked(parked: usize, test: impl FnOnce(&Readers, &dyn Fn() -> bool)) {
        let readers = Readers::default();
        (0..=ONE_CALLER).for_each(|_| readers.count_caller(7));
        readers.begin();
        let (send, woken) = channel();
        std::thread::scope(|scope| {
            for _ in 0..parked {
                let (readers, send) = (&readers, send.clone());
                scope.spawn(move || send.send(readers.park()).unwrap());
            }
            while readers.parking.lock().parked < parked {
                std::thread::yield_now();
            }
            // Also if the test fails.
            let _end = EndOnDrop(&readers);
            test(&readers, &|| woken.recv_timeout(LONG).unwrap());
        });
    }

    fn slow() -> Pace {
        Pace::new()
    }

    #[test]
    fn who_answers_a_request_that_waits_calls_another() {
        with_parked(2, |readers, woken| {
            readers.took(&slow(), 7, true);
            assert!(woken());
            assert!(readers.reading.load(SeqCst) > 0);
        });
    }

    #[test]
    fn who_does_not_come_back_is_replaced_though_the_watch_slept() {
        with_parked(1, |readers, woken| {
            while !readers.quiet.load(SeqCst) {
                std::thread::yield_now();
            }
            readers.took(&slow(), 7, false);
            assert!(woken());
            assert_eq!(readers.reading.load(SeqCst), 1);
        });
    }

    #[test]
    fn who_had_no_pause_calls_another() {
        with_parked(1, |readers, woken| {
            let mut busy = slow();
            busy.woke(Instant::now() - BUSY_TIME);
            readers.took(&busy, 7, false);
            assert!(woken());
        });
    }

    #[test]
    fn all_read_while_several_ask() {
        with_parked(2, |readers, woken| {
            assert!(readers.has_one_caller());
            readers.took(&slow(), 8, false);
            assert!(woken() && !readers.has_one_caller());
            readers.took(&slow(), 0, false);
            assert!(woken());
            (0..=ONE_CALLER).for_each(|_| readers.count_caller(8));
            readers.count_caller(0);
            assert!(readers.has_one_caller());
        });
    }

    #[test]
    fn all_are_told_of_the_end() {
        with_parked(3, |readers, woken| {
            readers.end();
            assert!(!woken() && !woken() && !woken());
        });
    }

    #[test]
    fn of_those_that_find_nothing_one_stays_and_looks_while_requests_are_quick() {
        let readers = Readers::default();
        let (since, mut pace) = (Instant::now(), slow());
        let after = |readers: &Readers, pace: &Pace, micros| {
            readers.found_nothing(pace, since, since + Duration::from_micros(micros))
        };
        readers.begin();
        assert_eq!(after(&readers, &pace, 0), NoRequest::Sleep);
        pace.came(since, since + Duration::from_micros(20), false);
        assert_eq!(after(&readers, &pace, 40), NoRequest::Look);
        assert_eq!(after(&readers, &pace, 50), NoRequest::Sleep);
        readers.begin();
        assert_eq!(after(&readers, &pace, 5), NoRequest::Look);
        assert_eq!(after(&readers, &pace, 10), NoRequest::Park);
        assert_eq!(after(&readers, &pace, 10), NoRequest::Look);
        pace.came(since, since + Duration::from_millis(20), true);
        assert_eq!(after(&readers, &pace, 10), NoRequest::Sleep);
    }

    #[test]
    fn who_is_not_let_run_does_not_look_for_a_while_and_each_time_longer() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut pace = Pace::new();
        for _ in 0..QUICK_REMEMBERED {
            pace.came(at(0), at(20), false);
        }
        assert_eq!(pace.poll_time(at(20)), POLL_TIME);
        pace.pauses(at(20), at(21));
        pace.pauses(at(20), at(22));
        assert_eq!(pace.poll_time(at(22)), POLL_TIME);
        // It was kept from the processor between two looks.
        pace.pauses(at(20), at(200));
        assert_eq!(pace.poll_time(at(10_000)), Duration::ZERO);
        assert_eq!(pace.poll_time(at(10_200)), POLL_TIME);
        // Again, and a request came meanwhile: that it has slept over a long time says nothing.
        pace.came(at(10_200), at(10_400), true);
        assert_eq!(pace.poll_time(at(10_400)), POLL_TIME);
        pace.came(at(10_400), at(10_420), false);
        pace.came(at(10_420), at(10_620), false);
        assert_eq!(pace.poll_time(at(30_000)), Duration::ZERO);
        assert_eq!(pace.poll_time(at(30_620)), POLL_TIME);
        // A while without that, and it begins anew.
        pace.came(at(60_000), at(60_010), false);
        pace.pauses(at(60_010), at(60_200));
        assert_eq!(pace.poll_time(at(70_200)), POLL_TIME);
    }
}
