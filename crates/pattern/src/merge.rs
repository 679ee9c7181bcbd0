//! Merges the segments of many logs into global patterns. (Words: `lib.rs`.)
//!
//! 1. Terms are grouped by shape and sorted by start.
//! 2. If the starts of a group form nested strides (ranks in a row, rows of ranks), one global pattern takes the whole group.
//! 3. Otherwise neighbours in the group are joined while each fits beside the one before within the strides of the shape.
//!
//! A term without a partner stays in its segment, so nothing is lost. Each slot has its own log, address and sequence (in columns).
//! So any logs may be merged, one log may come twice, and headers may have any length.
//!
//! A loop over several items (the cells of one rank in a cube) seldom fits as a whole beside the loops of other ranks. So merging
//! is also tried with such terms split into parts (`loop_distribution`). The way that needs the least memory is kept.

use crate::global::{GlobalPattern, SlotStarts};
use crate::lattice::Lattice;
use crate::loop_distribution::{distribute, has_loop_over_several_items};
use crate::shape::{Arena, MAX_DEPTH, Shape, ShapeKind};
use crate::slot_writers::SlotWriters;
use crate::stack::Term;
use crate::{Folder, LogSource, Pattern, Segment};
use std::collections::HashMap;

/// Slots of a global pattern, at least.
const MIN_SLOTS: usize = 2;
/// The same for single extents, which take few bytes anyway.
const MIN_LEAF_SLOTS: usize = 4;
/// Single extents at uneven distances share a table of starts only if it has at least one in this many of all single extents: such a
/// table may span the whole file, and each lookup searches every table that spans its offset.
const LEAVES_PER_TABLE: usize = 16;
/// Terms are not split into parts if they, or their parts, are more than this.
const MAX_TERMS: usize = 1 << 16;
/// Up to this size of a map, terms are split only if they have loops over several items.
const SMALL_MAP_BYTES: usize = 8192;
/// Estimated memory of a reader for a term with loops that was not merged, bytes.
const TERM_COST: usize = 1024;

/// A term, or a part of one, with its origin.
#[derive(Debug, Clone, Copy)]
struct MergeSlot {
    term: Term,
    source: LogSource,
    sequence: u64,
    /// Index of its segment, and of its term there.
    home: (usize, usize),
    /// It is a part of a split term: all parts must end up in global patterns.
    part: bool,
}

/// Merges segments. The returned global patterns and segments together hold exactly the elements of the given segments.
pub fn merge(segments: Vec<Segment>) -> (Vec<GlobalPattern>, Vec<Segment>) {
    let mut best = Merger::new(&segments, None);
    let terms: usize = segments.iter().map(|s| s.pattern.terms()).sum();
    let any = |of: &dyn Fn(&Arena, Shape) -> bool| {
        let term = |s: &Segment| {
            s.pattern
                .terms
                .iter()
                .any(|t| of(&s.pattern.arena, t.shape))
        };
        segments.iter().any(term)
    };
    if terms <= MAX_TERMS {
        let (branching, mut taken_apart) = (any(&has_loop_over_several_items), false);
        for keep in [MAX_DEPTH, 2, 1] {
            if (taken_apart || !branching) && best.cost(&segments) <= SMALL_MAP_BYTES {
                break;
            }
            if !branching && !any(&|arena, shape| arena.depth(shape) > keep) {
                continue;
            }
            let apart = Merger::new(&segments, Some(keep));
            if apart.complete && apart.cost(&segments) < best.cost(&segments) {
                (best, taken_apart) = (apart, true);
            }
        }
    }
    let Merger {
        mut globals, taken, ..
    } = best;
    globals.sort_by_key(|g| (g.bounds(), g.writers.newest));
    (globals, without_taken_terms(segments, &taken))
}

/// One way to merge.
struct Merger {
    arena: Arena,
    globals: Vec<GlobalPattern>,
    /// For each term of each segment, whether it is in a global pattern.
    taken: Vec<Vec<bool>>,
    /// All parts of split terms are in global patterns.
    complete: bool,
}

impl Merger {
    fn new(segments: &[Segment], apart: Option<u8>) -> Merger {
        let mut merger = Merger {
            arena: Arena::default(),
            globals: Vec::new(),
            taken: segments
                .iter()
                .map(|s| vec![false; s.pattern.terms()])
                .collect(),
            complete: true,
        };
        let Some(groups) = merger.groups(segments, apart) else {
            merger.complete = false;
            return merger;
        };
        let leaf = |shape: &Shape| matches!(shape.kind(), ShapeKind::Leaf(_));
        let leaves = groups.iter().filter(|((shape, _), _)| leaf(shape));
        let leaves = leaves.map(|(_, slots)| slots.len()).sum::<usize>();
        for ((shape, limit), mut slots) in groups {
            slots.sort_by_key(|s| (s.term.start, s.home));
            merger.join(shape, limit, &slots, leaves);
        }
        merger
    }

