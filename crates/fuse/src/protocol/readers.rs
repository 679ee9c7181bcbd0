//! How many threads of a mount read requests.
//!
//! For each request the kernel wakes the reader that has slept longest, which takes longer than to answer a small write. On busy
//! processors the reply preempts its sender: the program runs at once and sends its next request, for which the kernel wakes a second
//! reader although the first is about to read. So one reader serves small writes and single callers ([`SingleCallerDetector`]); for
//! these it also polls for the next request for a moment before it sleeps ([`RequestPolling`](super::request_polling::RequestPolling)).
//! The other threads are parked ([`ReadingThreads`]). One is called
//! - for every other request than these: soon all threads read again;
//! - when the one that reads has found the next request waiting each time it looked for a while ([`BacklogDetector`]): there is more to do than
//!   one can.
//!
//! A thread is parked again after an answer if another one reads.
use super::opcode;
use super::reading_threads::ReadingThreads;
use super::single_caller::SingleCallerDetector;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// A request of more bytes is no small write: what it takes to wake a thread matters little to it, and threads share the copying.
const SMALL_REQUEST: usize = 20 << 10;
/// So many small writes in a row are no accident.
const MIN_SMALL_WRITES: u32 = 32;
/// After so many requests a thread looks once whether the next one waits already.
const REQUESTS_A_LOOK: u32 = 8;
/// A thread that has found one waiting so often in a row is busy.
const MIN_BUSY_LOOKS: u32 = 4;

/// See the head of this file.
#[derive(Default)]
pub(super) struct RequestReaders {
    pub threads: ReadingThreads,
    callers: SingleCallerDetector,
    /// Small writes.
    in_a_row: AtomicU32,
}

/// Whether a thread that reads keeps up with what is asked.
#[derive(Default)]
pub(super) struct BacklogDetector {
    requests: u32,
    /// Looks in a row that found a request waiting.
    waiting: u32,
}

impl BacklogDetector {
    /// It has one more request. `more_wait`: whether another one can be read.
    fn is_busy(&mut self, more_wait: impl FnOnce() -> bool) -> bool {
        self.requests = (self.requests + 1) % REQUESTS_A_LOOK;
        if self.requests > 0 {
            return false;
        }
        self.waiting = match more_wait() {
            true => MIN_BUSY_LOOKS.min(self.waiting + 1),
            false => 0,
        };
        self.waiting == MIN_BUSY_LOOKS
    }
}

impl RequestReaders {
    /// Whether one thread of one program alone asks.
    pub fn one_asks(&self) -> bool {
        self.callers.is_one()
    }

    /// Whether one thread that reads is enough.
    fn one_is_enough(&self) -> bool {
        self.in_a_row.load(Relaxed) >= MIN_SMALL_WRITES || self.callers.is_one()
    }

    fn count(&self, opcode: u32, len: usize) {
        let small = opcode == opcode::WRITE && len <= SMALL_REQUEST;
        let before = self.in_a_row.load(Relaxed);
        // Two that count at once may lose one.
        let now = match small {
            true => MIN_SMALL_WRITES.min(before + 1),
            false => 0,
        };
        if now != before {
            self.in_a_row.store(now, Relaxed);
        }
    }

    /// A thread that reads has a request of the thread `caller` (0: the kernel for itself), and answers it now. `more_wait`: whether another
    /// one can be read.
    pub fn took(
        &self,
        looks: &mut BacklogDetector,
        (opcode, caller): (u32, u32),
        arguments: &[u8],
        more_wait: impl Fn() -> bool,
    ) {
        let last = self.threads.took();
        self.count(opcode, arguments.len());
        // While only small writes come, it does not depend on who makes them: a look at each would be a system call for nothing.
        let more = || self.in_a_row.load(Relaxed) < MIN_SMALL_WRITES && more_wait();
        self.callers.took(opcode, caller, arguments, more);
        if !self.one_is_enough() || last && looks.is_busy(more_wait) {
            self.threads.call();
        }
    }

    /// A thread has answered. Returns once it should read; it counts as reading then. `false`: the mount has ended.
    pub fn answered(&self) -> bool {
        if !self.one_is_enough() {
            self.threads.begin();
        } else if !self.threads.begin_alone() {
            return self.threads.park();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const SMALL: usize = 4096 + 80;

    struct EndOnDrop<'a>(&'a RequestReaders);

    impl Drop for EndOnDrop<'_> {
        fn drop(&mut self) {
            self.0.threads.end();
        }
    }

