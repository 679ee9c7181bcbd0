//! Wakes writers that wait for space. The log store notifies when bytes are freed or their disk space is reclaimed; other parts
//! do when their work may lead to that.
//!
//! Invariant: a waiter that took [`SpaceSignal::epoch`] before it looked for space misses no notification after that look. So
//! no waiter has to look again before something changed, and a notification with no waiter costs two atomic operations.
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// See the head of this file. Shared by threads.
#[derive(Debug, Default)]
pub struct SpaceSignal {
    epoch: AtomicU64,
    waiters: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl SpaceSignal {
    /// Another number after every notification.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    /// How many wait now.
    pub fn waiters(&self) -> usize {
        self.waiters.load(SeqCst)
    }

    /// There may be space now.
    pub fn notify(&self) {
        // Before the waiters are counted, as these count themselves before they look at the epoch: one of both sees the other.
        self.epoch.fetch_add(1, SeqCst);
        if self.waiters() > 0 {
            // Who has looked at the epoch in vain holds the lock until it waits.
            drop(self.lock.lock());
            self.changed.notify_all();
        }
    }

    /// Waits for a notification since the epoch was `seen`, at most until then; whether there was one.
    pub fn wait(&self, seen: u64, until: Instant) -> bool {
        self.waiters.fetch_add(1, SeqCst);
        let mut lock = self.lock.lock();
        while self.epoch() == seen && !self.changed.wait_until(&mut lock, until).timed_out() {}
        drop(lock);
        self.waiters.fetch_sub(1, SeqCst);
        self.epoch() != seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_notification_is_not_missed_whenever_it_comes() {
        let (signal, far) = (
            SpaceSignal::default(),
            Instant::now() + Duration::from_secs(60),
        );
        let seen = signal.epoch();
        assert!(!signal.wait(seen, Instant::now()), "nothing was told");
        signal.notify();
        assert!(signal.wait(seen, far), "it came before the wait");
        for _ in 0..1000 {
            let seen = signal.epoch();
            std::thread::scope(|scope| {
                scope.spawn(|| signal.notify());
                assert!(signal.wait(seen, far));
            });
        }
    }
}
