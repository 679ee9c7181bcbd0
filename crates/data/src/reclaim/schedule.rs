//! When the reclaiming thread empties mostly dead segments, and when it looks again without being woken: exponential backoff
//! after failures.
use std::time::{Duration, Instant};

/// From this many mostly dead segments on, they are evacuated at once, in a pass over all spans. Fewer wait for `PASS_INTERVAL`.
const PASS_AT_ONCE: usize = 8;
const PASS_INTERVAL: Duration = Duration::from_secs(10);
/// Between two steps of giving bases back, each of some 64 MiB: programs have the disk meanwhile.
const BASES_INTERVAL: Duration = Duration::from_millis(100);
/// How often failures double the interval, at most.
const MAX_BACKOFF_DOUBLINGS: u32 = 5;

/// See the head of this file.
#[derive(Default)]
pub struct ReclaimSchedule {
    last_pass: Option<Instant>,
    /// Failed rounds in a row.
    failures: u32,
    /// When bases may be given back again.
    bases_from: Option<Instant>,
}

impl ReclaimSchedule {
    fn interval(&self) -> Duration {
        PASS_INTERVAL * (1 << self.failures.min(MAX_BACKOFF_DOUBLINGS))
    }

    /// Whether to make a pass now for this many mostly dead segments.
    pub fn is_due(&self, candidates: usize, now: Instant) -> bool {
        let many = candidates >= PASS_AT_ONCE && self.failures == 0;
        let rested = |t| now.saturating_duration_since(t) >= self.interval();
        candidates > 0 && (many || self.last_pass.is_none_or(rested))
    }

    /// How long to wait for a wake-up while this much work is left; `None`: for ever.
    pub fn wait(&self, candidates: usize, garbage: bool, bases: bool) -> Option<Duration> {
        let of_bases = bases.then(|| {
            let left = self
                .bases_from
                .map(|t| t.saturating_duration_since(Instant::now()));
            left.unwrap_or_default()
        });
        let wait = (candidates > 0 || garbage).then(|| self.interval());
        wait.into_iter().chain(of_bases).min()
    }

    /// Whether to give bases back now.
    pub fn may_give_back_bases(&self, now: Instant) -> bool {
        self.bases_from.is_none_or(|from| now >= from)
    }

    /// Some were given back, or that failed: which does not hold up the rest.
    pub fn note_bases(&mut self, failed: bool, now: Instant) {
        self.bases_from = Some(match failed {
            true => now + PASS_INTERVAL,
            false => now + BASES_INTERVAL,
        });
    }

    /// A round ended, with or without a pass.
    pub fn note(&mut self, passed: bool, failed: bool, now: Instant) {
        if passed {
            self.last_pass = Some(now);
        }
        self.failures = if failed { self.failures + 1 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_mostly_dead_segments_get_their_pass_without_another_wake_up() {
        let (mut schedule, start) = (ReclaimSchedule::default(), Instant::now());
        assert!(schedule.is_due(1, start) && !schedule.is_due(0, start));
        schedule.note(true, false, start);
        // Too early; and then the thread comes back by itself, and it is not too early.
        let soon = start + PASS_INTERVAL / 20;
        assert!(!schedule.is_due(1, soon) && schedule.is_due(PASS_AT_ONCE, soon));
        let wait = schedule.wait(1, false, false).unwrap();
        assert!(schedule.is_due(1, start + wait));
        assert_eq!(schedule.wait(0, false, false), None);
    }

    #[test]
    fn what_fails_again_and_again_is_tried_again_ever_more_seldom() {
        let (mut schedule, start) = (ReclaimSchedule::default(), Instant::now());
        let mut before = Duration::ZERO;
        for _ in 0..MAX_BACKOFF_DOUBLINGS {
            schedule.note(true, true, start);
            let wait = schedule.wait(0, true, false).unwrap();
            assert!(wait > before && !schedule.is_due(PASS_AT_ONCE, start + before));
            before = wait;
        }
        schedule.note(true, true, start);
        assert_eq!(schedule.wait(0, true, false), Some(before));
        schedule.note(true, false, start);
        assert_eq!(schedule.wait(0, true, false), Some(PASS_INTERVAL));
    }

    #[test]
    fn bases_are_given_back_step_by_step_and_later_after_a_failure() {
        let (mut schedule, start) = (ReclaimSchedule::default(), Instant::now());
        assert!(schedule.may_give_back_bases(start));
        assert_eq!(schedule.wait(0, false, true), Some(Duration::ZERO));
        schedule.note_bases(false, start);
        assert!(!schedule.may_give_back_bases(start));
        assert!(schedule.may_give_back_bases(start + BASES_INTERVAL));
        schedule.note_bases(true, start);
        assert!(!schedule.may_give_back_bases(start + BASES_INTERVAL));
        // Segments are emptied all the same.
        assert!(schedule.is_due(1, start));
    }
}
