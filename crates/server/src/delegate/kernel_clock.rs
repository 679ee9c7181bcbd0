//! The time of a change, by the clock of a kernel that stamps some changes of the same files itself (the writeback cache; one member).
//!
//! Such a kernel takes the time of its last tick, but never one before the latest that it has given any file of the machine: Linux
//! 6.13 and later give files of some file systems times finer than a tick (multigrain timestamps). No system call tells that
//! latest time. What is stamped here after a change that the kernel has stamped must not be earlier, else the file would go back
//! in time; so the times that the kernel hands over are remembered.
//!
//! Invariant: a time from [`KernelClock::now`] is not before any that was observed, and not after the clock's.
use forebay_proto::Time;
use parking_lot::Mutex;

/// See the head of this file. Shared by threads.
#[derive(Default)]
pub(super) struct KernelClock {
    /// The latest time that the kernel has handed over.
    latest: Mutex<Time>,
}

impl KernelClock {
    /// The time of a change made now.
    pub fn now(&self) -> Time {
        let mut latest = self.latest.lock();
        if *latest > Time::now() {
            // The clock was set back.
            *latest = Time::default();
        }
        Time::last_tick().max(*latest)
    }

    /// Takes note of a time that the kernel has given a file. One in the future was chosen by a program.
    pub fn observe(&self, time: Time) {
        let mut latest = self.latest.lock();
        if time > *latest && time <= Time::now() {
            *latest = time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back_behind_what_the_kernel_has_said_nor_into_the_future() {
        let clock = KernelClock::default();
        // Finer than a tick: later than the last one.
        let fine = Time::now();
        clock.observe(fine);
        assert!(clock.now() >= fine);
        clock.observe(Time::default());
        assert!(clock.now() >= fine);
        let future = Time {
            secs: fine.secs + 3600,
            ..fine
        };
        clock.observe(future);
        assert!(clock.now() < future);
        // The clock is set back by an hour.
        *clock.latest.lock() = future;
        assert!(clock.now() < future);
    }
}