    /// Joins slots of one shape; `leaves`: single extents of all lengths.
    fn join(&mut self, shape: Shape, limit: Option<u64>, slots: &[MergeSlot], leaves: usize) {
        let (least, least_in_table) = match shape.kind() {
            ShapeKind::Leaf(_) => (
                MIN_LEAF_SLOTS,
                MIN_LEAF_SLOTS.max(leaves / LEAVES_PER_TABLE),
            ),
            ShapeKind::Loop(_) => (MIN_SLOTS, MIN_SLOTS),
        };
        let lattice = Lattice::new(&self.arena, shape);
        let parts = match &lattice {
            None => Vec::new(),
            Some(_)
                if as_nested_strides(slots)
                    .is_some_and(|p| slots.len() >= least && self.keep(shape, limit, slots, p)) =>
            {
                return;
            }
            Some(lattice) => clusters(lattice, slots),
        };
        self.complete &= lattice.is_some() || slots.iter().all(|s| !s.part);
        for part in parts {
            let parts = part.iter().any(|s| s.part);
            if part.len() >= least || parts {
                let first = part[0].term.start;
                let starts: Vec<u64> = part.iter().map(|s| s.term.start - first).collect();
                let table = parts || part.len() >= least_in_table;
                let table = || table.then(|| SlotStarts::Table(starts.into()));
                let Some(places) = as_nested_strides(part).or_else(table) else {
                    continue;
                };
                let kept = self.keep(shape, limit, part, places);
                self.complete &= kept || part.iter().all(|s| !s.part);
            }
        }
    }

    fn keep(
        &mut self,
        shape: Shape,
        limit: Option<u64>,
        slots: &[MergeSlot],
        places: SlotStarts,
    ) -> bool {
        let turns = match &places {
            SlotStarts::Even(dims) => dims
                .iter()
                .rev()
                .scan(1, |n, d| {
                    *n *= d.1;
                    Some(*n)
                })
                .collect(),
            SlotStarts::Table(_) => Vec::new(),
        };
        let owned: Vec<_> = slots
            .iter()
            .map(|s| (s.source, s.sequence, s.term.addr))
            .collect();
        let Some(writers) = SlotWriters::new(&owned, &turns) else {
            return false;
        };
        let start = slots.first().map_or(0, |s| s.term.start);
        let Some(global) = GlobalPattern::new(&self.arena, shape, start, places, writers, limit)
        else {
            return false;
        };
        self.globals.push(global);
        for slot in slots {
            self.taken[slot.home.0][slot.home.1] = true;
        }
        true
    }

    /// The terms, or their parts, by shape and limit, in the order in which the shapes first occur. `None`: too many parts.
    fn groups(&mut self, segments: &[Segment], apart: Option<u8>) -> Option<TermGroups> {
        let mut groups: TermGroups = Vec::new();
        let mut count = 0;
        let mut places: HashMap<(Shape, Option<u64>), usize> = HashMap::new();
        for (i, segment) in segments.iter().enumerate() {
            let from = &segment.pattern.arena;
            let mut seen = HashMap::new();
            let mut add = |term: Term, j: usize, part: bool| {
                let key = (term.shape, segment.limit);
                let place = *places.entry(key).or_insert_with(|| {
                    groups.push((key, Vec::new()));
                    groups.len() - 1
                });
                groups[place].1.push(MergeSlot {
                    term,
                    source: segment.source,
                    sequence: segment.last,
                    home: (i, j),
                    part,
                });
            };
            for (j, term) in segment.pattern.terms.iter().enumerate() {
                let pieces = apart.filter(|keep| {
                    has_loop_over_several_items(from, term.shape) || from.depth(term.shape) > *keep
                });
                let pieces =
                    pieces.and_then(|keep| distribute(from, &mut self.arena, term.shape, keep));
                count += pieces.as_ref().map_or(1, Vec::len);
                if apart.is_some() && count > MAX_TERMS {
                    return None;
                }
                for piece in pieces.iter().flatten() {
                    let term = Term {
                        start: term.start.wrapping_add(piece.rel as u64),
                        addr: term.addr + piece.addr,
                        shape: piece.shape,
                    };
                    add(term, j, true);
                }
                if pieces.is_none() {
                    let shape = self.arena.copy(from, term.shape, &mut seen);
                    add(Term { shape, ..*term }, j, false);
                }
            }
        }
        Some(groups)
    }

    /// Estimated memory of a reader, bytes.
    fn cost(&self, segments: &[Segment]) -> usize {
        let left = segments.iter().zip(&self.taken).map(|(segment, taken)| {
            let terms = segment.pattern.terms.iter().zip(taken);
            let looped = |t: &Term| matches!(t.shape.kind(), ShapeKind::Loop(_));
            terms
                .filter(|(_, taken)| !**taken)
                .map(|(t, _)| if looped(t) { TERM_COST } else { 64 })
                .sum::<usize>()
        });
        left.sum::<usize>()
            + self
                .globals
                .iter()
                .map(GlobalPattern::memory)
                .sum::<usize>()
    }
}

