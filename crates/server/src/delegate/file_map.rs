//! The committed bytes of a file with patterns, as of one generation: fetched once, however many extents the patterns stand for.
//!
//! Three things together say where a byte is:
//! - the patterns' newest piece there,
//! - the holes that were cut into patterns: a hole hides bytes whose sequence is not newer than its own,
//! - the *stale* ranges, where there may be something newer than the patterns, so that the owner must be asked.
//!
//! Invariants: holes are flat (sorted, disjoint, each with the largest sequence that was cut there); stale ranges are sorted
//! and disjoint. Outside them the map says of every byte what it is. It never changes but for ranges that become stale.
use super::intervals::{ByteSource, Intervals, ReadPlan};
use forebay_pattern::{MapLookup, PatternMap, PlacedExtent, RangeValue as _};
use forebay_proto::files::PatternHole;
use std::ops::Range;
use std::sync::Arc;

/// More stale ranges than this are joined where they are nearest to each other.
const MAX_STALE_RANGES: usize = 64;
/// Pieces that are looked up one by one; the following ones are then scanned in order.
const LOOKUPS_BEFORE_SCAN: usize = 2;

/// Stretches joined at a time.
const MAX_JOINED_STRETCHES: usize = 1024;

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub struct FileMap {
    patterns: Arc<MapPatterns>,
    stale_ranges: Vec<Range<u64>>,
}

#[derive(Debug, Default)]
struct MapPatterns {
    map: PatternMap,
    /// Start, end, sequence.
    holes: Vec<(u64, u64, u64)>,
}

impl FileMap {
    /// The map of what the owner answered.
    pub fn new(
        map: PatternMap,
        holes: &[PatternHole],
        stale_ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> FileMap {
        let holes = flat(holes);
        let mut map = FileMap {
            patterns: Arc::new(MapPatterns { map, holes }),
            stale_ranges: Vec::new(),
        };
        stale_ranges
            .into_iter()
            .for_each(|range| map.mark_stale(range));
        map
    }

    /// A map that says nothing.
    pub fn unknown() -> FileMap {
        FileMap::new(PatternMap::default(), &[], std::iter::once(0..u64::MAX))
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        let MapPatterns { map, holes } = &*self.patterns;
        let ranges = self.stale_ranges.capacity() * size_of::<Range<u64>>();
        map.memory() + holes.capacity() * size_of::<(u64, u64, u64)>() + ranges + size_of::<Self>()
    }

    /// Something newer than the map may be here.
    pub fn mark_stale(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let ranges = &mut self.stale_ranges;
        let first = ranges.partition_point(|r| r.end < range.start);
        let behind = ranges.partition_point(|r| r.start <= range.end);
        let mut whole = range;
        for r in &ranges[first..behind] {
            whole = whole.start.min(r.start)..whole.end.max(r.end);
        }
        ranges.splice(first..behind, [whole]);
        if ranges.len() > MAX_STALE_RANGES {
            let gap = |i: &usize| ranges[i + 1].start - ranges[*i].end;
            let nearest = (0..ranges.len() - 1).min_by_key(gap).unwrap_or_default();
            ranges[nearest].end = ranges[nearest + 1].end;
            ranges.remove(nearest + 1);
        }
    }

    /// The stale range that holds the byte at `at`, or else the next one.
    fn stale_range_from(&self, at: u64) -> Range<u64> {
        let i = self.stale_ranges.partition_point(|r| r.end <= at);
        self.stale_ranges
            .get(i)
            .cloned()
            .unwrap_or(u64::MAX..u64::MAX)
    }

    /// The stale range that holds the byte at `at`, if one does.
    pub fn stale_range_at(&self, at: u64) -> Option<Range<u64>> {
        Some(self.stale_range_from(at)).filter(|range| range.start <= at && at < range.end)
    }

    /// What layers above have planned, with what they do not know filled in: again `most` pieces at most (at least one).
    pub fn fill(&self, plan: ReadPlan, most: usize) -> ReadPlan {
        if plan.missing.is_empty() {
            return plan;
        }
        let mut filled = PlanFill {
            plan: ReadPlan {
                found: Vec::with_capacity(plan.found.len()),
                until: plan.until,
                ..ReadPlan::default()
            },
            most: most.max(1),
        };
        let mut found = plan.found.into_iter().peekable();
        for gap in plan.missing {
            while let Some((range, source)) = found.next_if(|p| p.0.start < gap.start) {
                if !filled.add(range, Some(source)) {
                    return filled.plan;
                }
            }
            let mut at = gap.start;
            while at < gap.end {
                let stale = self.stale_range_from(at);
                let (end, fits) = if stale.start <= at {
                    let end = stale.end.min(gap.end);
                    (end, filled.add(at..end, None))
                } else {
                    let end = stale.start.min(gap.end);
                    (end, self.patterns.fill(at..end, &mut filled))
                };
                if !fits {
                    return filled.plan;
                }
                at = end;
            }
        }
        for (range, source) in found {
            if !filled.add(range, Some(source)) {
                break;
            }
        }
        filled.plan
    }

    /// Where patterns and holes alone say that the byte at `at` is.
    pub fn in_patterns(&self, at: u64) -> ByteSource {
        self.patterns.segment(at).0
    }

    /// Whether the byte at `at` is a hole (`None`: the owner must be asked), and up to where that holds at least: past all pieces
    /// that patterns and holes tell of at once.
    pub fn hole_at(&self, at: u64) -> (Option<bool>, u64) {
        let stale = self.stale_range_from(at);
        if stale.start <= at {
            return (None, stale.end);
        }
        let (hole, mut end) = self.patterns.hole_at(at);
        for _ in 1..MAX_JOINED_STRETCHES {
            if end >= stale.start {
                break;
            }
            match self.patterns.hole_at(end) {
                (same, further) if same == hole => end = further,
                _ => break,
            }
        }
        (Some(hole), end.min(stale.start))
    }
}

/// A plan that is being made.
struct PlanFill {
    plan: ReadPlan,
    most: usize,
}

impl PlanFill {
    /// Pieces that fit in.
    fn room(&self) -> usize {
        let have = self.plan.found.len() + self.plan.missing.len();
        self.most.saturating_sub(have)
    }

