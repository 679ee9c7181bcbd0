//! Busy-polls for the next request before blocking in the read, when one thread makes all requests
//! ([`SingleCallerDetector`](super::single_caller::SingleCallerDetector)).
//!
//! Such a program makes its next request some microseconds after a reply. To wake a sleeping thread on an idle processor takes
//! longer, in a virtual machine several times as long. So the thread polls for [`POLL_TIME`] after each reply. When all processors
//! are busy, polling is useless: the program waits for the very processor that polls. So after [`MAX_MISSES`] polls without a
//! request, the thread blocks at once for the next [`REQUESTS_WITHOUT_POLLING`] requests.
//!
//! Nor does it poll after a read for which it slept ([`AnswerTimer`]), because bytes came from the disk: a thread that polls keeps the
//! program from going on at the processor that the disk has just woken. Random reads of 4 KiB took a third longer so.
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::{Duration, Instant};

/// How long a poll lasts: the time in which a program that a reply has woken makes its next request.
const POLL_TIME: Duration = Duration::from_micros(50);
/// After this many polls in a row without a request, polling pauses.
const MAX_MISSES: u32 = 4;
/// Length of the pause, in requests.
const REQUESTS_WITHOUT_POLLING: u32 = 128;

/// The thread has slept if an answer takes so much longer than the processor time that it takes.
const MIN_SLEEP: Duration = Duration::from_micros(10);

/// Finds out whether the thread sleeps while it answers a request.
pub(super) struct AnswerTimer {
    begun: Instant,
    processor: Duration,
}

impl AnswerTimer {
    /// The answer begins.
    pub fn start() -> AnswerTimer {
        AnswerTimer {
            begun: Instant::now(),
            processor: processor_time(),
        }
    }

    /// Whether the thread has slept, or waited for a processor, since then.
    pub fn has_slept(&self) -> bool {
        let worked = processor_time().saturating_sub(self.processor);
        self.begun.elapsed().saturating_sub(worked) > MIN_SLEEP
    }
}

/// Time for which this thread ran.
fn processor_time() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is negative, and a second has fewer nanoseconds than 2^32.
    Duration::new(tv_sec as u64, tv_nsec as u32)
}

/// See the head of this file.
#[derive(Default)]
pub(super) struct RequestPolling {
    misses: u32,
    /// Requests until polling begins again.
    without: u32,
    /// The thread slept for the last answer.
    has_slept: bool,
}

impl RequestPolling {
    /// A request was answered.
    pub fn answered(&mut self, has_slept: bool) {
        self.has_slept = has_slept;
    }

    /// Returns when a request is there, or when this thread should block instead. `clock`: the time since some fixed moment.
    pub fn poll(&mut self, clock: impl Fn() -> Duration, is_asked: impl Fn() -> bool) {
        if self.has_slept {
            return;
        }
        if self.without > 0 {
            self.without -= 1;
            return;
        }
        let end = clock() + POLL_TIME;
        let mut asked = is_asked();
        // A request that is found late came while this thread was preempted: others need the processor.
        let mut in_time = clock() < end;
        while !asked && in_time {
            std::hint::spin_loop();
            asked = is_asked();
            in_time = clock() < end;
        }
        self.misses = match in_time {
            true => 0,
            false => self.misses + 1,
        };
        if self.misses == MAX_MISSES {
            (self.misses, self.without) = (0, REQUESTS_WITHOUT_POLLING);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Polls once; the request comes after so many looks of 10 us each. How many looks there were.
    fn looks(polling: &mut RequestPolling, comes_after: u32) -> u32 {
        let looks = Cell::new(0);
        let is_asked = || {
            looks.set(looks.get() + 1);
            looks.get() > comes_after
        };
        polling.poll(|| Duration::from_micros(10) * looks.get(), is_asked);
        looks.get()
    }

    #[test]
    fn it_looks_until_the_request_is_there_and_no_longer_than_a_moment() {
        let mut polling = RequestPolling::default();
        assert_eq!(looks(&mut polling, 0), 1);
        assert_eq!(looks(&mut polling, 3), 4);
        assert_eq!(looks(&mut polling, 100), 5);
    }

    #[test]
    fn after_misses_in_a_row_it_does_not_look_for_a_while() {
        let mut polling = RequestPolling::default();
        for _ in 1..MAX_MISSES {
            assert_eq!(looks(&mut polling, 100), 5);
        }
        assert_eq!(looks(&mut polling, 1), 2);
        for _ in 0..MAX_MISSES {
            assert_eq!(looks(&mut polling, 100), 5);
        }
        for _ in 0..REQUESTS_WITHOUT_POLLING {
            assert_eq!(looks(&mut polling, 1), 0);
        }
        assert_eq!(looks(&mut polling, 1), 2);
    }

    #[test]
    fn it_does_not_look_after_an_answer_for_which_it_slept() {
        let mut polling = RequestPolling::default();
        polling.answered(true);
        assert_eq!(looks(&mut polling, 3), 0);
        polling.answered(false);
        assert_eq!(looks(&mut polling, 3), 4);
        let timer = AnswerTimer::start();
        std::thread::sleep(2 * MIN_SLEEP);
        assert!(timer.has_slept());
    }

    #[test]
    fn a_request_that_is_found_late_is_a_miss() {
        let mut polling = RequestPolling::default();
        // Not let run between two looks.
        let late = |polling: &mut RequestPolling| {
            let looks = Cell::new(0);
            let is_asked = || {
                looks.set(looks.get() + 1);
                true
            };
            polling.poll(|| Duration::from_millis(3) * looks.get(), is_asked);
            looks.get()
        };
        for _ in 0..MAX_MISSES {
            assert_eq!(late(&mut polling), 1);
        }
        assert_eq!(late(&mut polling), 0);
    }
}