type TermGroups = Vec<((Shape, Option<u64>), Vec<MergeSlot>)>;

/// The nested strides from start to start, found by folding. `None`: the starts are not one nest of strides.
fn as_nested_strides(slots: &[MergeSlot]) -> Option<SlotStarts> {
    let first = slots.first()?.term.start;
    let mut folder = Folder::new();
    for slot in slots {
        folder.push(slot.term.start - first, 0).ok()?;
    }
    let [pattern] = &folder.finish()[..] else {
        return None;
    };
    let mut dims = Vec::new();
    let mut shape = row(pattern.terms.iter().map(|t| (t.start, t.shape)), &mut dims)?;
    while let ShapeKind::Loop(id) = shape.kind() {
        let l = pattern.arena.get(id);
        if l.steps.stride <= 0 || !l.steps.elements.is_multiple_of(l.per) {
            return None;
        }
        dims.push((l.steps.stride as u64, l.steps.elements / l.per));
        let body = pattern.arena.body(l).iter();
        shape = row(body.map(|item| (item.rel as u64, item.shape)), &mut dims)?;
    }
    Some(SlotStarts::Even(dims))
}

/// The common shape, if there is one and the starts have equal distances. Appends distance and number to `dims`.
fn row(of: impl Iterator<Item = (u64, Shape)>, dims: &mut Vec<(u64, u64)>) -> Option<Shape> {
    let of: Vec<(u64, Shape)> = of.collect();
    let (first, shape) = *of.first()?;
    if let Some((second, _)) = of.get(1) {
        let stride = second.checked_sub(first).filter(|s| *s > 0)?;
        let even = |w: &[(u64, Shape)]| w[1].0.wrapping_sub(w[0].0) == stride && w[1].1 == shape;
        if !of.windows(2).all(even) {
            return None;
        }
        dims.push((stride, of.len() as u64));
    }
    Some(shape)
}

/// Splits slots, sorted by start, into groups whose members fit beside each other within the strides of the shape.
fn clusters<'a>(lattice: &Lattice, slots: &'a [MergeSlot]) -> Vec<&'a [MergeSlot]> {
    let mut parts = Vec::new();
    let mut rest = slots;
    while let Some(first) = rest.first() {
        let start = first.term.start;
        let mut len = 1;
        let gap = rest.get(1).map_or(0, |second| second.term.start - start);
        // The outermost place where the second fits beside the first.
        let fits = |at: usize| lattice.extent(at).is_some_and(|e| e <= gap && e > 0);
        if let Some(at) = (0..=lattice.dims.len()).find(|&at| fits(at)) {
            let extent = lattice.extent(at).unwrap_or(u64::MAX);
            let room = at
                .checked_sub(1)
                .map_or(u64::MAX, |outer| lattice.dims[outer].stride);
            while let (Some(before), Some(next)) = (rest.get(len - 1), rest.get(len)) {
                let (gap, span) = (next.term.start - before.term.start, next.term.start - start);
                if gap < extent || span.saturating_add(extent) > room {
                    break;
                }
                len += 1;
            }
        }
        let (part, others) = rest.split_at(len);
        parts.push(part);
        rest = others;
    }
    parts
}

/// The segments without the terms that were taken.
fn without_taken_terms(segments: Vec<Segment>, taken: &[Vec<bool>]) -> Vec<Segment> {
    let mut out = Vec::new();
    for (mut segment, taken) in segments.into_iter().zip(taken) {
        if taken.iter().any(|t| *t) {
            let terms = segment.pattern.terms.iter().zip(taken);
            let terms: Vec<Term> = terms.filter(|(_, t)| !**t).map(|(term, _)| *term).collect();
            segment.pattern = Pattern::new(&segment.pattern.arena, terms);
        }
        if segment.pattern.terms() > 0 {
            out.push(segment);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of one log: taken apart they are 64 parts.
    fn rows(log: u64) -> Segment {
        let mut folder = Folder::joining();
        for row in 0..64 {
            for k in 0..9 {
                folder
                    .push(row * 10_000_000 + log * 100 + k * 200_000, 100)
                    .expect("offsets ascend");
            }
        }
        let mut found = folder.finish();
        assert_eq!(found.len(), 1);
        Segment::new(LogSource { member: 0, log }, 1, found.remove(0))
    }

    #[test]
    fn more_parts_than_may_be_are_not_made() {
        let few: Vec<Segment> = (0..100).map(rows).collect();
        let apart = Merger::new(&few, Some(1));
        assert!(apart.complete && !apart.globals.is_empty());
        let many: Vec<Segment> = (0..MAX_TERMS as u64 / 64 + 1).map(rows).collect();
        assert!(Merger::new(&many, Some(1)).groups(&many, Some(1)).is_none());
        let apart = Merger::new(&many, Some(1));
        assert!(!apart.complete && apart.globals.is_empty());
        let (globals, left) = merge(many);
        assert_eq!((globals.len(), left.len()), (1, 0));
    }
}
