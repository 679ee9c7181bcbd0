//! Cuts ranges out of one segment by finding their ends in its pattern. The cost does not depend on the number of elements.
//!
//! A byte of a segment is hidden if a hole is over it, or an extent of the index, or a later segment. Holes and extents
//! are ranges: they are taken out of the ranges to cut before anything is searched. If the bytes under holes add up to the
//! segment's `hidden` count, holes alone hide it (the usual case). Where a later segment may lie over this one, the answer
//! is `None`.
use super::index_overlay::{IndexOverlay, ReadPage};
use super::segment::StoredSegment;
use super::table::PatternTable;
use crate::Result;
use forebay_data::ranges::{merge, without};
use std::ops::Range;

/// Steps for one segment that goes down, or to and fro. With more it is as quick to look at elements.
const MAX_CUT_STEPS: u64 = 1 << 16;

/// The log bytes that count of segment `at` in these ranges (sorted, apart); `None`: elements must be looked at. Steps are added to `steps`.
pub(super) fn cut_out(
    table: &PatternTable,
    at: usize,
    ranges: &[Range<u64>],
    over: &ReadPage<'_>,
    steps: &mut u64,
) -> Result<Option<Vec<Range<u64>>>> {
    let stored = &table.segments[at];
    let within: Vec<Range<u64>> = ranges.iter().map(|r| clip(r, stored.bounds)).collect();
    let mut search = CutSearch { stored, taken: 0 };
    let found = search.visible(table, at, &within, over);
    *steps += search.taken;
    found
}

struct CutSearch<'a> {
    stored: &'a StoredSegment,
    /// Steps.
    taken: u64,
}

impl CutSearch<'_> {
    fn visible(
        &mut self,
        table: &PatternTable,
        at: usize,
        within: &[Range<u64>],
        over: &ReadPage<'_>,
    ) -> Result<Option<Vec<Range<u64>>>> {
        let stored = self.stored;
        if stored.hidden == 0 {
            return Ok(self.runs(within));
        }
        let holes = self.holes(table);
        let Some(under) = self.runs(&holes) else {
            return Ok(None);
        };
        let clear = without(within, &holes);
        let under: u64 = under.iter().map(|r| r.end - r.start).sum();
        if under < stored.hidden {
            // Something else is over it.
            let later = table.segments[at..]
                .iter()
                .filter(|p| p.id.seq > stored.id.seq);
            let (Some(first), Some(last)) = (clear.first(), clear.last()) else {
                return Ok(Some(Vec::new()));
            };
            let hull = first.start..last.end;
            let mut near = later.filter(|p| p.overlaps(&hull));
            if near.any(|p| !p.segment.surely_disjoint(&stored.segment)) {
                return Ok(None);
            }
            let mut over = IndexOverlay::new(over, hull);
            let mut runs = Vec::new();
            for range in clear {
                let mut at = range.start;
                while at < range.end {
                    let (extents, until) = over.at(at)?;
                    let own = at..until.min(range.end);
                    let out = extents.iter().map(|e| e.offset..e.end());
                    let rest = without(std::slice::from_ref(&own), &out.collect::<Vec<_>>());
                    match self.runs(&rest) {
                        Some(some) => runs.extend(some),
                        None => return Ok(None),
                    }
                    at = own.end;
                }
            }
            return Ok(Some(runs));
        }
        Ok(self.runs(&clear))
    }

    /// The holes that take bytes of the segment, sorted and apart.
    fn holes(&mut self, table: &PatternTable) -> Vec<Range<u64>> {
        let (mut at, end) = self.stored.bounds;
        let mut found = Vec::new();
        while at < end {
            let (cut, until) = table.flat().at(at);
            if cut.is_some_and(|seq| seq >= self.stored.id.seq) {
                found.push(at..until.min(end));
            }
            at = until;
        }
        merge(found)
    }

    /// The segment's log bytes in sorted ranges that are apart; `None`: too many steps.
    fn runs(&mut self, ranges: &[Range<u64>]) -> Option<Vec<Range<u64>>> {
        let pattern = &self.stored.segment.pattern;
        let mut runs = Vec::new();
        for range in ranges {
            match self.stored.increasing {
                true => {
                    self.taken += 1;
                    runs.extend(pattern.within(range));
                }
                false => {
                    let before = MAX_CUT_STEPS.saturating_sub(self.taken);
                    let mut left = before;
                    let found = pattern.gather(range, &mut left);
                    self.taken += before - left;
                    runs.extend(found?);
                }
            }
        }
        Some(runs)
    }
}

fn clip(range: &Range<u64>, (lo, hi): (u64, u64)) -> Range<u64> {
    range.start.max(lo)..range.end.min(hi)
}
