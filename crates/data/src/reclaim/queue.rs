//! Freed bytes of segments that wait for the cleaner, and its wake-up.
use crate::segment::SegmentRange;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use parking_lot::Mutex;

#[derive(Default)]
struct Waiting {
    ranges: Vec<SegmentRange>,
    /// Bytes freed since the last `take`.
    fresh: u64,
}

/// See the head of this file. Shared by threads.
pub struct ReclaimQueue {
    waiting: Mutex<Waiting>,
    wake: Sender<()>,
}

impl ReclaimQueue {
    /// Also the end that the cleaner listens on.
    pub fn new() -> (ReclaimQueue, Receiver<()>) {
        let (wake, woken) = crossbeam_channel::bounded(1);
        let queue = ReclaimQueue {
            waiting: Mutex::default(),
            wake,
        };
        (queue, woken)
    }

    /// More freed bytes. Wakes the cleaner.
    pub fn add(&self, ranges: Vec<SegmentRange>) {
        if ranges.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        waiting.fresh += ranges.iter().map(|r| r.end - r.start).sum::<u64>();
        waiting.ranges.extend(ranges);
        drop(waiting);
        self.wake();
    }

    /// There is something to do.
    pub fn wake(&self) {
        match self.wake.try_send(()) {
            Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
        }
    }

    /// Could not be reclaimed now; it is tried again after a while, and at the next free.
    pub fn put_back(&self, ranges: Vec<SegmentRange>) {
        self.waiting.lock().ranges.extend(ranges);
    }

    /// Takes all that waits.
    pub fn take(&self) -> Vec<SegmentRange> {
        let mut waiting = self.waiting.lock();
        waiting.fresh = 0;
        std::mem::take(&mut waiting.ranges)
    }

    /// How many ranges wait.
    pub fn len(&self) -> usize {
        self.waiting.lock().ranges.len()
    }

    /// Bytes freed since the last `take`.
    pub fn fresh_bytes(&self) -> u64 {
        self.waiting.lock().fresh
    }
}
