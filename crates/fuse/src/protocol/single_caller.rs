//! Detects that a single thread of a program makes all requests of a mount.
//!
//! That thread waits for each reply before its next request. So one reader is enough for it, and that reader may busy-poll
//! ([`RequestPolling`](super::request_polling::RequestPolling)). On busy processors the reader and the program mostly share one:
//! the reply wakes the program, which runs at once, and its next request is there before the reader reads again. With several
//! readers the kernel wakes the one that has slept longest, mostly on another processor, which costs more than to answer most
//! requests.
//!
//! A request that takes long, or comes while others wait, counts as one of several callers ([`RequestCost`]).
use super::arguments::Arguments;
use super::opcode;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// After this many requests in a row of one thread, it counts as the only caller.
const ONE_CALLER: u32 = 16;
/// Copying at least this many bytes takes longer than waking another thread.
const MANY_BYTES: usize = 64 << 10;

/// How long a request keeps the thread that answers it busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestCost {
    /// Hardly at all.
    Trivial,
    /// It copies a few bytes, perhaps from the disk. A program, or the kernel for it, may make many such requests at once.
    SmallCopy,
    /// It syncs, or copies many bytes.
    Slow,
}

impl RequestCost {
    /// The cost of a request with these arguments.
    fn of(opcode: u32, arguments: &[u8]) -> RequestCost {
        use opcode::{COPY_FILE_RANGE, FALLOCATE, FSYNC, FSYNCDIR, READ, WRITE};
        let bytes = match opcode {
            FSYNC | FSYNCDIR | FALLOCATE | COPY_FILE_RANGE => return RequestCost::Slow,
            READ => Arguments(arguments)
                .read()
                .map_or(0, |read| read.size as usize),
            WRITE => arguments.len(),
            _ => return RequestCost::Trivial,
        };
        match bytes >= MANY_BYTES {
            true => RequestCost::Slow,
            false => RequestCost::SmallCopy,
        }
    }
}

/// The thread that made the last request, and how many in a row it made.
#[derive(Default)]
pub(super) struct SingleCallerDetector {
    caller: AtomicU32,
    in_a_row: AtomicU32,
}

impl SingleCallerDetector {
    /// Whether one thread makes all requests.
    pub fn is_one(&self) -> bool {
        self.in_a_row.load(Relaxed) >= ONE_CALLER
    }

    /// Counts a request of the thread `caller` (0: the kernel for itself), which is about to be answered. `more_wait`: whether another
    /// request is waiting.
    pub fn request_taken(
        &self,
        opcode: u32,
        caller: u32,
        arguments: &[u8],
        more_wait: impl FnOnce() -> bool,
    ) {
        let alone = match RequestCost::of(opcode, arguments) {
            RequestCost::Trivial => false,
            RequestCost::SmallCopy => self.is_one() && more_wait(),
            RequestCost::Slow => true,
        };
        match alone {
            true => self.in_a_row.store(0, Relaxed),
            false => self.count(caller),
        }
    }

    fn count(&self, caller: u32) {
        if caller == 0 {
        } else if self.caller.load(Relaxed) == caller {
            // Concurrent updates may lose a count; that does not matter.
            let before = self.in_a_row.load(Relaxed);
            self.in_a_row.store(ONE_CALLER.min(before + 1), Relaxed);
        } else {
            self.caller.store(caller, Relaxed);
            self.in_a_row.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked_up(callers: &SingleCallerDetector, caller: u32) {
        callers.request_taken(opcode::LOOKUP, caller, b"x", || unreachable!());
    }

    fn one_asks() -> SingleCallerDetector {
        let callers = SingleCallerDetector::default();
        (0..ONE_CALLER).for_each(|_| looked_up(&callers, 7));
        assert!(!callers.is_one());
        looked_up(&callers, 7);
        assert!(callers.is_one());
        callers
    }

    #[test]
    fn one_asks_until_another_does_whatever_the_kernel_asks_for_itself() {
        let callers = one_asks();
        looked_up(&callers, 0);
        assert!(callers.is_one());
        looked_up(&callers, 8);
        assert!(!callers.is_one());
    }

    #[test]
    fn a_request_that_takes_long_and_one_behind_which_more_wait_count_as_of_several() {
        let callers = one_asks();
        callers.request_taken(opcode::FSYNC, 7, &[], || unreachable!());
        assert!(!callers.is_one());
        let callers = one_asks();
        callers.request_taken(opcode::WRITE, 7, &[0; 99], || false);
        assert!(callers.is_one());
        callers.request_taken(opcode::WRITE, 7, &[0; 99], || true);
        assert!(!callers.is_one());
    }

    #[test]
    fn long_requests_are_known_by_their_kind_and_their_bytes() {
        let read = |size: u32| {
            let mut arguments = [0; 40];
            arguments[16..20].copy_from_slice(&size.to_ne_bytes());
            RequestCost::of(opcode::READ, &arguments)
        };
        assert_eq!(read(4096), RequestCost::SmallCopy);
        assert_eq!(read(1 << 20), RequestCost::Slow);
        let write = |len| RequestCost::of(opcode::WRITE, &vec![0; len]);
        assert_eq!(write(8000), RequestCost::SmallCopy);
        assert_eq!(write(MANY_BYTES), RequestCost::Slow);
        assert_eq!(RequestCost::of(opcode::FSYNC, &[]), RequestCost::Slow);
        assert_eq!(RequestCost::of(opcode::LOOKUP, b"x"), RequestCost::Trivial);
        assert_eq!(RequestCost::of(opcode::READ, &[]), RequestCost::SmallCopy);
    }
}
