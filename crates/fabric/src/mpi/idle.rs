//! How long the progress thread waits before it looks again.
//!
//! MPI has no descriptor to wait on, so arrivals must be looked for. The thread spins while something may follow at
//! once, then lets others run, then naps for a fixed share of the time since the last work, up to a longest nap. So an
//! arrival waits at most that share longer than it would have, and an idle thread costs what one look every longest nap
//! costs. Work from this process ends a nap at once (see `engine`), so only arrivals from other processes wait.

use std::time::Duration;

/// What to do before the next look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// Look again at once.
    Spin,
    /// Let other threads run first: on a machine with more threads than cores one of them has the work.
    Yield,
    /// Sleep.
    Nap(Duration),
}

const SPIN: Duration = Duration::from_micros(10);
const YIELD: Duration = Duration::from_micros(100);
const SHORTEST: Duration = Duration::from_micros(20);
/// A nap is this part of the time since the last work.
const SHARE: u32 = 8;
/// While bytes are on their way: both ends must look often for them to move.
const MOVING: Duration = Duration::from_micros(100);
/// When nothing is on its way.
const LONGEST: Duration = Duration::from_millis(2);
/// After a second without any work: a job between two bursts.
const RESTING: Duration = Duration::from_millis(4);

/// The pause when the last work was `since` ago; `moving` says that transfers are under way.
pub(super) fn pause(since: Duration, moving: bool) -> Pause {
    if since < SPIN {
        return Pause::Spin;
    }
    if since < YIELD {
        return Pause::Yield;
    }
    let longest = match moving {
        true => MOVING,
        false if since < Duration::from_secs(1) => LONGEST,
        false => RESTING,
    };
    Pause::Nap((since / SHARE).clamp(SHORTEST, longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_to_a_bound_and_work_resets_them() {
        let after = |micros| pause(Duration::from_micros(micros), false);
        assert_eq!(after(0), Pause::Spin);
        assert_eq!(after(50), Pause::Yield);
        assert_eq!(after(100), Pause::Nap(SHORTEST));
        assert_eq!(after(8000), Pause::Nap(Duration::from_millis(1)));
        assert_eq!(after(900_000), Pause::Nap(LONGEST));
        assert_eq!(after(60_000_000), Pause::Nap(RESTING));
        assert_eq!(
            pause(Duration::from_secs(60), true),
            Pause::Nap(MOVING),
            "transfers are not left waiting"
        );
    }

    #[test]
    fn an_idle_second_takes_few_looks() {
        let (mut since, mut looks) = (YIELD, 0);
        while since < Duration::from_secs(1) {
            let Pause::Nap(nap) = pause(since, false) else {
                panic!("awake after {since:?}");
            };
            since += nap;
            looks += 1;
        }
        assert!(looks < 600, "{looks}");
    }
}
