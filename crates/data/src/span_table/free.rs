//! The batch that frees bytes: it cuts span records and lowers the counts of the chunks that they name. From then on the addresses
//! answer `Gone`. The disk space follows once the batch is on disk (`reclaim`).
//!
//! A piece of raw bytes stays on disk while one of its bytes is live, because it is verified as a whole. When a free splits a span,
//! both parts may hold the same piece.
//!
//! A batch changes a bounded number of runs, so a large file is freed in several. If records contradict each other, the spans of a
//! batch are freed one at a time, and those that cannot be freed are left.
use super::{SpanTable, unneeded};
use crate::keyspaces::{LOGS, SPANS};
use crate::ranges::subtract;
use crate::segment::SegmentRange;
use crate::span::{self, PIECE_BYTES, Span};
use forebay_proto::{Error, LogId, Result};
use forebay_storage::Batch;
use std::ops::Range;

/// Runs whose spans one batch changes, about; a raw span counts as one.
const STEP_RUNS: usize = 4096;

/// What a free does to one span.
struct SpanCut {
    old: Span,
    left: Vec<Span>,
}

/// Progress of a free: a log, by its index among those to be freed, and an address in it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct FreePosition {
    log: usize,
    addr: u64,
}

impl FreePosition {
    /// The end of all logs.
    const END: FreePosition = FreePosition {
        log: usize::MAX,
        addr: u64::MAX,
    };
}

/// What one batch frees.
#[derive(Default)]
struct FreeStep {
    cuts: Vec<SpanCut>,
    /// Runs of the spans that are cut.
    runs: usize,
    /// Parts of segments that no raw span needs after it.
    dead: Vec<SegmentRange>,
    /// A record that could not be read.
    failure: Option<Error>,
    /// Where the next step begins, if there is one.
    next: Option<FreePosition>,
}

impl SpanTable {
    /// Cuts ranges (merged, per log) out of the recorded spans, and removes the records of `sealed` logs. `dead` gets the bytes of
    /// segments that no span needs any more.
    ///
    /// # Errors
    /// As the store: then some are freed, and no log is sealed. `Corrupt` where records are damaged: all others are freed.
    pub fn free(
        &self,
        logs: &[(LogId, Vec<Range<u64>>)],
        sealed: &[LogId],
        dead: &mut Vec<SegmentRange>,
    ) -> Result<()> {
        let mut next = Some(FreePosition::default());
        // Up to there one span at a time: one of them cannot be freed.
        let mut single_until = FreePosition::default();
        let mut failure: Option<Error> = None;
        while let Some(from) = next {
            let _locks = (self.locks).lock(logs.iter().skip(from.log).map(|(log, _)| *log));
            let is_single = from < single_until;
            let most = if is_single { 1 } else { STEP_RUNS };
            let mut step = self.cut_step(logs, from, most)?;
            failure = failure.or(step.failure.take());
            let after = step.next;
            let seals = match after.is_none() && failure.is_none() {
                true => sealed,
                false => &[],
            };
            match self.apply_step(step, seals) {
                Ok(freed) => dead.extend(freed),
                Err(e) if !e.is_damage() => return Err(e),
                Err(_) if !is_single => {
                    single_until = after.unwrap_or(FreePosition::END);
                    continue;
                }
                Err(e) => failure = failure.or(Some(e)),
            }
            next = after;
        }
        failure.map_or(Ok(()), Err)
    }

