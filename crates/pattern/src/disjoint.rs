//! A fast, conservative test whether two patterns share a byte, without enumerating their elements.
//!
//! Terms are compared in the order of their lowest bytes, each with those of the other side that it overlaps by its bounds: a
//! [search](crate::path_search) through the strides of their [paths](crate::path) decides. So ranks that interleave, tiles, and
//! blocks of a cube are found to be disjoint.
//!
//! # Invariants
//! 1. The answer is never true when a byte is in both. It may be false when none is.
//! 2. The cost is bounded by [`MAX_TERMS`] and [`MOST_STEPS`], however many elements there are.

use crate::path::PlacedTerm;
use crate::path_search::PathSearch;
use crate::segment::Segment;

/// Terms of one side that lie in the bounds of the other, at most.
const MAX_TERMS: usize = 1 << 13;
/// Paths, and steps of searches through pairs of them, at most.
pub(crate) const MOST_STEPS: usize = 1 << 15;

impl Segment {
    /// Whether it is certain that no byte is in both. From bounds and strides, so `false` says only that one may be; bytes
    /// from a limit on count as not there where bounds show it.
    pub fn surely_disjoint(&self, other: &Segment) -> bool {
        let (Some(own), Some(others)) = (self.terms_near(other), other.terms_near(self)) else {
            return false;
        };
        let own = own.iter().map(|term| (0, term));
        let mut all: Vec<_> = own.chain(others.iter().map(|term| (1, term))).collect();
        all.sort_by_key(|(_, term)| term.lo);
        let mut search = PathSearch::new(MOST_STEPS);
        let mut open: [Vec<&PlacedTerm<'_>>; 2] = Default::default();
        all.into_iter().all(|(side, term)| {
            open[side].push(term);
            let there = &mut open[1 - side];
            there.retain(|other| other.hi > term.lo);
            there.iter().all(|other| search.terms_disjoint(term, other))
        })
    }

    /// The terms that reach into the bounds of another segment; `None` if they are too many.
    fn terms_near(&self, other: &Segment) -> Option<Vec<PlacedTerm<'_>>> {
        let (from, to) = other.before_limit(other.pattern.bounds());
        let all = self.pattern.terms.iter().map(|term| {
            let bounds = self.before_limit(self.pattern.term_bounds(term));
            PlacedTerm::new(&self.pattern.arena, *term, bounds)
        });
        let near = all.filter(|term| term.lo < to && from < term.hi);
        let found: Vec<PlacedTerm<'_>> = near.take(MAX_TERMS + 1).collect();
        (found.len() <= MAX_TERMS).then_some(found)
    }

    fn before_limit(&self, (lo, hi): (u64, u64)) -> (u64, u64) {
        let limit = self.limit.unwrap_or(u64::MAX);
        (lo.min(limit), hi.min(limit))
    }
}
