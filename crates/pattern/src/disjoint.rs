//! A fast, conservative test whether two patterns share a byte, without enumerating their elements.
//!
//! Terms are compared in the order of their lowest bytes, each with those of the other side that are still open there: as
//! [paths](crate::path), which a [search](crate::path_search) through their strides tells apart. So are ranks that interleave, tiles, blocks of
//! a cube, and what lies beside what was merged already.
//!
//! # Invariants
//! 1. The answer is never true when a byte is in both. It may be false when none is.
//! 2. The cost is bounded by [`MAX_SHAPES`] and [`MOST_STEPS`], however many elements there are.

use crate::global::{Axis, GlobalPattern};
use crate::path::{LazyPaths, Path, paths};
use crate::path_search::PathSearch;
use crate::segment::Segment;
use crate::shape::{Arena, Shape};
use crate::stack::Term;

/// Terms or slots of one side that lie in the bounds of the other, at most.
const MAX_SHAPES: usize = 1 << 13;
/// Paths, and steps of searches through pairs of them, at most.
pub(crate) const MOST_STEPS: usize = 1 << 15;

impl Segment {
    /// Whether it is certain that no byte is in both. From bounds and strides, so `false` says only that one may be; bytes
    /// from a limit on count as not there where bounds show it.
    pub fn surely_disjoint(&self, other: &Segment) -> bool {
        let within = parts_bounds(other.pattern.bounds(), other.limit);
        let Some(own) = self.parts(within) else {
            return false;
        };
        let within = parts_bounds(self.pattern.bounds(), self.limit);
        other.parts(within).is_some_and(|other| apart(own, other))
    }

    /// The terms that reach into `within`; `None` if they are too many.
    fn parts(&self, within: (u64, u64)) -> Option<Vec<PlacedShape<'_>>> {
        let all = self.pattern.terms.iter().map(|term| {
            let (lo, hi) = parts_bounds(self.pattern.term_bounds(term), self.limit);
            PlacedShape::new(&self.pattern.arena, term, (lo, hi))
        });
        some(all.filter(|p| p.reaches(within)))
    }
}

impl GlobalPattern {
    /// Whether it is certain that no byte is in both. From bounds and strides, so `false` says only that one may be.
    pub fn surely_disjoint(&self, other: &Segment) -> bool {
        let within = parts_bounds(other.pattern.bounds(), other.limit);
        let Some(own) = self.parts(within) else {
            return false;
        };
        other
            .parts(self.bounds())
            .is_some_and(|other| apart(own, other))
    }

    /// All slots as one part, or, if they are in a table, those that reach into `within`.
    fn parts(&self, within: (u64, u64)) -> Option<Vec<PlacedShape<'_>>> {
        let (lo, hi) = self.bounds();
        let part = |lo: u64, hi: u64, start: u64, slots| PlacedShape {
            lo,
            hi,
            arena: &self.arena,
            shape: self.shape,
            start,
            slots,
            paths: LazyPaths::default(),
        };
        let table = self.axes.iter().find_map(|a| match a {
            Axis::Table(starts) => Some(starts),
            _ => None,
        });
        let Some(starts) = table else {
            let slots = self.axes.iter().filter_map(|a| match a {
                Axis::Slots { stride, count, .. } => Some((*stride, *count)),
                _ => None,
            });
            let all = part(lo, hi, self.start, slots.collect());
            return Some(Vec::from_iter(all.reaches(within).then_some(all)));
        };
        let shape = self.arena.bounds(self.shape);
        let each = starts.iter().map(|&at| {
            let start = self.start.wrapping_add(at);
            let end = |rel: i64| start.wrapping_add(rel as u64);
            let (lo, hi) = parts_bounds((end(shape.0), end(shape.1)), self.limit);
            part(lo, hi, start, Vec::new())
        });
        some(each.filter(|p| p.reaches(within)))
    }
}

fn parts_bounds((lo, hi): (u64, u64), limit: Option<u64>) -> (u64, u64) {
    let limit = limit.unwrap_or(u64::MAX);
    (lo.min(limit), hi.min(limit))
}

/// All of `parts`, if they are not too many.
fn some<'a>(parts: impl Iterator<Item = PlacedShape<'a>>) -> Option<Vec<PlacedShape<'a>>> {
    let found: Vec<PlacedShape<'a>> = parts.take(MAX_SHAPES + 1).collect();
    (found.len() <= MAX_SHAPES).then_some(found)
}

/// A shape, or one at every slot.
struct PlacedShape<'a> {
    lo: u64,
    hi: u64,
    arena: &'a Arena,
    shape: Shape,
    start: u64,
    /// Stride and count of the slots' steps.
    slots: Vec<(u64, u64)>,
    paths: LazyPaths,
}

impl<'a> PlacedShape<'a> {
    /// A term of these bounds.
    fn new(arena: &'a Arena, term: &Term, (lo, hi): (u64, u64)) -> PlacedShape<'a> {
        PlacedShape {
            lo,
            hi,
            arena,
            shape: term.shape,
            start: term.start,
            slots: Vec::new(),
            paths: LazyPaths::default(),
        }
    }

    fn reaches(&self, within: (u64, u64)) -> bool {
        self.lo < within.1 && within.0 < self.hi
    }

    fn paths(&self, left: &mut usize) -> Option<&[Path]> {
        let make = || paths(self.arena, self.shape, self.start, self.slots.clone());
        self.paths.get(left, make)
    }

    fn without(&self, other: &PlacedShape<'_>, search: &mut PathSearch) -> bool {
        let left = &mut search.left;
        match (self.paths(left), other.paths(left)) {
            (Some(own), Some(other)) => search.pairs(own, other),
            _ => false,
        }
    }
}

/// Whether no part of one side meets one of the other.
fn apart(mut own: Vec<PlacedShape<'_>>, mut other: Vec<PlacedShape<'_>>) -> bool {
    own.sort_by_key(|p| p.lo);
    other.sort_by_key(|p| p.lo);
    let mut search = PathSearch::new(MOST_STEPS);
    let (mut open_own, mut open_other) = (Vec::new(), Vec::new());
    let (mut own, mut other) = (own.iter().peekable(), other.iter().peekable());
    // Parts of both in the order of their starts; each is compared with those of the other side that are still open there.
    loop {
        let mine = match (own.peek(), other.peek()) {
            (Some(a), Some(b)) => a.lo <= b.lo,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return true,
        };
        let (next, here, there) = match mine {
            true => (own.next(), &mut open_own, &mut open_other),
            false => (other.next(), &mut open_other, &mut open_own),
        };
        let Some(part) = next else {
            return true;
        };
        there.retain(|p: &&PlacedShape<'_>| p.hi > part.lo);
        if !there.iter().all(|p| part.without(p, &mut search)) {
            return false;
        }
        here.push(part);
    }
}
