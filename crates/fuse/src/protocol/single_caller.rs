//! Detects that a single thread of a program makes all requests of a mount.
//!
//! It waits for each answer, so one thread of the mount that reads is enough, and can look for the next request for a moment
//! ([`RequestPolling`](super::request_polling::RequestPolling)). Where other processors are busy, that thread mostly shares the program's
//! processor: the answer wakes the program, which runs at once and asks again, and the next read finds that request and does not
//! sleep. With several threads that read, the kernel wakes the one that has slept longest, mostly on another processor: that costs more
//! than to answer most requests.
//!
//! A request that others should not wait for counts as one of several ([`RequestCost`]).
use super::arguments::Arguments;
use super::opcode;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// So many requests in a row of one thread are no accident: it is the only one that asks.
const ONE_CALLER: u32 = 16;
/// To copy so many bytes takes longer than to wake another thread.
const MANY_BYTES: usize = 64 << 10;

/// What a request asks of the thread that answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestCost {
    /// Little.
    Trivial,
    /// To copy a few bytes, which may wait for the disk. A program, or the kernel for it, may ask for many at once.
    SmallCopy,
    /// To bring something to disk, or to copy many bytes.
    Slow,
}

impl RequestCost {
    /// Of a request with these arguments.
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

/// Which thread asked last, and how many requests in a row were its.
#[derive(Default)]
pub(super) struct SingleCallerDetector {
    caller: AtomicU32,
    in_a_row: AtomicU32,
}

impl SingleCallerDetector {
    /// Whether one thread alone asks.
    pub fn is_one(&self) -> bool {
        self.in_a_row.load(Relaxed) >= ONE_CALLER
    }

    /// The thread `caller` has asked (0: the kernel for itself), and is answered now. `more_wait`: whether another request can be read.
    pub fn took(
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
            // Two that count at once may lose one.
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
        callers.took(opcode::LOOKUP, caller, b"x", || unreachable!());
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
        callers.took(opcode::FSYNC, 7, &[], || unreachable!());
        assert!(!callers.is_one());
        let callers = one_asks();
        callers.took(opcode::WRITE, 7, &[0; 99], || false);
        assert!(callers.is_one());
        callers.took(opcode::WRITE, 7, &[0; 99], || true);
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
