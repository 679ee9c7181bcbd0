//! Freed bytes of segments that wait for the cleaner, and its wake-up.
use crate::segment::SegmentRange;
use forebay_storage::BackgroundWork;
use std::time::{Duration, Instant};

/// What waits for the cleaner.
#[derive(Default)]
pub struct WaitingRanges {
    ranges: Vec<SegmentRange>,
    /// Bytes freed since the last `take`.
    fresh: u64,
    /// There is something to do since the cleaner last looked.
    woken: bool,
}

/// See the head of this file. Shared by threads.
#[derive(Default)]
pub struct ReclaimQueue {
    /// The cleaner's thread.
    pub cleaner: BackgroundWork<WaitingRanges>,
}

impl ReclaimQueue {
    /// More freed bytes. Wakes the cleaner.
    pub fn add(&self, ranges: Vec<SegmentRange>) {
        if ranges.is_empty() {
            return;
        }
        let mut waiting = self.cleaner.lock();
        waiting.fresh += ranges.iter().map(|r| r.end - r.start).sum::<u64>();
        waiting.ranges.extend(ranges);
        waiting.woken = true;
        self.cleaner.work.notify_all();
    }

    /// There is something to do.
    pub fn wake(&self) {
        self.cleaner.lock().woken = true;
        self.cleaner.work.notify_all();
    }

    /// The cleaner waits until there is something to do, or so long; whether it is to go on.
    pub fn wait(&self, most: Option<Duration>) -> bool {
        let until = most.map(|most| Instant::now() + most);
        let mut waiting = self.cleaner.lock();
        while !waiting.woken && !self.cleaner.is_stopping() {
            match until {
                Some(until)
                    if self
                        .cleaner
                        .work
                        .wait_until(&mut waiting, until)
                        .timed_out() =>
                {
                    break;
                }
                Some(_) => {}
                None => self.cleaner.work.wait(&mut waiting),
            }
        }
        waiting.woken = false;
        !self.cleaner.is_stopping()
    }

    /// The cleaner lets so much time pass; whether it is to go on.
    pub fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut waiting = self.cleaner.lock();
        while !self.cleaner.is_stopping()
            && !self
                .cleaner
                .work
                .wait_until(&mut waiting, until)
                .timed_out()
        {}
        !self.cleaner.is_stopping()
    }

    /// Could not be reclaimed now; it is tried again after a while, and at the next free.
    pub fn put_back(&self, ranges: Vec<SegmentRange>) {
        self.cleaner.lock().ranges.extend(ranges);
    }

    /// Takes all that waits.
    pub fn take(&self) -> Vec<SegmentRange> {
        let mut waiting = self.cleaner.lock();
        waiting.fresh = 0;
        std::mem::take(&mut waiting.ranges)
    }

    /// How many ranges wait.
    pub fn len(&self) -> usize {
        self.cleaner.lock().ranges.len()
    }

    /// Bytes freed since the last `take`.
    pub fn fresh_bytes(&self) -> u64 {
        self.cleaner.lock().fresh
    }
}
