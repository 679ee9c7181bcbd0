//! Finds the live bytes of stored patterns that a change displaces (overwrites or removes), each exactly once.
//!
//! The ways to find them, the cheapest first:
//! 1. Nothing is displaced, which is usual: bounds and strides show it without a look at elements.
//! 2. The change covers a segment wholly, by a range or by a pattern in the same places. The segment's log ranges are
//!    freed as they are. Some of their bytes may have been freed before; freeing twice does no harm.
//! 3. A range cuts a part out of a segment. A search finds where the part begins and ends (`cut_out`), after holes and extents
//!    that lie over the segment are taken out of the range.
//! 4. Patterns overlap in any other way: their elements are compared one by one.
use super::cut_out::cut_out;
use super::index_overlay::{IndexOverlay, ReadPage};
use super::segment::StoredSegment;
use super::table::{PatternTable, visible};
use crate::Result;
use crate::log_ranges::LogRanges;
use forebay_data::ranges::merge;
use forebay_pattern::{LogSource, PlacedExtent};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// New patterns of no more elements are asked what they cover.
const MAX_PROBED_ELEMENTS: u64 = 64;

/// A change of a file with patterns. Segments share no byte with each other, nor with puts; they lie over cuts.
pub(super) struct IncomingChange<'a> {
    /// What puts and cuts change: sorted, apart from each other.
    pub ranges: &'a [Range<u64>],
    pub segments: &'a [StoredSegment],
    /// All log addresses that the change names.
    pub kept: &'a LogRanges,
}

/// What a change displaces.
#[derive(Debug, Default)]
pub(super) struct OverwrittenRanges {
    /// Bytes by the place of their segment in the table.
    pub by_segment: BTreeMap<usize, u64>,
    /// What can be freed.
    pub freed: LogRanges,
    /// Steps of searches, and pieces that were looked at.
    pub steps: u64,
}

impl OverwrittenRanges {
    pub(super) fn bytes(&self) -> u64 {
        self.by_segment.values().sum()
    }

    fn add(&mut self, at: usize, source: LogSource, runs: &[Range<u64>]) {
        let bytes: u64 = runs.iter().map(|r| r.end - r.start).sum();
        if bytes > 0 {
            *self.by_segment.entry(at).or_default() += bytes;
        }
        let runs = runs.iter().cloned();
        runs.for_each(|run| self.freed.add(source, run));
    }
}

/// What `new` displaces in `table`; `index_overlay` tells the extents of the index in a range, as they were before.
pub(super) fn overwritten(
    table: &PatternTable,
    new: &IncomingChange<'_>,
    over: &ReadPage<'_>,
) -> Result<OverwrittenRanges> {
    let meets: Vec<SegmentOverlap> = (table.segments.iter().enumerate())
        .map(|(at, stored)| SegmentOverlap::new(at, stored, new))
        .filter(|m| !m.ranges.is_empty() || !m.by_segments.is_empty())
        .collect();
    let mut displaced = OverwrittenRanges::default();
    let covering = covering(new);
    let (mut partly, mut counted) = (Vec::new(), BTreeSet::new());
    for m in &meets {
        let stored = &table.segments[m.at];
        let apart = new.kept.is_disjoint(stored.segment.source, &stored.runs);
        let whole = inside(&covering, stored.bounds) || inside(&m.ranges, stored.bounds);
        let runs = match whole && apart {
            true => Some(stored.runs.to_vec()),
            false if !m.more => cut_out(table, m.at, &m.ranges, over, &mut displaced.steps)?,
            false => None,
        };
        let Some(runs) = runs else {
            partly.push(m);
            continue;
        };
        counted.insert(m.at);
        displaced.add(m.at, stored.segment.source, &runs);
        if whole && apart {
            displaced
                .by_segment
                .insert(m.at, stored.bytes - stored.hidden);
        }
    }
    if !partly.is_empty() {
        // No other segment has a byte where the change has one.
        let map = table.map_over(meets.iter().map(|m| m.at));
        let mut count = |piece: PlacedExtent| {
            displaced.steps += 1;
            let at = table.segment_at(piece.source, piece.sequence, piece.addr);
            let Some(at) = at.filter(|at| !counted.contains(at)) else {
                return;
            };
            let run = piece.addr..piece.addr + piece.len;
            displaced.add(at, piece.source, std::slice::from_ref(&run));
        };
        for range in targets(table, new, &partly) {
            let mut over = IndexOverlay::new(over, range.hull());
            let mut each = |piece: PlacedExtent| over.uncovered(piece, &mut count);
            range.each(new.ranges, &mut |r| visible(&map, table, r, &mut each));
            over.done()?;
        }
    }
    displaced.freed = displaced.freed.sorted().without(new.kept);
    Ok(displaced)
}

