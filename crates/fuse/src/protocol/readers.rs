//! Decides how many threads of a mount read requests.
//!
//! For each request the kernel wakes the reader that has slept longest, which takes longer than to answer a small write. On busy
//! processors the reply preempts its sender: the program runs at once and sends its next request. The kernel then wakes a second
//! reader, although the first is about to read. So there is only one reader
//! - for many small writes in a row;
//! - for a single caller ([`SingleCallerDetector`]). For this one the reader also polls before it blocks
//!   ([`RequestPolling`](super::request_polling::RequestPolling)), or takes turns with the caller on one processor
//!   ([`CallerProcessor`](super::caller_processor::CallerProcessor)).
//!
//! The other threads are parked ([`ReadingThreads`]). One of them is called
//! - at each request in any other case, so that soon all threads read again;
//! - when the last reader is a bottleneck: at [`MIN_BUSY_LOOKS`] checks in a row the next request was already waiting
//!   ([`BacklogDetector`]).
//!
//! A thread that has answered is parked again if one reader is enough and another thread reads.
use super::caller_processor::IdleReplies;
use super::opcode;
use super::reading_threads::ReadingThreads;
use super::single_caller::SingleCallerDetector;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The largest small write, bytes. For larger requests waking a thread costs little in comparison, and threads share the copying.
const SMALL_REQUEST: usize = 20 << 10;
/// After this many small writes in a row one reader serves them.
const MIN_SMALL_WRITES: u32 = 32;
/// Every this many requests the last reader checks whether the next one is already waiting.
const REQUESTS_PER_CHECK: u32 = 8;
/// A reader that found one waiting at this many checks in a row is a bottleneck.
const MIN_BUSY_LOOKS: u32 = 4;

/// See the head of this file.
#[derive(Default)]
pub(super) struct RequestReaders {
    pub threads: ReadingThreads,
    callers: SingleCallerDetector,
    pub idle_replies: IdleReplies,
    /// Small writes in a row.
    in_a_row: AtomicU32,
}

/// Detects that a reader does not keep up with the requests.
#[derive(Default)]
pub(super) struct BacklogDetector {
    requests: u32,
    /// Checks in a row that found a request waiting.
    waiting: u32,
}

impl BacklogDetector {
    /// Counts a request. Whether the reader is a bottleneck. `more_wait`: whether another request is waiting.
    fn is_busy(&mut self, more_wait: impl FnOnce() -> bool) -> bool {
        self.requests = (self.requests + 1) % REQUESTS_PER_CHECK;
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
    /// Whether one thread makes all requests.
    pub fn one_asks(&self) -> bool {
        self.callers.is_one()
    }

    /// Whether the thread that answers the single caller is alone, and another one is parked that can watch it.
    pub fn is_alone(&self) -> bool {
        self.one_asks() && self.threads.nobody_reads() && self.threads.parked() > 0
    }

    /// Whether one reader is enough.
    fn one_is_enough(&self) -> bool {
        self.in_a_row.load(Relaxed) >= MIN_SMALL_WRITES || self.callers.is_one()
    }

    fn count(&self, opcode: u32, len: usize) {
        let small = opcode == opcode::WRITE && len <= SMALL_REQUEST;
        let before = self.in_a_row.load(Relaxed);
        // Concurrent updates may lose a count; that does not matter.
        let now = match small {
            true => MIN_SMALL_WRITES.min(before + 1),
            false => 0,
        };
        if now != before {
            self.in_a_row.store(now, Relaxed);
        }
    }

    /// Called when a reader has taken a request of the thread `caller` (0: the kernel for itself) and will answer it. `more_wait`:
    /// whether another request is waiting.
    pub fn request_taken(
        &self,
        looks: &mut BacklogDetector,
        (opcode, caller): (u32, u32),
        arguments: &[u8],
        more_wait: impl Fn() -> bool,
    ) {
        let last = self.threads.request_taken();
        self.count(opcode, arguments.len());
        // While only small writes come, the caller does not matter: a check at each would waste a system call.
        let more = || self.in_a_row.load(Relaxed) < MIN_SMALL_WRITES && more_wait();
        self.callers.request_taken(opcode, caller, arguments, more);
        if !self.one_is_enough() || last && looks.is_busy(more_wait) {
            self.threads.call();
        }
    }

    /// Called when a thread has answered. Returns when it should read again; then it counts as a reader. `false`: the mount has ended.
    /// `one_waits`: whether a request waits to be read; `before_park` is called before the thread is parked.
    pub fn answered(&self, one_waits: impl Fn() -> bool, before_park: impl FnOnce()) -> bool {
        let mut goes_on = true;
        if !self.one_is_enough() {
            self.threads.begin();
        } else if !self.threads.begin_alone() {
            before_park();
            goes_on = self.threads.park(one_waits);
        }
        // While this thread reads, the watch looks after nobody.
        self.idle_replies.end(false);
        goes_on
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
            readers.request_taken(&mut looks, request, b"x", || false);
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
        assert_eq!(requests(true, REQUESTS_PER_CHECK * MIN_BUSY_LOOKS - 1), 0);
        assert_eq!(requests(true, 1), 1);
        assert_eq!(requests(true, 3 * REQUESTS_PER_CHECK), 3);
        assert_eq!(requests(false, REQUESTS_PER_CHECK), 0);
        assert_eq!(requests(true, REQUESTS_PER_CHECK), 0);
        assert_eq!(looked, MIN_BUSY_LOOKS + 5);
    }

    /// While nothing but small writes comes, one of those that read has answered, and is parked. `test` is given what waits for its return.
    fn with_one_parked(others: u32, test: impl FnOnce(&RequestReaders, &dyn Fn() -> bool)) {
        let readers = RequestReaders::default();
        (0..MIN_SMALL_WRITES).for_each(|_| write(&readers));
        assert!(readers.answered(|| true, || ()), "nobody else reads");
        (0..others).for_each(|_| readers.threads.begin());
        let (send, woken) = channel();
        std::thread::scope(|scope| {
            // Also if the test fails.
            let _end = EndOnDrop(&readers);
            let readers = &readers;
            scope.spawn(move || send.send(readers.answered(|| true, || ())).unwrap());
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
            readers.request_taken(&mut looks, write, &[0; SMALL], || unreachable!());
            assert_eq!(readers.threads.parked(), 1);
            let attributes = (opcode::GETATTR, 7);
            readers.request_taken(&mut looks, attributes, &[], || unreachable!());
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
                readers.request_taken(&mut looks, (opcode::WRITE, 7), &[0; SMALL], || {
                    looked.set(looked.get() + 1);
                    false
                });
            }
            looked.get()
        };
        writes(2 * MIN_SMALL_WRITES);
        assert_eq!(writes(10 * REQUESTS_PER_CHECK), 10);
    }

    #[test]
    fn who_is_parked_hears_of_the_end() {
        with_one_parked(0, |readers, woken| {
            readers.threads.end();
            assert!(!woken());
        });
    }
}
