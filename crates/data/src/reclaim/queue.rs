//! Freed bytes of segments that wait to be reclaimed, and its wake-up.
use crate::segment::SegmentRange;
use forebay_storage::BackgroundWork;
use std::time::{Duration, Instant};

/// What waits to be reclaimed.
#[derive(Default)]
pub struct WaitingRanges {
    ranges: Vec<SegmentRange>,
    /// Bytes freed since the last `take`.
    fresh: u64,
    /// There is something to do since the thread last looked.
    woken: bool,
}

/// See the head of this file. Shared by threads.
#[derive(Default)]
pub struct ReclaimQueue {
    /// The thread that reclaims.
    pub background: BackgroundWork<WaitingRanges>,
}

impl ReclaimQueue {
    /// More freed bytes. Wakes the thread.
    pub fn add(&self, ranges: Vec<SegmentRange>) {
        if ranges.is_empty() {
            return;
        }
        let mut waiting = self.background.lock();
        waiting.fresh += ranges.iter().map(|r| r.end - r.start).sum::<u64>();
        waiting.ranges.extend(ranges);
        waiting.woken = true;
        self.background.work.notify_all();
    }

    /// There is something to do.
    pub fn wake(&self) {
        self.background.lock().woken = true;
        self.background.work.notify_all();
    }

    /// The thread waits until there is work, or for this long. `false`: it is to end.
    pub fn wait(&self, most: Option<Duration>) -> bool {
        let until = most.map(|most| Instant::now() + most);
        let mut waiting = self.background.lock();
        while !waiting.woken && !self.background.is_stopping() {
            match until {
                Some(until)
                    if self
                        .background
                        .work
                        .wait_until(&mut waiting, until)
                        .timed_out() =>
                {
                    break;
                }
                Some(_) => {}
                None => self.background.work.wait(&mut waiting),
            }
        }
        waiting.woken = false;
        !self.background.is_stopping()
    }

    /// Puts back what could not be reclaimed. It is retried after a while, and at the next free.
    pub fn put_back(&self, ranges: Vec<SegmentRange>) {
        self.background.lock().ranges.extend(ranges);
    }

    /// Takes all that waits.
    pub fn take(&self) -> Vec<SegmentRange> {
        let mut waiting = self.background.lock();
        waiting.fresh = 0;
        std::mem::take(&mut waiting.ranges)
    }

    /// How many ranges wait.
    pub fn len(&self) -> usize {
        self.background.lock().ranges.len()
    }

    /// Bytes freed since the last `take`.
    pub fn fresh_bytes(&self) -> u64 {
        self.background.lock().fresh
    }
}