/// Those of sorted ranges that lie in the bounds of a segment.
fn ranges_within_bounds<'a>(
    stored: &StoredSegment,
    ranges: &'a [Range<u64>],
) -> impl Iterator<Item = &'a Range<u64>> {
    let (lo, hi) = stored.bounds;
    let first = ranges.partition_point(|r| r.end <= lo);
    ranges[first..].iter().take_while(move |r| r.start < hi)
}

/// How a stored segment and a change meet.
struct SegmentOverlap {
    at: usize,
    /// Here the change has every byte that the segment has; sorted, apart.
    ranges: Vec<Range<u64>>,
    /// IncomingChange segments that may have bytes of it.
    by_segments: Vec<usize>,
    /// The change may have others of its bytes than those in `ranges`.
    more: bool,
}

impl SegmentOverlap {
    fn new(at: usize, stored: &StoredSegment, new: &IncomingChange<'_>) -> SegmentOverlap {
        let mut ranges: Vec<Range<u64>> =
            ranges_within_bounds(stored, new.ranges).cloned().collect();
        let (mut by_segments, mut more) = (Vec::new(), false);
        for (i, other) in new.segments.iter().enumerate() {
            let (lo, hi) = other.bounds;
            if !stored.overlaps(&(lo..hi)) {
                continue;
            }
            match other.segment.pattern.covers(&stored.segment.pattern) {
                Some(range) if range.is_empty() => continue,
                Some(range) => ranges.push(range),
                None if other.segment.surely_disjoint(&stored.segment) => continue,
                None => more = true,
            }
            by_segments.push(i);
        }
        SegmentOverlap {
            at,
            ranges: merge(ranges),
            by_segments,
            more,
        }
    }
}

/// Where to look for displaced bytes.
enum ScanTarget<'a> {
    Range(Range<u64>),
    Elements(&'a StoredSegment, Range<u64>),
}

impl ScanTarget<'_> {
    fn hull(&self) -> Range<u64> {
        match self {
            ScanTarget::Range(range) => range.clone(),
            ScanTarget::Elements(stored, within) => {
                within.start.max(stored.bounds.0)..within.end.min(stored.bounds.1)
            }
        }
    }

    /// What is in `seen` is left out of elements: a cut of the same commit may lie under them.
    fn each(&self, seen: &[Range<u64>], each: &mut impl FnMut(Range<u64>)) {
        let (stored, within) = match self {
            ScanTarget::Range(range) => return each(range.clone()),
            ScanTarget::Elements(stored, within) => (stored, within),
        };
        for e in stored.segment.pattern.iter() {
            let (mut at, end) = (e.offset.max(within.start), e.end().min(within.end));
            let first = seen.partition_point(|s| s.end <= at);
            for s in seen[first..].iter().take_while(|s| s.start < end) {
                if at < s.start {
                    each(at..s.start);
                }
                at = s.end;
            }
            if at < end {
                each(at..end);
            }
        }
    }
}

fn targets<'a>(
    table: &PatternTable,
    new: &IncomingChange<'a>,
    partly: &[&SegmentOverlap],
) -> Vec<ScanTarget<'a>> {
    let bounds = |m: &&&SegmentOverlap| table.segments[m.at].bounds;
    let hit = partly.iter().filter(|m| {
        ranges_within_bounds(&table.segments[m.at], new.ranges)
            .next()
            .is_some()
    });
    let spans = merge(hit.map(|m| bounds(&m)).map(|(lo, hi)| lo..hi).collect());
    let mut out = Vec::new();
    for range in new.ranges {
        let first = spans.partition_point(|s| s.end <= range.start);
        let met = spans[first..].iter().take_while(|s| s.start < range.end);
        out.extend(met.map(|s| ScanTarget::Range(s.start.max(range.start)..s.end.min(range.end))));
    }
    for (i, stored) in new.segments.iter().enumerate() {
        let hit = partly.iter().filter(|m| m.by_segments.contains(&i));
        let hull = hit
            .map(|m| bounds(&m))
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        out.extend(hull.map(|(lo, hi)| ScanTarget::Elements(stored, lo..hi)));
    }
    out
}

/// Ranges of which the change has every byte, sorted and joined.
fn covering(new: &IncomingChange<'_>) -> Vec<Range<u64>> {
    let few = new
        .segments
        .iter()
        .filter(|p| p.segment.pattern.elements() <= MAX_PROBED_ELEMENTS);
    let elements = few.flat_map(|p| p.segment.pattern.iter().map(|e| e.offset..e.end()));
    merge(new.ranges.iter().cloned().chain(elements).collect())
}

fn inside(ranges: &[Range<u64>], (lo, hi): (u64, u64)) -> bool {
    let at = ranges.partition_point(|r| r.end < hi);
    ranges.get(at).is_some_and(|r| r.start <= lo)
}

#[cfg(test)]
mod tests;
