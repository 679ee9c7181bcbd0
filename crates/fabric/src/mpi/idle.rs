//! How long the progress thread waits before it looks again.
//!
//! MPI has no descriptor to wait on, so arrivals must be looked for. The thread spins while something may follow at
//! once, then lets others run, then naps for a fixed share of the time since the last work, up to a longest nap. So an
//! arrival waits at most that share longer than it would have, and an idle thread costs what one look every longest nap
//! costs. Work from this process ends a nap at once (see `engine`), so only arrivals from other processes wait.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// Where the progress thread naps, and others wake it. Parking costs one system call each way; a channel's own wait
/// spins first, which cost as much again as the nap.
#[derive(Default)]
pub(super) struct Bed {
    asleep: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl Bed {
    /// Sleeps for `nap` at most. Does not if `wanted` says so after others can see the sleeper: what they queue before
    /// is seen here, and who queues after wakes.
    pub fn nap(&self, nap: Duration, wanted: impl FnOnce() -> bool) {
        self.sleeper.get_or_init(std::thread::current);
        self.asleep.store(true, Ordering::SeqCst);
        if !wanted() {
            std::thread::park_timeout(nap);
        }
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Ends the nap, if there is one. Called after queueing.
    pub fn wake(&self) {
        // Ordered after the queueing, as `nap` looks at the queue after its store: one of the two sees the other.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst)
            && self.asleep.swap(false, Ordering::SeqCst)
            && let Some(sleeper) = self.sleeper.get()
        {
            sleeper.unpark();
        }
    }
}

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
const RESTING: Duration = Duration::from_millis(5);

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
    fn a_nap_ends_when_work_is_queued() {
        let bed = std::sync::Arc::new(Bed::default());
        let (queue, work) = crossbeam_channel::unbounded();
        let waker = bed.clone();
        let others = std::thread::spawn(move || {
            for i in 0..1000 {
                queue.send(i).unwrap();
                waker.wake();
                if i % 10 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let (begun, mut next) = (std::time::Instant::now(), 0);
        while next < 1000 {
            match work.try_recv() {
                Ok(i) => {
                    assert_eq!(i, next);
                    next += 1;
                }
                Err(_) => bed.nap(Duration::from_secs(60), || !work.is_empty()),
            }
        }
        others.join().unwrap();
        // One nap that is not ended takes as long.
        assert!(begun.elapsed() < Duration::from_secs(60));
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
