//! Validates a commit: no byte of the file may be in two of its elements. An owner must know so before it counts their bytes.
//!
//! ```text
//! each term     no byte twice: its strides nest, the largest first, each with room for all inside; else a search of its paths
//! each pair     no byte in both: a search through their strides (`path_search`), as far as a budget of steps reaches
//! what is left  elements of the terms for which neither is proven are sorted and compared, if they are not too many
//! ```
//!
//! # Invariants
//! 1. The answer is exact where there is one.
//! 2. The cost is bounded by the number of terms, the budget of steps and the number of elements that may be compared, however
//!    large the loop counts in a term are.

use crate::disjoint::MOST_STEPS;
use crate::lattice::Lattice;
use crate::path::PlacedTerm;
use crate::path_search::PathSearch;
use crate::pattern::element;
use crate::segment::Segment;
use crate::shape::{Arena, Shape, ShapeKind};
use crate::stack::Term;
use std::ops::Range;

/// Steps of searches for each term, beside those that there are for all.
const STEPS_PER_TERM: usize = 64;

/// Whether no byte of the file is in two elements of these segments or in one and a range, or in two ranges, and each element has a
/// byte. Limits of segments are not looked at. `None`: it takes a look at more than `most` elements to tell, or a range has 2^63
/// bytes.
pub fn all_disjoint(segments: &[Segment], ranges: &[Range<u64>], most: u64) -> Option<bool> {
    let plain = Arena::default();
    if segments.iter().any(|s| has_empty(&s.pattern.arena)) {
        return Some(false);
    }
    let mut all: Vec<PlacedTerm<'_>> = Vec::new();
    for segment in segments {
        all.extend(segment.pattern.terms.iter().map(|term| {
            let bounds = segment.pattern.term_bounds(term);
            PlacedTerm::new(&segment.pattern.arena, *term, bounds)
        }));
    }
    for range in ranges {
        let len = range.end.saturating_sub(range.start);
        if len >> 63 != 0 {
            return None;
        }
        let term = Term {
            start: range.start,
            addr: 0,
            shape: Shape::leaf(len),
        };
        all.push(PlacedTerm::new(&plain, term, (range.start, range.end)));
    }
    if all.iter().any(|p| p.lo >= p.hi) {
        return Some(false);
    }
    all.sort_by_key(|p| p.lo);
    let unproven = unproven(&all);
    let rest = all
        .iter()
        .zip(unproven)
        .filter_map(|(p, unproven)| unproven.then_some(p));
    elements_disjoint(rest, most)
}

impl PlacedTerm<'_> {
    /// Whether it surely has no byte twice.
    fn surely_once(&self, search: &mut PathSearch) -> bool {
        let shape = self.term.shape;
        if self.arena.increasing(shape) {
            return true;
        }
        match Lattice::new(self.arena, shape) {
            Some(lattice) if lattice.increasing => true,
            _ => match self.paths(&mut search.left) {
                Some(paths) => search.leaves_disjoint(paths),
                None => false,
            },
        }
    }
}

/// Which terms may have bytes that they or others have too. Sorted by their lowest bytes.
fn unproven(all: &[PlacedTerm<'_>]) -> Vec<bool> {
    let mut unproven = vec![false; all.len()];
    let mut search = PathSearch::new(MOST_STEPS + STEPS_PER_TERM * all.len());
    let mut open: Vec<usize> = Vec::new();
    for (at, next) in all.iter().enumerate() {
        unproven[at] |= !next.surely_once(&mut search);
        open.retain(|o| all[*o].hi > next.lo);
        for &before in &open {
            let known = unproven[at] && unproven[before];
            if search.left == 0 {
                break;
            }
            search.left -= 1;
            if !known && !search.terms_disjoint(next, &all[before]) {
                (unproven[at], unproven[before]) = (true, true);
            }
        }
        if search.left == 0 {
            // Nothing is proven of what is open here and of what follows.
            open.iter().for_each(|o| unproven[*o] = true);
            unproven[at..].fill(true);
            return unproven;
        }
        open.push(at);
    }
    unproven
}

/// The same of these terms, by comparing all of their elements.
fn elements_disjoint<'a>(
    terms: impl Iterator<Item = &'a PlacedTerm<'a>> + Clone,
    most: u64,
) -> Option<bool> {
    let mut count = 0u64;
    for p in terms.clone() {
        count = count.saturating_add(p.arena.elements(p.term.shape));
    }
    if count > most {
        return None;
    }
    let mut ranges = Vec::with_capacity(count as usize);
    for p in terms {
        let elements = 0..p.arena.elements(p.term.shape);
        ranges.extend(elements.map(|i| {
            let e = element(p.arena, &p.term, i);
            (e.offset, e.end())
        }));
    }
    ranges.sort_unstable();
    Some(ranges.windows(2).all(|w| w[0].1 <= w[1].0))
}

/// Whether a loop has an element without bytes. Terms show it by their bounds.
fn has_empty(arena: &Arena) -> bool {
    arena
        .items
        .iter()
        .any(|item| matches!(item.shape.kind(), ShapeKind::Leaf(0)))
}