    fn write(readers: &RequestReaders) {
        readers.count(opcode::WRITE, SMALL);
    }

    #[test]
    fn one_thread_reads_while_nothing_but_small_writes_comes() {
        let readers = RequestReaders::default();
        (1..MIN_SMALL_WRITES).for_each(|_| write(&readers));
        assert!(!readers.one_is_enough());
        write(&readers);
        assert!(readers.one_is_enough());
        readers.count(opcode::WRITE, SMALL_REQUEST + 1);
        assert!(!readers.one_is_enough());
        (0..2 * MIN_SMALL_WRITES).for_each(|_| write(&readers));
        assert!(readers.one_is_enough());
        readers.count(opcode::READ, 80);
        assert!(!readers.one_is_enough());
    }

    #[test]
    fn one_thread_reads_while_one_thread_asks_whatever_for() {
        let (readers, mut looks) = (RequestReaders::default(), BacklogDetector::default());
        let mut looked_up = |caller| {
            let request = (opcode::LOOKUP, caller);
            readers.threads.begin();
            readers.took(&mut looks, request, b"x", || false);
            readers.one_is_enough()
        };
        assert!(!(0..100).any(|n| looked_up(1 + n % 2)));
        assert!((0..100).any(|_| looked_up(7)));
        assert!(looked_up(7) && !looked_up(8));
    }

    #[test]
    fn who_finds_requests_waiting_each_time_is_busy() {
        let (mut looks, mut looked) = (BacklogDetector::default(), 0);
        let mut requests = |waits: bool, requests: u32| {
            (0..requests)
                .filter(|_| {
                    looks.is_busy(|| {
                        looked += 1;
                        waits
                    })
                })
                .count()
        };
        assert_eq!(requests(true, REQUESTS_A_LOOK * MIN_BUSY_LOOKS - 1), 0);
        assert_eq!(requests(true, 1), 1);
        assert_eq!(requests(true, 3 * REQUESTS_A_LOOK), 3);
        assert_eq!(requests(false, REQUESTS_A_LOOK), 0);
        assert_eq!(requests(true, REQUESTS_A_LOOK), 0);
        assert_eq!(looked, MIN_BUSY_LOOKS + 5);
    }

    /// While nothing but small writes comes, one of those that read has answered, and is parked. `test` is given what waits for its return.
    fn with_one_parked(others: u32, test: impl FnOnce(&RequestReaders, &dyn Fn() -> bool)) {
        let readers = RequestReaders::default();
        (0..MIN_SMALL_WRITES).for_each(|_| write(&readers));
        assert!(readers.answered(), "nobody else reads");
        (0..others).for_each(|_| readers.threads.begin());
        let (send, woken) = channel();
        std::thread::scope(|scope| {
            // Also if the test fails.
            let _end = EndOnDrop(&readers);
            let readers = &readers;
            scope.spawn(move || send.send(readers.answered()).unwrap());
            while readers.threads.parked() == 0 {
                std::thread::yield_now();
            }
            let limit = Duration::from_secs(60);
            test(readers, &|| woken.recv_timeout(limit).unwrap());
        });
    }

    #[test]
    fn who_has_answered_is_parked_while_another_reads_until_another_request_comes() {
        // Others read and do not come back, so that nobody is woken for want of a reader.
        with_one_parked(2, |readers, woken| {
            let mut looks = BacklogDetector::default();
            let write = (opcode::WRITE, 7);
            readers.took(&mut looks, write, &[0; SMALL], || unreachable!());
            assert_eq!(readers.threads.parked(), 1);
            let attributes = (opcode::GETATTR, 7);
            readers.took(&mut looks, attributes, &[], || unreachable!());
            assert!(woken());
        });
    }

    #[test]
    fn of_small_writes_by_one_thread_only_some_are_followed_by_a_look() {
        let (readers, mut looks) = (RequestReaders::default(), BacklogDetector::default());
        let looked = std::cell::Cell::new(0);
        let mut writes = |count: u32| {
            looked.set(0);
            for _ in 0..count {
                readers.threads.begin();
                readers.took(&mut looks, (opcode::WRITE, 7), &[0; SMALL], || {
                    looked.set(looked.get() + 1);
                    false
                });
            }
            looked.get()
        };
        writes(2 * MIN_SMALL_WRITES);
        assert_eq!(writes(10 * REQUESTS_A_LOOK), 10);
    }

    #[test]
    fn who_is_parked_hears_of_the_end() {
        with_one_parked(0, |readers, woken| {
            readers.threads.end();
            assert!(!woken());
        });
    }
}
