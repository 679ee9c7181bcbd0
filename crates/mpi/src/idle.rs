//! How long the progress thread pauses before it polls MPI again.
//!
//! MPI has no descriptor to wait on, so the thread polls. After work it spins for a moment, then yields, then sleeps for an eighth
//! of the time since the last work, between a shortest and a longest sleep. So a message from another process is found after at
//! most one sleep, and an idle thread polls once per longest sleep. Work from this process ends a sleep at once.

use forebay_fabric::session::Pause;
use std::time::Duration;

/// The thread spins while the last work is younger than this.
const SPIN_FOR: Duration = Duration::from_micros(10);
/// The thread yields while the last work is younger than this.
const YIELD_FOR: Duration = Duration::from_micros(100);
const SHORTEST_NAP: Duration = Duration::from_micros(20);
/// A nap is the time since the last work divided by this.
const NAP_DIVISOR: u32 = 8;
/// The longest nap while bytes are on their way: both ends must look often for them to move.
const LONGEST_NAP_MOVING: Duration = Duration::from_micros(100);
/// The longest nap when nothing is on its way.
const LONGEST_NAP_IDLE: Duration = Duration::from_millis(2);
/// The longest nap of a thread that has rested: a job between two bursts.
const LONGEST_NAP_RESTED: Duration = Duration::from_millis(5);
/// A thread without work for this long has rested.
const RESTED_AFTER: Duration = Duration::from_secs(1);

/// The pause when the last work was `idle` ago; `moving` says that transfers are under way.
pub(super) fn pause(idle: Duration, moving: bool) -> Pause {
    if idle < SPIN_FOR {
        return Pause::Spin;
    }
    if idle < YIELD_FOR {
        return Pause::Yield;
    }
    let longest = match moving {
        true => LONGEST_NAP_MOVING,
        false if idle < RESTED_AFTER => LONGEST_NAP_IDLE,
        false => LONGEST_NAP_RESTED,
    };
    Pause::Sleep((idle / NAP_DIVISOR).clamp(SHORTEST_NAP, longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_to_a_bound_and_work_resets_them() {
        let after = |micros| pause(Duration::from_micros(micros), false);
        assert_eq!(after(0), Pause::Spin);
        assert_eq!(after(50), Pause::Yield);
        assert_eq!(after(100), Pause::Sleep(SHORTEST_NAP));
        assert_eq!(after(8000), Pause::Sleep(Duration::from_millis(1)));
        assert_eq!(after(900_000), Pause::Sleep(LONGEST_NAP_IDLE));
        assert_eq!(after(60_000_000), Pause::Sleep(LONGEST_NAP_RESTED));
        assert_eq!(
            pause(Duration::from_secs(60), true),
            Pause::Sleep(LONGEST_NAP_MOVING),
            "transfers are not left waiting"
        );
    }

    #[test]
    fn an_idle_second_takes_few_looks() {
        let (mut idle, mut looks) = (YIELD_FOR, 0);
        while idle < Duration::from_secs(1) {
            let Pause::Sleep(nap) = pause(idle, false) else {
                panic!("awake after {idle:?}");
            };
            idle += nap;
            looks += 1;
        }
        assert!(looks < 600, "{looks}");
    }
}
