//! Reclaiming disk space: freed parts of segments are punched out (small ones later, `small_holes`), segments without live bytes are
//! removed, and mostly dead ones are emptied (`evacuate`). A thread does it in the background (`run`), and also brings segments to
//! disk ahead of the flushes that will ask for it.
//!
//! Invariants: the batch that freed the bytes is on disk before their space goes (else a power loss would bring the records
//! back without the bytes); one thread reclaims at a time; a failure does not stop the rest; while work is left the thread tries
//! again on a timer, without being woken.
mod evacuate;
mod queue;
mod schedule;
mod small_holes;

use crate::container::ContainerTable;
use crate::pieces::ChecksummedPieces;
use crate::poison::Poison;
use crate::segment::{SegmentRange, Segments};
use crate::space_signal::SpaceSignal;
use crate::span::Span;
use crate::span_table::SpanTable;
use forebay_proto::{Error, Result};
use forebay_storage::Store;
use parking_lot::Mutex;
pub use queue::ReclaimQueue;
use schedule::ReclaimSchedule;
pub use small_holes::{LARGE_HOLE, MOST_SMALL_HOLES, SmallHoles};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// From this many freed bytes on they are reclaimed at once. Fewer wait for `GATHER_DELAY`, so that one sync serves many frees.
const RECLAIM_AT_ONCE_BYTES: u64 = 16 << 20;
const GATHER_DELAY: Duration = Duration::from_millis(500);
/// Holes are punched in whole pages of this size.
pub const PAGE: u64 = 4096;

/// See the head of this file. Shared by threads.
pub struct Reclaimer {
    /// Where the records of spans are.
    pub store: Arc<Store>,
    /// What is reclaimed.
    pub segments: Arc<Segments>,
    /// What names bytes of them.
    pub spans: Arc<SpanTable>,
    /// The same.
    pub containers: Arc<ContainerTable>,
    /// Closed by a failed sync.
    pub poison: Arc<Poison>,
    /// Wakes writers that wait for space.
    pub space_freed: Arc<SpaceSignal>,
    /// Bytes that no span names any more.
    pub queue: ReclaimQueue,
    /// What is not punched yet. Held by whoever reclaims.
    pub reclaiming: Mutex<SmallHoles>,
}

/// Which freed parts of segments to punch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Punch {
    /// All.
    All,
    /// Those that are not small (`small_holes`).
    Large,
}

/// What a round reclaimed.
#[derive(Default)]
struct ReclaimRound {
    /// Something was reclaimed.
    any: bool,
    /// The first failure.
    failure: Option<Error>,
}

impl ReclaimRound {
    /// Whether it went well.
    fn note(&mut self, result: Result<()>) -> bool {
        let well = result.is_ok();
        self.any |= well;
        if self.failure.is_none() {
            self.failure = result.err();
        }
        well
    }
}

impl Reclaimer {
    /// Gives back the bytes of spans that will not be recorded. (Otherwise a writer that retries on a full disk would use up the space
    /// that deletes free.)
    pub fn discard(&self, spans: &[Span]) {
        let unused = spans.iter().filter_map(Span::raw);
        self.discard_bytes(unused.map(|raw| raw.segment_range(&raw.stored)));
    }

    /// Gives back reserved bytes.
    pub fn discard_bytes(&self, unused: impl Iterator<Item = SegmentRange>) {
        let unused = unused.inspect(|r| self.segments.release(r.segment, r.end - r.start));
        self.queue.add(unused.collect());
    }

    /// Segments that the thread would empty.
    pub fn mostly_dead(&self) -> Vec<u32> {
        self.segments.sealed(|u| !u.pinned && u.is_mostly_dead())
    }

    /// Whether there is something to punch or to remove.
    fn has_garbage(&self) -> bool {
        self.queue.len() > 0 || !self.segments.sealed(|u| u.live == 0).is_empty()
    }

