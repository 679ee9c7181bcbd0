//! Which bytes of stored patterns a change displaces: exactly those that counted before, each once.
//!
//! The usual change displaces nothing, and strides tell so without a look at elements. What it covers wholly goes wholly: its log
//! ranges are given back as they are, with bytes in them that were given back before, which does no harm. So goes what a pattern in the
//! same places covers. A range is cut out of a pattern by a search for its ends (`cut_out`): holes and extents that lie over
//! the pattern are left out of the range first. Elements are looked at only where patterns lie over each other
//! otherwise.
use super::cut_out::cut_out;
use super::log_ranges::LogRanges;
use super::over::{Over, Read};
use super::table::{Part, Table, visible};
use crate::Result;
use forebay_index::Extent;
use forebay_pattern::{Placed, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// New patterns of no more elements are asked what they cover.
const FEW: u64 = 64;

/// A change of a file with patterns. Parts share no byte with each other, nor with puts; they lie over cuts.
pub(super) struct New<'a> {
    /// What puts and cuts change: sorted, apart from each other.
    pub ranges: &'a [Range<u64>],
    pub parts: &'a [Part],
    /// All log addresses that the change names.
    pub kept: &'a LogRanges,
}

/// What a change displaces.
#[derive(Debug, Default)]
pub(super) struct Displaced {
    /// Bytes by the place of their part in the table.
    pub by_part: BTreeMap<usize, u64>,
    /// What can be given back.
    pub freed: LogRanges,
    /// Steps of searches, and pieces that were looked at.
    pub steps: u64,
}

impl Displaced {
    pub(super) fn bytes(&self) -> u64 {
        self.by_part.values().sum()
    }

    fn add(&mut self, at: usize, source: Source, runs: &[Range<u64>]) {
        let bytes: u64 = runs.iter().map(|r| r.end - r.start).sum();
        if bytes > 0 {
            *self.by_part.entry(at).or_default() += bytes;
        }
        let runs = runs.iter().cloned();
        runs.for_each(|run| self.freed.add(source, run));
    }
}

/// What `new` displaces in `table`; `over` tells the extents of the index in a range, as they were before.
pub(super) fn displaced(table: &Table, new: &New<'_>, over: &Read<'_>) -> Result<Displaced> {
    let meets: Vec<Meets> = (table.parts.iter().enumerate())
        .map(|(at, part)| Meets::new(at, part, new))
        .filter(|m| !m.ranges.is_empty() || !m.by_parts.is_empty())
        .collect();
    let mut displaced = Displaced::default();
    let covering = covering(new);
    let (mut partly, mut counted) = (Vec::new(), BTreeSet::new());
    for m in &meets {
        let part = &table.parts[m.at];
        let apart = new.kept.apart(part.segment.source, &part.runs);
        let whole = inside(&covering, part.bounds) || inside(&m.ranges, part.bounds);
        let runs = match whole && apart {
            true => Some(part.runs.to_vec()),
            false if !m.more => cut_out(table, m.at, &m.ranges, over, &mut displaced.steps)?,
            false => None,
        };
        let Some(runs) = runs else {
            partly.push(m);
            continue;
        };
        counted.insert(m.at);
        displaced.add(m.at, part.segment.source, &runs);
        if whole && apart {
            displaced.by_part.insert(m.at, part.bytes - part.hidden);
        }
    }
    if !partly.is_empty() {
        // No other part has a byte where the change has one.
        let map = table.map_over(meets.iter().map(|m| m.at));
        let mut count = |piece: Placed| {
            displaced.steps += 1;
            let at = table.part_of(piece.source, piece.sequence, piece.addr);
            let Some(at) = at.filter(|at| !counted.contains(at)) else {
                return;
            };
            let run = piece.addr..piece.addr + piece.len;
            displaced.add(at, piece.source, std::slice::from_ref(&run));
        };
        for range in targets(table, new, &partly) {
            let mut over = Over::new(over, range.hull());
            let mut each = |piece: Placed| over.uncovered(piece, &mut count);
            range.each(new.ranges, &mut |r| visible(&map, table, r, &mut each));
            over.done()?;
        }
    }
    displaced.freed = displaced.freed.sorted().without(new.kept);
    Ok(displaced)
}

/// Those of sorted ranges that lie in the bounds of a part.
fn met<'a>(part: &Part, ranges: &'a [Range<u64>]) -> impl Iterator<Item = &'a Range<u64>> {
    let (lo, hi) = part.bounds;
    let first = ranges.partition_point(|r| r.end <= lo);
    ranges[first..].iter().take_while(move |r| r.start < hi)
}

