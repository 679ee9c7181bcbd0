//! Notes that closes left work behind, wakes the thread that finishes it (`close_finisher`), and keeps a list of log bytes whose
//! freeing failed on a full disk, to be freed later.
use crate::worker_thread::WorkerThread;
use forebay_data::LogRange;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Default)]
struct RetrySignals {
    /// There may be something left.
    left: bool,
    /// A round is wanted at once.
    now: bool,
}

/// See the head of this file.
#[derive(Default)]
pub(super) struct DeferredCloses {
    signals: Mutex<RetrySignals>,
    wake: Condvar,
    closing: AtomicBool,
    /// Bytes to free: freeing them failed on a full disk.
    pub(super) unfreed: Mutex<Vec<LogRange>>,
    /// Held through a round.
    pub(super) round: Mutex<()>,
    pub(super) thread: WorkerThread,
}

impl DeferredCloses {
    /// Something is left: it is tried again after a pause.
    pub(super) fn add(&self) {
        self.signals.lock().left = true;
        self.wake.notify_all();
    }

    /// Room may have come, or a name gone: what is left, if anything, is tried again at once.
    pub(super) fn retry_now(&self) {
        let mut signals = self.signals.lock();
        if signals.left {
            signals.now = true;
            self.wake.notify_all();
        }
    }

    /// Bytes that could not be freed.
    pub(super) fn keep(&self, ranges: &[LogRange]) {
        self.unfreed.lock().extend_from_slice(ranges);
        self.add();
    }

    /// Whether something may be left.
    pub(super) fn any(&self) -> bool {
        self.signals.lock().left
    }

    /// A round begins: what fails in it is added again.
    pub(super) fn begin_round(&self) {
        self.signals.lock().left = false;
    }

    pub(super) fn closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Waits until a round is due. `false`: the delegate stops.
    pub(super) fn wait(&self, pause: Duration) -> bool {
        let mut signals = self.signals.lock();
        let mut due = None;
        loop {
            if self.closing() {
                return false;
            }
            if std::mem::take(&mut signals.now) {
                return true;
            }
            if !signals.left {
                self.wake.wait(&mut signals);
                continue;
            }
            let due = *due.get_or_insert_with(|| Instant::now() + pause);
            if self.wake.wait_until(&mut signals, due).timed_out() && !self.closing() {
                signals.now = false;
                return true;
            }
        }
    }

    /// Ends the thread. What is left stays as it is.
    pub(super) fn stop(&self) {
        let signals = self.signals.lock();
        self.closing.store(true, Ordering::Relaxed);
        self.wake.notify_all();
        drop(signals);
        self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_due_at_once_if_something_is_left_and_none_after_the_end() {
        let far = Duration::from_secs(600);
        let deferred = DeferredCloses::default();
        deferred.retry_now();
        assert!(!deferred.any() && !deferred.signals.lock().now);
        deferred.add();
        deferred.retry_now();
        assert!(deferred.wait(far));
        assert!(deferred.any(), "what is left stays until a round begins");
        deferred.begin_round();
        assert!(!deferred.any());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| deferred.wait(far));
            deferred.stop();
            assert!(!waits.join().unwrap());
        });
    }

    #[test]
    fn bytes_that_stay_make_a_round_due() {
        let deferred = DeferredCloses::default();
        deferred.keep(&[(7, 0..10)]);
        assert!(deferred.wait(Duration::ZERO));
        assert_eq!(*deferred.unfreed.lock(), [(7, 0..10)]);
    }
}
