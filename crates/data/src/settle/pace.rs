//! When settling pauses for the foreground (writes, and reads and syncs under way).
//!
//! A step settles about 1 MiB. It begins at once if the foreground has been idle for [`IDLE_AFTER`] (400 ms), otherwise after a pause of
//! [`MAX_PAUSE`] (100 ms). From half of the backlog's bound on the pause shrinks; it is zero at the bound, or when a writer waits
//! for room.
use std::time::{Duration, Instant};

/// Interval between two checks whether the foreground is idle.
pub const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// The foreground is idle when it has done nothing for this long.
const IDLE_AFTER: Duration = Duration::from_millis(400);
/// The longest pause before a step.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// The backlog, and what the foreground does.
#[derive(Debug, Clone, Copy, Default)]
pub struct PacingInput {
    /// Bytes that were written since the store was opened and are not settled yet.
    pub backlog: u64,
    /// The bound of the backlog.
    pub bound: u64,
    /// A writer waits for room.
    pub is_urgent: bool,
    /// A number that grows with every write, and every read that a program makes itself.
    pub begun: u64,
    /// Reads or syncs are under way.
    pub calls: bool,
}

/// See the head of this file. The caller has the clock.
#[derive(Debug)]
pub struct Pacer {
    /// That number when it was last looked at.
    begun: u64,
    /// When the foreground was last seen busy.
    busy: Option<Instant>,
    /// When the pause began.
    since: Option<Instant>,
}

impl Pacer {
    /// A pacer that has seen no write yet.
    pub fn new() -> Pacer {
        Pacer {
            begun: 0,
            busy: None,
            since: None,
        }
    }

    /// Whether the next step may be taken now.
    pub fn may_step(&mut self, load: PacingInput, now: Instant) -> bool {
        if load.calls || load.begun != self.begun {
            (self.begun, self.busy) = (load.begun, Some(now));
        }
        let since = *self.since.get_or_insert(now);
        let rests = |busy: Instant| now.saturating_duration_since(busy) >= IDLE_AFTER;
        let may = self.busy.is_none_or(rests)
            || now.saturating_duration_since(since) >= longest_pause(load);
        if may {
            self.since = None;
        }
        may
    }
}

/// The longest pause before a step.
fn longest_pause(load: PacingInput) -> Duration {
    if load.is_urgent || load.backlog >= load.bound {
        return Duration::ZERO;
    }
    let half = load.bound / 2;
    match load.backlog.checked_sub(half) {
        None => MAX_PAUSE,
        // Linear: `MAX_PAUSE` at half of the bound, zero at the bound.
        Some(over) => {
            let left = 1.0 - over as f64 / (load.bound - half).max(1) as f64;
            MAX_PAUSE.mul_f64(left.clamp(0.0, 1.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(backlog: u64) -> PacingInput {
        PacingInput {
            backlog,
            bound: 1000,
            ..PacingInput::default()
        }
    }

    #[test]
    fn the_more_waits_the_shorter_the_pauses() {
        let pause = |backlog| longest_pause(load(backlog));
        assert_eq!((pause(0), pause(500)), (MAX_PAUSE, MAX_PAUSE));
        assert!(pause(600) < MAX_PAUSE && pause(900) < pause(600));
        assert_eq!((pause(1000), pause(5000)), (Duration::ZERO, Duration::ZERO));
        let urgent = PacingInput {
            is_urgent: true,
            ..load(1)
        };
        assert_eq!(longest_pause(urgent), Duration::ZERO);
    }

    #[test]
    fn steps_follow_each_other_at_rest_and_are_seldom_in_a_burst() {
        let (mut pacer, start) = (Pacer::new(), Instant::now());
        assert!(pacer.may_step(load(1), start), "nothing was ever written");
        let mut now = start;
        let (mut steps, mut writes) = (0, 0);
        while now < start + 20 * MAX_PAUSE {
            writes += 1;
            let busy = PacingInput {
                begun: writes,
                ..load(1)
            };
            steps += u32::from(pacer.may_step(busy, now));
            now += IDLE_CHECK_INTERVAL;
        }
        assert!((19..=20).contains(&steps), "{steps} steps");
        // The burst ends, with a step that takes no pause.
        let quiet = PacingInput {
            begun: writes,
            ..load(1)
        };
        let hurried = PacingInput {
            is_urgent: true,
            ..quiet
        };
        assert!(pacer.may_step(hurried, now));
        let look = |pacer: &mut Pacer, after| pacer.may_step(quiet, now + after);
        assert!(!look(&mut pacer, MAX_PAUSE / 2));
        assert!(look(&mut pacer, IDLE_AFTER) && look(&mut pacer, IDLE_AFTER));
        let calls = PacingInput {
            calls: true,
            ..quiet
        };
        assert!(!pacer.may_step(calls, now + 2 * IDLE_AFTER));
        let hurried = PacingInput {
            calls: true,
            ..hurried
        };
        assert!(pacer.may_step(hurried, now + 2 * IDLE_AFTER));
    }
}