/// How a stored part and a change meet.
struct Meets {
    at: usize,
    /// Here the change has every byte that the part has; sorted, apart.
    ranges: Vec<Range<u64>>,
    /// New parts that may have bytes of it.
    by_parts: Vec<usize>,
    /// The change may have others of its bytes than those in `ranges`.
    more: bool,
}

impl Meets {
    fn new(at: usize, part: &Part, new: &New<'_>) -> Meets {
        let mut ranges: Vec<Range<u64>> = met(part, new.ranges).cloned().collect();
        let (mut by_parts, mut more) = (Vec::new(), false);
        for (i, other) in new.parts.iter().enumerate() {
            let (lo, hi) = other.bounds;
            if !part.overlaps(&(lo..hi)) {
                continue;
            }
            match other.segment.pattern.covers(&part.segment.pattern) {
                Some(range) if range.is_empty() => continue,
                Some(range) => ranges.push(range),
                None if other.segment.surely_disjoint(&part.segment) => continue,
                None => more = true,
            }
            by_parts.push(i);
        }
        Meets {
            at,
            ranges: joined(ranges),
            by_parts,
            more,
        }
    }
}

/// Where to look for displaced bytes.
enum Target<'a> {
    Range(Range<u64>),
    Elements(&'a Part, Range<u64>),
}

impl Target<'_> {
    fn hull(&self) -> Range<u64> {
        match self {
            Target::Range(range) => range.clone(),
            Target::Elements(part, within) => {
                within.start.max(part.bounds.0)..within.end.min(part.bounds.1)
            }
        }
    }

    /// What is in `seen` is left out of elements: a cut of the same commit may lie under them.
    fn each(&self, seen: &[Range<u64>], each: &mut impl FnMut(Range<u64>)) {
        let (part, within) = match self {
            Target::Range(range) => return each(range.clone()),
            Target::Elements(part, within) => (part, within),
        };
        for e in part.segment.pattern.iter() {
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

fn targets<'a>(table: &Table, new: &New<'a>, partly: &[&Meets]) -> Vec<Target<'a>> {
    let bounds = |m: &&&Meets| table.parts[m.at].bounds;
    let hit = partly
        .iter()
        .filter(|m| met(&table.parts[m.at], new.ranges).next().is_some());
    let spans = joined(hit.map(|m| bounds(&m)).map(|(lo, hi)| lo..hi).collect());
    let mut out = Vec::new();
    for range in new.ranges {
        let first = spans.partition_point(|s| s.end <= range.start);
        let met = spans[first..].iter().take_while(|s| s.start < range.end);
        out.extend(met.map(|s| Target::Range(s.start.max(range.start)..s.end.min(range.end))));
    }
    for (i, part) in new.parts.iter().enumerate() {
        let hit = partly.iter().filter(|m| m.by_parts.contains(&i));
        let hull = hit
            .map(|m| bounds(&m))
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        out.extend(hull.map(|(lo, hi)| Target::Elements(part, lo..hi)));
    }
    out
}

/// Ranges of which the change has every byte, sorted and joined.
fn covering(new: &New<'_>) -> Vec<Range<u64>> {
    let few = new
        .parts
        .iter()
        .filter(|p| p.segment.pattern.elements() <= FEW);
    let elements = few.flat_map(|p| p.segment.pattern.iter().map(|e| e.offset..e.end()));
    joined(new.ranges.iter().cloned().chain(elements).collect())
}

fn inside(ranges: &[Range<u64>], (lo, hi): (u64, u64)) -> bool {
    let at = ranges.partition_point(|r| r.end < hi);
    ranges.get(at).is_some_and(|r| r.start <= lo)
}

/// Sorted, and joined where they touch.
pub(super) fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|r| !r.is_empty());
    ranges.sort_unstable_by_key(|r| r.start);
    ranges.dedup_by(|next, last| {
        let joined = next.start <= last.end;
        if joined {
            last.end = last.end.max(next.end);
        }
        joined
    });
    ranges
}

/// Calls `each` with what of `piece` lies under none of these extents (in order, apart).
pub(super) fn uncovered(over: &[Extent], piece: Placed, each: &mut impl FnMut(Placed)) {
    let end = piece.offset + piece.len;
    let mut at = piece.offset;
    let mut part = |from: u64, to: u64| {
        if from < to {
            each(Placed {
                offset: from,
                len: to - from,
                addr: piece.addr + (from - piece.offset),
                ..piece
            });
        }
    };
    let first = over.partition_point(|e| e.end() <= at);
    for e in over[first..].iter().take_while(|e| e.offset < end) {
        part(at, e.offset.min(end));
        at = at.max(e.end());
    }
    part(at, end);
}

#[cfg(test)]
mod tests;
