//! Busy-polls for the next request for a moment before blocking in the read, when one thread makes all requests
//! ([`SingleCallerDetector`](super::single_caller::SingleCallerDetector)).
//!
//! That program asks again some microseconds after it has its answer. To wake a thread that sleeps on an idle processor takes longer, in a
//! virtual machine several times as long. So the thread that has answered looks for a moment whether the next request is there. Where the
//! other processors are busy this is in vain: the program waits for this very processor. So after some looks in vain it sleeps
//! at once for a while.
use std::time::Duration;

/// How long it looks: as long as a program takes that is woken by an answer and asks again.
const POLL_TIME: Duration = Duration::from_micros(50);
/// After so many requests in a row that did not come in that time it looks no more,
const MAX_MISSES: u32 = 4;
/// for so many requests.
const REQUESTS_WITHOUT_POLLING: u32 = 128;

/// See the head of this file.
#[derive(Default)]
pub(super) struct RequestPolling {
    misses: u32,
    /// Requests that are left of those that it does not look for.
    without: u32,
}

impl RequestPolling {
    /// Returns once a request is there, or this thread had better sleep over it. `clock`: the time since any moment before.
    pub fn poll(&mut self, clock: impl Fn() -> Duration, is_asked: impl Fn() -> bool) {
        if self.without > 0 {
            self.without -= 1;
            return;
        }
        let end = clock() + POLL_TIME;
        let mut asked = is_asked();
        // A request that is found late came while this thread was not let run: others need the processor.
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
