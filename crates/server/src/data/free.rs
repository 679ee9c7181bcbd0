//! Giving bytes back.
//!
//! Freeing changes span records in one batch; from then on the addresses answer `Gone`. The disk space follows later
//! (`clean`), when that batch is on disk. A piece stays on disk as long as one of its bytes is live, because the others
//! are needed to verify it; the parts that a split leaves may both hold the piece between them.
use super::{
    Inner, LogId, LogRange,
    spans::{self, PIECE, Span},
    tail::{merge, subtract},
};
use crate::{Result, keys};
use forebay_storage::Batch;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Range;

const STRIPES: usize = 64;
/// Ranges of one batch.
const RANGES: usize = 1024;

/// Serialises changes of the span records of a log.
pub struct SpanLocks([Mutex<()>; STRIPES]);

impl Default for SpanLocks {
    fn default() -> SpanLocks {
        SpanLocks([const { Mutex::new(()) }; STRIPES])
    }
}

impl SpanLocks {
    /// Locks these logs, in one order whatever the order given.
    pub fn lock(&self, logs: impl IntoIterator<Item = LogId>) -> Vec<MutexGuard<'_, ()>> {
        let mut stripes: Vec<usize> = logs.into_iter().map(|l| l as usize % STRIPES).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|s| self.0[s].lock()).collect()
    }
}

/// What a free does to one span.
struct Cut {
    old: Span,
    left: Vec<Span>,
}

impl Inner {
    pub(super) fn free(&self, ranges: &[LogRange]) -> Result<()> {
        for ranges in ranges.chunks(RANGES) {
            let mut logs: BTreeMap<LogId, Vec<Range<u64>>> = BTreeMap::new();
            for (log, range) in ranges {
                logs.entry(*log).or_default().push(range.clone());
            }
            let logs: Vec<_> = logs
                .into_iter()
                .map(|(log, ranges)| (log, merge(ranges)))
                .collect();
            for (log, ranges) in &logs {
                self.free_tail(*log, ranges);
            }
            self.free_spans(&logs, &[])?;
        }
        Ok(())
    }

    /// What is only in memory never gets a span.
    fn free_tail(&self, id: LogId, ranges: &[Range<u64>]) {
        let Some(log) = self.logs.find(id) else {
            return;
        };
        let mut state = log.state.lock();
        let freed: u64 = ranges.iter().map(|r| state.tail.free(r)).sum();
        self.live.give(freed);
    }

    /// Cuts the ranges (merged, per log) out of the recorded spans, and removes the records of `sealed` logs, in one batch.
    pub(super) fn free_spans(
        &self,
        logs: &[(LogId, Vec<Range<u64>>)],
        sealed: &[LogId],
    ) -> Result<()> {
        let locks = self.locks.lock(logs.iter().map(|(log, _)| *log));
        // Smaller records for larger ones: on a full disk too.
        let mut batch = Batch::reclaiming();
        let (mut cuts, mut dead) = (Vec::new(), Vec::new());
        for (log, ranges) in logs {
            self.cut(*log, ranges, &mut cuts, &mut dead)?;
        }
        for cut in &cuts {
            // A part that keeps the end of the old span replaces its record.
            if cut
                .left
                .last()
                .is_none_or(|l| l.live.end != cut.old.live.end)
            {
                batch.delete(keys::SPANS, cut.old.key().to_vec());
            }
            cut.left.iter().for_each(|part| part.put(&mut batch));
        }
        for log in sealed {
            batch.delete(keys::LOGS, log.to_be_bytes().to_vec());
        }
        self.apply_with_seals(batch)?;
        for cut in &cuts {
            self.cache.forget(cut.old.log, [cut.old.live.end]);
            let counted = cut.left.iter().map(Span::stored_len).sum();
            self.segments
                .recount(cut.old.segment, cut.old.stored_len(), counted);
            self.live
                .give(cut.old.live_len() - cut.left.iter().map(Span::live_len).sum::<u64>());
        }
        drop(locks);
        if !cuts.is_empty() {
            self.work.add(dead);
        }
        Ok(())
    }

    /// What freeing does to the spans of one log: the cuts, and the places in segments that no span needs any more.
    fn cut(
        &self,
        log: LogId,
        ranges: &[Range<u64>],
        cuts: &mut Vec<Cut>,
        dead: &mut Vec<Place>,
    ) -> Result<()> {
        let first = cuts.len();
        let mut kept: Vec<Span> = Vec::new();
        let mut seen: Option<u64> = None;
        for range in ranges {
            // Rounded out, so that a neighbour that shares a piece is seen too.
            let near =
                range.start / PIECE * PIECE..range.end.saturating_add(PIECE - 1) / PIECE * PIECE;
            for span in spans::overlapping(&self.store, log, near) {
                let span = span?;
                if seen.is_some_and(|end| span.live.end <= end) {
                    continue;
                }
                seen = Some(span.live.end);
                let live = subtract(span.live.clone(), ranges);
                if live.len() == 1 && live[0] == span.live {
                    kept.push(span);
                    continue;
                }
                let left: Vec<Span> = live.into_iter().map(|l| span.part(l)).collect();
                kept.extend(left.iter().cloned());
                cuts.push(Cut { old: span, left });
            }
        }
        for cut in &cuts[first..] {
            let old = &cut.old;
            let needed = kept.iter().filter(|k| k.segment == old.segment).map(|k| {
                let at = u64::from(k.offset);
                at..at + k.stored_len()
            });
            let at = u64::from(old.offset);
            for place in subtract(at..at + old.stored_len(), &merge(needed.collect())) {
                dead.push(Place {
                    segment: old.segment,
                    start: place.start,
                    end: place.end,
                });
            }
        }
        Ok(())
    }
}

/// Bytes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The segment.
    pub segment: u32,
    /// First byte.
    pub start: u64,
    /// After the last byte.
    pub end: u64,
}