    /// Reclaims what is free; with `evacuate`, also empties mostly dead segments. One caller at a time.
    ///
    /// # Errors
    /// The first failure of disk or store; everything else was done. The rest is retried later or at the next start.
    pub fn reclaim_all(&self, punch: Punch, evacuate: bool) -> Result<()> {
        let mut small = self.reclaiming.lock();
        let mut failure = self.reclaim(&mut small, punch).failure;
        if evacuate {
            let targets: HashSet<u32> = self.mostly_dead().into_iter().collect();
            if !targets.is_empty() {
                failure = failure.or(self.evacuate(&targets).err());
                failure = failure.or(self.reclaim(&mut small, punch).failure);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// The disk is full: whether reclaiming might have helped. Does not wait for another thread that reclaims.
    pub fn reclaim_for_space(&self) -> bool {
        let Some(mut small) = self.reclaiming.try_lock() else {
            return false;
        };
        let reclaimed = self.reclaim(&mut small, Punch::All);
        if let Some(error) = reclaimed.failure {
            tracing::warn!(%error, "could not give all disk space back");
        }
        reclaimed.any
    }

    /// Removes dead segments and punches freed ranges.
    fn reclaim(&self, small: &mut SmallHoles, punch: Punch) -> ReclaimRound {
        let mut reclaimed = ReclaimRound::default();
        let mut ranges = self.queue.take();
        let empty: BTreeSet<u32> = self.segments.sealed(|u| u.live == 0).into_iter().collect();
        if !ranges.is_empty() || punch == Punch::All {
            ranges.append(&mut small.take());
        }
        if ranges.is_empty() && empty.is_empty() {
            return reclaimed;
        }
        if let Err(e) = self.store.sync() {
            self.queue.put_back(ranges);
            reclaimed.failure = Some(e.into());
            return reclaimed;
        }
        for segment in &empty {
            reclaimed.note(self.segments.remove(*segment));
        }
        small.forget(&empty);
        ranges.retain(|range| !empty.contains(&range.segment));
        ranges.sort_unstable();
        ranges.dedup_by(|next, last| {
            let joins = last.segment == next.segment && last.end >= next.start;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        if punch == Punch::Large {
            ranges = small.keep(ranges);
        }
        let mut left = Vec::new();
        for r in ranges {
            // Only whole pages: the others hold a neighbour's bytes.
            let (start, end) = (r.start.next_multiple_of(PAGE), r.end / PAGE * PAGE);
            if start < end
                && self.segments.usage(r.segment).is_some()
                && !reclaimed.note(self.segments.punch(r.segment, start, end - start))
            {
                left.push(r);
            }
        }
        self.queue.put_back(left);
        if reclaimed.any {
            self.space_freed.notify();
        }
        reclaimed
    }

    fn sync_ahead(&self) {
        if let Err(error) = self.segments.sync_ahead() {
            self.poison.note_sync(error);
        }
    }

    /// Waits for `GATHER_DELAY`, and syncs ahead meanwhile. `false`: the thread is to end.
    fn gather(&self) -> bool {
        let until = Instant::now() + GATHER_DELAY;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if !self.queue.wait(Some(left)) {
                return false;
            }
            self.sync_ahead();
        }
        true
    }

    /// The thread: syncs ahead at once, reclaims some time after a free, until it is stopped.
    pub fn run(&self) {
        let mut schedule = ReclaimSchedule::default();
        while self
            .queue
            .wait(schedule.wait(self.mostly_dead().len(), self.has_garbage()))
        {
            self.sync_ahead();
            if !self.has_garbage() && !schedule.is_due(self.mostly_dead().len(), Instant::now()) {
                continue;
            }
            if self.queue.fresh_bytes() < RECLAIM_AT_ONCE_BYTES && !self.gather() {
                return;
            }
            let pass = schedule.is_due(self.mostly_dead().len(), Instant::now());
            let reclaimed = self.reclaim_all(Punch::Large, pass);
            schedule.note(pass, reclaimed.is_err(), Instant::now());
            if let Err(error) = reclaimed {
                tracing::warn!(%error, "could not give all disk space back; trying again later");
            }
        }
    }
}
