//! Reclaiming disk space: freed parts of segments are punched out (small ones later, `small_holes`), segments without live bytes are
//! removed, mostly dead ones are emptied (`evacuate`), and bases of removed files are given back (`bases`). A thread does it in the background (`run`), and also brings segments to
//! disk ahead of the flushes that will ask for it.
//!
//! Invariants: the batch that freed the bytes is on disk before their space goes (else a power loss would bring the records
//! back without the bytes); one thread reclaims at a time; a failure does not stop the rest; while work is left the thread tries
//! again on a timer, without being woken.
mod bases;
mod evacuate;
mod queue;
mod recode;
mod schedule;
mod small_holes;

use crate::buffer_pool::BufferPool;
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
use small_holes::is_short;
pub use small_holes::{LARGE_HOLE, MOST_SMALL_HOLES, PunchScope, SmallHoles, whole_pages};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// From this many freed bytes on they are reclaimed at once. Fewer wait for `GATHER_DELAY`, so that one sync serves many frees.
const RECLAIM_AT_ONCE_BYTES: u64 = 16 << 20;
const GATHER_DELAY: Duration = Duration::from_millis(500);
/// How long a write that finds the disk full waits for another thread that reclaims. Threads of a mount that wait here answer nobody.
const MOST_WAIT: Duration = Duration::from_millis(500);

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
    /// Set by a failed write.
    pub poison: Arc<Poison>,
    /// Buffers for bytes of containers.
    pub buffers: BufferPool,
    /// Wakes writers that wait for space.
    pub space_freed: Arc<SpaceSignal>,
    /// Bytes that no span names any more.
    pub queue: ReclaimQueue,
    /// What is not punched yet. Held by whoever reclaims.
    pub reclaiming: Mutex<SmallHoles>,
    /// How many these are.
    pub small: AtomicUsize,
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

    /// Whether there is something to punch or to remove now.
    fn has_garbage(&self) -> bool {
        self.queue.len() > 0
            || !self.segments.sealed(|u| u.live == 0).is_empty()
            || self.needs_small_holes()
            || self.containers.bases.has_work()
    }

    /// Reclaims what is free; with `evacuate`, also empties mostly dead segments. One caller at a time.
    ///
    /// # Errors
    /// The first failure of disk or store; everything else was done. The rest is retried later or at the next start.
    pub fn reclaim_all(&self, punch: PunchScope<'_>, evacuate: bool) -> Result<()> {
        let mut small = self.reclaiming.lock();
        let mut failure = self.reclaim(&mut small, punch).failure;
        if evacuate {
            let targets = |dead: Vec<u32>| dead.into_iter().collect::<BTreeSet<u32>>();
            let candidates = targets(self.mostly_dead());
            if !candidates.is_empty() {
                // Of some it may be enough.
                failure = failure.or(self
                    .reclaim(&mut small, PunchScope::Of(&candidates))
                    .failure);
            }
            let targets = targets(self.mostly_dead());
            if !targets.is_empty() {
                failure = failure.or(self.evacuate(&targets).err());
                failure = failure.or(self.reclaim(&mut small, punch).failure);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// The disk is full, and a caller that holds no lock of this store is to write: whether reclaiming might have helped.
    pub fn reclaim_for_write(&self) -> bool {
        let seen = self.space_freed.epoch();
        let small = self.reclaiming.try_lock_for(MOST_WAIT);
        if small.is_some()
            && let Err(error) = self.release_idle_holds()
        {
            tracing::warn!(%error, "could not release holds of removed files");
        }
        let reclaimed = small.is_some_and(|mut small| self.reclaim_for_space(&mut small));
        // Also by another thread.
        reclaimed || self.space_freed.epoch() != seen
    }

    /// The same for a caller that holds locks: does not wait for another thread that reclaims.
    pub fn reclaim_for_write_now(&self) -> bool {
        let small = self.reclaiming.try_lock();
        small.is_some_and(|mut small| self.reclaim_for_space(&mut small))
    }

    fn reclaim_for_space(&self, small: &mut SmallHoles) -> bool {
        let reclaimed = self.reclaim(small, PunchScope::All);
        if let Some(error) = reclaimed.failure {
            tracing::warn!(%error, "could not give all disk space back");
        }
        reclaimed.any
    }

    /// Removes dead segments and punches freed ranges.
    fn reclaim(&self, small: &mut SmallHoles, punch: PunchScope<'_>) -> ReclaimRound {
        let mut reclaimed = ReclaimRound::default();
        let mut ranges = self.queue.take();
        let empty: BTreeSet<u32> = self.segments.sealed(|u| u.live == 0).into_iter().collect();
        // Joined with those that were kept, a small one may be large.
        ranges.append(&mut small.take());
        ranges.retain(|range| !empty.contains(&range.segment));
        ranges.sort_unstable();
        ranges.dedup_by(|next, last| {
            let joins = last.segment == next.segment && last.end >= next.start;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        ranges.retain(|range| self.segments.usage(range.segment).is_some());
        let ranges = small.keep(ranges, punch);
        self.small.store(small.len(), Relaxed);
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
        let mut left = Vec::new();
        for range in ranges {
            let pages = whole_pages(&range);
            let punched = pages.map_or(Ok(()), |pages| {
                let len = pages.end - pages.start;
                self.segments.punch(pages.segment, pages.start, len)
            });
            if !reclaimed.note(punched) {
                left.push(range);
            }
        }
        self.queue.put_back(left);
        if reclaimed.any {
            self.space_freed.notify();
        }
        reclaimed
    }

    /// Whether small parts wait for a disk that is short of space, as this one is now.
    fn needs_small_holes(&self) -> bool {
        self.small.load(Relaxed) > 0 && self.segments.disk().is_ok_and(is_short)
    }

    fn sync_ahead(&self) {
        // Without a descriptor, the flush that needs it syncs later. Any other failure has poisoned the log store.
        let _ = self.segments.sync_ahead();
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
        loop {
            let is_left = self.has_garbage() || self.small.load(Relaxed) > 0;
            let has_bases = self.containers.bases.has_work();
            let wait = schedule.wait(self.mostly_dead().len(), is_left, has_bases);
            if !self.queue.wait(wait) {
                return;
            }
            self.sync_ahead();
            if !self.has_garbage() && !schedule.is_due(self.mostly_dead().len(), Instant::now()) {
                continue;
            }
            if self.queue.fresh_bytes() < RECLAIM_AT_ONCE_BYTES && !self.gather() {
                return;
            }
            let pass = schedule.is_due(self.mostly_dead().len(), Instant::now());
            let punch = match self.needs_small_holes() {
                true => PunchScope::All,
                false => PunchScope::Large,
            };
            if schedule.may_give_back_bases(Instant::now()) {
                let given_back = self.give_back_bases();
                schedule.note_bases(given_back.is_err(), Instant::now());
                if let Err(error) = given_back {
                    tracing::warn!(%error, "could not give back what removed files were a base for; trying again later");
                }
            }
            let reclaimed = self.reclaim_all(punch, pass);
            schedule.note(pass, reclaimed.is_err(), Instant::now());
            if let Err(error) = reclaimed {
                tracing::warn!(%error, "could not give all disk space back; trying again later");
            }
        }
    }
}