    /// Adds what comes next. `false`: the plan is full and ends before it.
    fn add(&mut self, range: Range<u64>, source: Option<ByteSource>) -> bool {
        let ReadPlan {
            found,
            missing,
            until,
        } = &mut self.plan;
        match (source, found.last_mut(), missing.last_mut()) {
            (Some(source), Some((last, before)), _)
                if last.end == range.start && before.advance(last.end - last.start) == source =>
            {
                last.end = range.end;
                return true;
            }
            (None, _, Some(last)) if last.end == range.start => {
                last.end = range.end;
                return true;
            }
            _ => {}
        }
        if found.len() + missing.len() >= self.most {
            *until = range.start;
            return false;
        }
        match source {
            Some(source) => found.push((range, source)),
            None => missing.push(range),
        }
        true
    }
}

impl MapPatterns {
    /// Adds what is in `range`. `false`: the plan is full.
    fn fill(&self, range: Range<u64>, plan: &mut PlanFill) -> bool {
        let Range { start: mut at, end } = range;
        // A read of few pieces is quickest served by looking them up.
        let mut lookups = if self.holes.is_empty() {
            LOOKUPS_BEFORE_SCAN
        } else {
            usize::MAX
        };
        while at < end && lookups > 0 {
            lookups -= 1;
            let (source, until) = self.segment(at);
            let until = until.min(end);
            if !plan.add(at..until, Some(source)) {
                return false;
            }
            at = until;
        }
        let mut pieces = self.map.pieces(at..end);
        let mut some = Vec::new();
        while at < end {
            some.clear();
            let room = plan.room().clamp(1, 1024);
            let more = pieces.fill(room, &mut some);
            for piece in &some {
                if at < piece.offset && !plan.add(at..piece.offset, Some(ByteSource::Hole)) {
                    return false;
                }
                if !plan.add(piece.offset..piece.end(), Some(source(piece))) {
                    return false;
                }
                at = piece.end();
            }
            if !more {
                return at >= end || plan.add(at..end, Some(ByteSource::Hole));
            }
        }
        true
    }

    /// The sequence up to which bytes at `at` are cut away, and up to where that holds.
    fn cut(&self, at: u64) -> (Option<u64>, u64) {
        let i = self.holes.partition_point(|h| h.1 <= at);
        match self.holes.get(i) {
            Some(&(start, end, seq)) if start <= at => (Some(seq), end),
            Some(&(start, ..)) => (None, start),
            None => (None, u64::MAX),
        }
    }

    /// Whether there is a hole at `at`, and an offset after it up to where it is the same.
    fn hole_at(&self, at: u64) -> (bool, u64) {
        let (cut, until) = self.cut(at);
        let filled = match cut {
            None => self.map.filled(at),
            Some(_) => None,
        };
        if let Some(end) = filled {
            return (false, end.min(until));
        }
        let found = match cut {
            None => self.map.lookup(at),
            Some(seq) => self.map.newer(at, seq),
        };
        match found {
            MapLookup::Data(piece) => (false, piece.end().min(until)),
            MapLookup::Hole(end) => (true, end.max(at + 1).min(until)),
            MapLookup::End => (true, until),
        }
    }

    fn segment(&self, at: u64) -> (ByteSource, u64) {
        let (cut, until) = self.cut(at);
        match self.map.lookup(at) {
            MapLookup::Data(piece) if cut.is_none_or(|seq| piece.sequence > seq) => {
                (source(&piece), piece.end().min(until))
            }
            MapLookup::Data(piece) => (ByteSource::Hole, piece.end().min(until)),
            MapLookup::Hole(end) => (ByteSource::Hole, end.max(at + 1)),
            MapLookup::End => (ByteSource::Hole, u64::MAX),
        }
    }
}

fn source(piece: &PlacedExtent) -> ByteSource {
    ByteSource::log(piece.source.member, piece.source.log, piece.addr)
}

/// Where holes overlap, the largest sequence.
fn flat(holes: &[PatternHole]) -> Vec<(u64, u64, u64)> {
    let mut by_sequence: Vec<&PatternHole> = holes.iter().collect();
    by_sequence.sort_unstable_by_key(|hole| hole.seq);
    let mut laid = Intervals::default();
    for hole in by_sequence {
        // The log stands for the sequence; addresses go on with offsets, so that neighbours of one sequence join.
        let source = ByteSource::log(0, hole.seq, hole.start);
        laid.insert(hole.start..hole.end, source, |_, _| ());
    }
    let sequence = |(range, source): (Range<u64>, ByteSource)| match source {
        ByteSource::Log { log, .. } => Some((range.start, range.end, log)),
        ByteSource::Hole => None,
    };
    laid.iter().filter_map(sequence).collect()
}

#[cfg(test)]
mod tests;
