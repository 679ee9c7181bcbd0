//! Merging the segments of many logs to global patterns.
//!
//! Terms are grouped by shape and sorted by start. Where their starts are steps in steps (ranks in a row, rows of ranks), one
//! global pattern takes all; else neighbours join as long as one fits beside the other in the strides of the shape. Nothing is
//! lost: what finds no partner stays in its segment. Whose bytes a slot has, where, and of which commit stands in columns, so
//! logs may be any, appear twice, and have headers of any length.

use crate::column::Column;
use crate::global::{Global, Places};
use crate::lattice::Lattice;
use crate::shape::{Arena, Kind, Shape};
use crate::stack::Term;
use crate::{Folder, Pattern, Segment, Source};
use std::collections::HashMap;

/// Fewer slots are no global pattern.
const LEAST: usize = 2;
/// The same for single extents, which take few bytes anyway.
const LEAST_LEAVES: usize = 4;

/// A term and whose it is.
#[derive(Debug, Clone, Copy)]
struct Slot {
    term: Term,
    source: Source,
    sequence: u64,
    /// Its segment, and its place there.
    home: (usize, usize),
}

/// Joins what can be joined. Together, the global patterns and the segments returned hold exactly what the segments held.
pub fn merge(segments: Vec<Segment>) -> (Vec<Global>, Vec<Segment>) {
    let mut arena = Arena::default();
    let groups = groups(&segments, &mut arena);
    let mut taken: Vec<Vec<bool>> = segments
        .iter()
        .map(|s| vec![false; s.pattern.terms()])
        .collect();
    let mut globals = Vec::new();
    for ((shape, limit), mut slots) in groups {
        let least = match shape.kind() {
            Kind::Leaf(_) => LEAST_LEAVES,
            Kind::Loop(_) => LEAST,
        };
        let Some(lattice) = Lattice::new(&arena, shape).filter(|_| slots.len() >= least) else {
            continue;
        };
        slots.sort_by_key(|s| (s.term.start, s.home));
        let mut keep = |slots: &[Slot], places: Places| {
            let Some(global) = global(&arena, shape, limit, slots, places) else {
                return false;
            };
            globals.push(global);
            for slot in slots {
                taken[slot.home.0][slot.home.1] = true;
            }
            true
        };
        if let Some(places) = even(&slots)
            && keep(&slots, places)
        {
            continue;
        }
        for part in clusters(&lattice, &slots) {
            if part.len() >= least {
                let first = part[0].term.start;
                let starts: Vec<u64> = part.iter().map(|s| s.term.start - first).collect();
                let places = even(part).unwrap_or(Places::Table(starts.into()));
                keep(part, places);
            }
        }
    }
    globals.sort_by_key(|g| (g.bounds(), g.newest));
    (globals, left(segments, &taken))
}

type Groups = Vec<((Shape, Option<u64>), Vec<Slot>)>;

/// The terms by shape and limit, in the order in which shapes first come.
fn groups(segments: &[Segment], arena: &mut Arena) -> Groups {
    let mut groups: Groups = Vec::new();
    let mut places: HashMap<(Shape, Option<u64>), usize> = HashMap::new();
    for (i, segment) in segments.iter().enumerate() {
        let mut seen = HashMap::new();
        for (j, term) in segment.pattern.terms.iter().enumerate() {
            let shape = arena.copy(&segment.pattern.arena, term.shape, &mut seen);
            let key = (shape, segment.limit);
            let place = *places.entry(key).or_insert_with(|| {
                groups.push((key, Vec::new()));
                groups.len() - 1
            });
            groups[place].1.push(Slot {
                term: Term { shape, ..*term },
                source: segment.source,
                sequence: segment.last,
                home: (i, j),
            });
        }
    }
    groups
}

/// Steps in steps from start to start, if there is nothing else: found by folding.
fn even(slots: &[Slot]) -> Option<Places> {
    let first = slots.first()?.term.start;
    let mut folder = Folder::new();
    for slot in slots {
        folder.push(slot.term.start - first, 0).ok()?;
    }
    let [pattern] = &folder.finish()[..] else {
        return None;
    };
    let [term] = pattern.terms[..] else {
        return None;
    };
    let mut dims = Vec::new();
    let mut shape = term.shape;
    while let Kind::Loop(id) = shape.kind() {
        let l = pattern.arena.get(id);
        let [item] = pattern.arena.body(l) else {
            return None;
        };
        if l.stride <= 0 || !l.elements.is_multiple_of(l.per) {
            return None;
        }
        dims.push((l.stride as u64, l.elements / l.per));
        shape = item.shape;
    }
    Some(Places::Even(dims))
}

/// Slots in the order of starts, cut into parts that lie beside each other somewhere in the shape's strides.
fn clusters<'a>(lattice: &Lattice, slots: &'a [Slot]) -> Vec<&'a [Slot]> {
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

fn global(
    arena: &Arena,
    shape: Shape,
    limit: Option<u64>,
    slots: &[Slot],
    places: Places,
) -> Option<Global> {
    let column = |of: fn(&Slot) -> u64| Column::new(slots.iter().map(of).collect());
    let columns = [
        column(|s| s.source.member.into()),
        column(|s| s.source.log),
        column(|s| s.term.addr),
        column(|s| s.sequence),
    ];
    Global::new(
        arena,
        shape,
        slots.first()?.term.start,
        places,
        columns,
        limit,
    )
}

/// The segments without what was taken.
fn left(segments: Vec<Segment>, taken: &[Vec<bool>]) -> Vec<Segment> {
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
