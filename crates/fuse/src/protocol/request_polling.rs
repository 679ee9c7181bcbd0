//! Busy-polls for the next request before blocking in the read, when one thread makes all requests
//! ([`SingleCallerDetector`](super::single_caller::SingleCallerDetector)).
//!
//! Such a program makes its next request some microseconds after a reply. To wake a sleeping thread on an idle processor takes
//! longer, in a virtual machine several times as long. So the thread polls for [`POLL_TIME`] after each reply. When all processors
//! are busy, polling is useless: the program waits for the very processor that polls. So after [`MAX_MISSES`] polls without a
//! request, the thread blocks at once for the next [`REQUESTS_WITHOUT_POLLING`] requests.
use std::time::Duration;

/// How long a poll lasts: the time in which a program that a reply has woken makes its next request.
const POLL_TIME: Duration = Duration::from_micros(50);
/// After this many polls in a row without a request, polling pauses.
const MAX_MISSES: u32 = 4;
/// Length of the pause, in requests.
const REQUESTS_WITHOUT_POLLING: u32 = 128;

/// See the head of this file.
#[derive(Default)]
pub(super) struct RequestPolling {
    misses: u32,
    /// Requests until polling begins again.
    without: u32,
}

impl RequestPolling {
    /// Returns when a request is there, or when this thread should block instead. `clock`: the time since some fixed moment.
    pub fn poll(&mut self, clock: impl Fn() -> Duration, is_asked: impl Fn() -> bool) {
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
