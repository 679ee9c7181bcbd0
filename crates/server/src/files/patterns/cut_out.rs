//! Ranges cut out of one pattern, by its ends: how many elements it has does not count.
//!
//! A byte of a part does not count if a hole is over it, an extent of the index, or a later part. The first two are ranges, and go out
//! of what is cut before anything is looked for. So they do where the part was cut before: the hidden bytes of most parts are
//! those under holes, which a sum shows. Where a later part may lie over this one, nothing is said here.
use super::displace::joined;
use super::over::{Over, Read};
use super::table::{Part, Table};
use crate::Result;
use std::ops::Range;

/// Steps for one part that goes down, or to and fro. With more it is as quick to look at elements.
const STEPS: u64 = 1 << 16;

/// The log bytes that count of part `at` in these ranges (sorted, apart); `None`: elements must be looked at. Steps are added to `steps`.
pub(super) fn cut_out(
    table: &Table,
    at: usize,
    ranges: &[Range<u64>],
    over: &Read<'_>,
    steps: &mut u64,
) -> Result<Option<Vec<Range<u64>>>> {
    let part = &table.parts[at];
    let within: Vec<Range<u64>> = ranges.iter().map(|r| clip(r, part.bounds)).collect();
    let mut search = Search { part, taken: 0 };
    let found = search.visible(table, at, &within, over);
    *steps += search.taken;
    found
}

struct Search<'a> {
    part: &'a Part,
    /// Steps.
    taken: u64,
}

impl Search<'_> {
    fn visible(
        &mut self,
        table: &Table,
        at: usize,
        within: &[Range<u64>],
        over: &Read<'_>,
    ) -> Result<Option<Vec<Range<u64>>>> {
        let part = self.part;
        if part.hidden == 0 {
            return Ok(self.runs(within));
        }
        let holes = self.holes(table);
        let Some(under) = self.runs(&holes) else {
            return Ok(None);
        };
        let clear = minus(within, &holes);
        let under: u64 = under.iter().map(|r| r.end - r.start).sum();
        if under < part.hidden {
            // Something else is over it.
            let later = table.parts[at..].iter().filter(|p| p.id.seq > part.id.seq);
            let (Some(first), Some(last)) = (clear.first(), clear.last()) else {
                return Ok(Some(Vec::new()));
            };
            let hull = first.start..last.end;
            let mut near = later.filter(|p| p.overlaps(&hull));
            if near.any(|p| !p.segment.surely_disjoint(&part.segment)) {
                return Ok(None);
            }
            let mut over = Over::new(over, hull);
            let mut runs = Vec::new();
            for range in clear {
                let mut at = range.start;
                while at < range.end {
                    let (extents, until) = over.at(at)?;
                    let own = at..until.min(range.end);
                    let out = extents.iter().map(|e| e.offset..e.end());
                    let rest = minus(std::slice::from_ref(&own), &out.collect::<Vec<_>>());
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

    /// The holes that take bytes of the part, sorted and apart.
    fn holes(&mut self, table: &Table) -> Vec<Range<u64>> {
        let (mut at, end) = self.part.bounds;
        let mut found = Vec::new();
        while at < end {
            let (cut, until) = table.flat().at(at);
            if cut.is_some_and(|seq| seq >= self.part.id.seq) {
                found.push(at..until.min(end));
            }
            at = until;
        }
        joined(found)
    }

    /// The part's log bytes in sorted ranges that are apart; `None`: too many steps.
    fn runs(&mut self, ranges: &[Range<u64>]) -> Option<Vec<Range<u64>>> {
        let pattern = &self.part.segment.pattern;
        let mut runs = Vec::new();
        for range in ranges {
            match self.part.increasing {
                true => {
                    self.taken += 1;
                    runs.extend(pattern.within(range));
                }
                false => {
                    let before = STEPS.saturating_sub(self.taken);
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

/// What is left of `ranges` without `out`; both sorted and apart.
fn minus(ranges: &[Range<u64>], out: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for range in ranges {
        let mut at = range.start;
        let first = out.partition_point(|o| o.end <= at);
        for o in out[first..].iter().take_while(|o| o.start < range.end) {
            if at < o.start {
                left.push(at..o.start);
            }
            at = at.max(o.end);
        }
        if at < range.end {
            left.push(at..range.end);
        }
    }
    left
}