    /// Plans the next step, which cuts about `most` runs.
    fn cut_step(
        &self,
        logs: &[(LogId, Vec<Range<u64>>)],
        from: FreePosition,
        most: usize,
    ) -> Result<FreeStep> {
        let mut step = FreeStep::default();
        for (i, (log, ranges)) in logs.iter().enumerate().skip(from.log) {
            let start = if i == from.log { from.addr } else { 0 };
            let first = step.cuts.len();
            match self.cut(*log, ranges, start, most, &mut step) {
                Ok(None) => {}
                Ok(Some(addr)) => {
                    step.next = Some(FreePosition { log: i, addr });
                    break;
                }
                Err(e) if e.is_damage() => {
                    step.cuts.truncate(first);
                    step.failure.get_or_insert(e);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(step)
    }

    /// Adds to a step the cuts of one log's spans from an address on, and the segment ranges that no raw span needs any more. `Some`:
    /// where it stopped because the step is full.
    fn cut(
        &self,
        log: LogId,
        ranges: &[Range<u64>],
        start: u64,
        most: usize,
        step: &mut FreeStep,
    ) -> Result<Option<u64>> {
        let first = step.cuts.len();
        let mut kept: Vec<Span> = Vec::new();
        let (mut seen, mut stop) = (None, None);
        let round_up = |addr: u64| addr.saturating_add(PIECE_BYTES - 1) / PIECE_BYTES * PIECE_BYTES;
        'ranges: for range in ranges.iter().filter(|range| range.end > start) {
            // Rounded out, so that a neighbour that shares a piece is seen too.
            let near = range.start.max(start) / PIECE_BYTES * PIECE_BYTES..round_up(range.end);
            for span in span::overlapping(&self.store, log, near) {
                let span = span?;
                if seen.is_some_and(|end| span.live.end <= end) {
                    continue;
                }
                seen = Some(span.live.end);
                if stop.is_some_and(|stop| span.live.start >= round_up(stop)) {
                    break 'ranges;
                }
                let live = subtract(span.live.clone(), ranges);
                let is_other = span.live.end <= start || stop.is_some();
                if is_other || live.len() == 1 && live[0] == span.live {
                    kept.push(span);
                    continue;
                }
                let left: Vec<Span> = live.into_iter().map(|l| span.part(l)).collect();
                kept.extend(left.iter().cloned());
                step.runs += span.runs().map_or(1, |runs| runs.iter().count());
                if step.runs >= most {
                    stop = seen;
                }
                step.cuts.push(SpanCut { old: span, left });
            }
        }
        let old = step.cuts[first..].iter().filter_map(|cut| cut.old.raw());
        step.dead
            .extend(old.flat_map(|raw| unneeded(raw, kept.iter())));
        Ok(stop)
    }

    /// Carries a step out, in one batch with the removal of the records of `sealed` logs. Answers the bytes of segments that nothing
    /// needs any more. Their logs are locked.
    fn apply_step(&self, step: FreeStep, sealed: &[LogId]) -> Result<Vec<SegmentRange>> {
        let FreeStep { cuts, mut dead, .. } = step;
        // Smaller records for larger ones: on a full disk too.
        let mut batch = Batch::reclaiming();
        for cut in &cuts {
            // A part that keeps the end of the old span replaces its record.
            if cut
                .left
                .last()
                .is_none_or(|l| l.live.end != cut.old.live.end)
            {
                batch.delete(SPANS, cut.old.key().to_vec());
            }
            cut.left.iter().for_each(|part| part.put(&mut batch));
        }
        for log in sealed {
            batch.delete(LOGS, log.to_be_bytes().to_vec());
        }
        let named = cuts.iter().filter_map(|cut| cut.old.runs());
        let ids = named.flat_map(|runs| runs.iter().filter_map(|run| run.in_container()));
        let mut containers = self.containers.lock(ids.map(|(id, _)| id));
        for cut in &cuts {
            // What stays is counted first: no chunk seems gone that is not.
            for left in cut.left.iter().filter_map(Span::runs) {
                if !containers.increment_counts(left)? {
                    return Err(Error::Corrupt(format!(
                        "log {} names chunks before {} that are gone; run `forebay fsck`",
                        cut.old.log, cut.old.live.end
                    )));
                }
            }
            if let Some(runs) = cut.old.runs() {
                containers.decrement_counts(runs)?;
            }
        }
        containers.put(&mut batch)?;
        self.apply(batch)?;
        dead.extend(containers.applied());
        for cut in &cuts {
            self.cache.forget(cut.old.log, cut.old.live.end);
            if let Some(raw) = cut.old.raw() {
                let counted = cut.left.iter().map(Span::stored_len).sum();
                self.segments
                    .recount(raw.segment, raw.stored_len(), counted);
                self.live
                    .release(cut.old.live_len() - cut.left.iter().map(Span::live_len).sum::<u64>());
            }
            self.uncount_mapped(std::slice::from_ref(&cut.old));
            self.count_mapped(&cut.left);
        }
        Ok(dead)
    }
}
