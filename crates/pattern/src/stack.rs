//! The stack of closed terms, and the search for a repeat at its top.
//!
//! A repeat of `b` terms: the last `b` terms have the shapes and distances of the `b` before. The search compares a 32-bit
//! fingerprint of each term (its shape and its distance from the term below), shortest repeat first. So if nothing repeats, it
//! costs one vector comparison of [`WINDOW`] fingerprints. Where fingerprints match, the terms themselves are compared.

use crate::shape::{Arena, MAX_DEPTH, Shape, mix};

/// The longest body that is looked for, terms.
pub(crate) const WINDOW: usize = 64;
/// Prints compared for one term before the search gives up: so the cost of a term is bounded.
const MAX_COMPARED_FINGERPRINTS: usize = 4 * WINDOW;

/// A shape at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Term {
    /// Offset of its first element.
    pub(crate) start: u64,
    /// Log address of its first byte.
    pub(crate) addr: u64,
    pub(crate) shape: Shape,
}

/// The top `copies * size` terms are copies of `size` terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repeat {
    pub(crate) size: usize,
    pub(crate) copies: usize,
}

/// Closed terms in the order of the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stack {
    pub(crate) terms: Vec<Term>,
    fingerprints: Vec<u32>,
    /// Log address after the top term.
    end: u64,
    /// Terms that do not follow the one below in the log, ever.
    breaks: u32,
}

impl Stack {
    pub(crate) fn push(&mut self, term: Term, bytes: u64) {
        let fingerprint = match self.terms.last() {
            Some(below) if self.end == term.addr => {
                mix(term.shape.bits(), term.start.wrapping_sub(below.start)) as u32 | 1
            }
            // An even fingerprint is like no other: a loop's elements follow each other in the log.
            _ => {
                self.breaks = self.breaks.wrapping_add(2);
                self.breaks
            }
        };
        self.end = term.addr.wrapping_add(bytes);
        self.terms.push(term);
        self.fingerprints.push(fingerprint);
    }

    /// The shortest repeat at the top.
    pub(crate) fn repeat(&self, arena: &Arena) -> Option<Repeat> {
        let n = self.fingerprints.len();
        let (&top, below) = self.fingerprints.split_last()?;
        // Every term of the last copy but its first has the fingerprint of the one `size` below it, the top one too.
        let mut at = below.len();
        let mut budget = MAX_COMPARED_FINGERPRINTS;
        let floor = at.saturating_sub(WINDOW);
        while at > floor {
            let from = at.saturating_sub(16).max(floor);
            if below[from..at]
                .iter()
                .fold(false, |any, p| any | (*p == top))
            {
                for j in (from..at).rev().filter(|&j| below[j] == top) {
                    if let Some(found) = self.verify(n, n - 1 - j, &mut budget, arena) {
                        return Some(found);
                    }
                }
            }
            at = from;
        }
        None
    }

    fn verify(&self, n: usize, size: usize, budget: &mut usize, arena: &Arena) -> Option<Repeat> {
        // A single term needs two equal distances, which the fingerprints of the two top terms show.
        let copies = if size == 1 { 3 } else { 2 };
        if n < copies * size || self.fingerprints[n - 1] & 1 == 0 {
            return None;
        }
        let last = n - size;
        if size == 1 {
            let [a, b, c] = [n - 3, n - 2, n - 1].map(|k| self.terms[k]);
            let same = a.shape == b.shape
                && b.shape == c.shape
                && b.start.wrapping_sub(a.start) == c.start.wrapping_sub(b.start);
            return (same && self.may_nest_deeper(n - 1, n, arena))
                .then_some(Repeat { size, copies });
        }
        for k in (last + 1..n).rev() {
            *budget = budget.checked_sub(1)?;
            if self.fingerprints[k] != self.fingerprints[k - size] || self.fingerprints[k] & 1 == 0
            {
                return None;
            }
        }
        // The fingerprints are short: the terms themselves decide.
        let joined = self.fingerprints[last] & 1 == 1;
        let distance = |k: usize| self.terms[k].start.wrapping_sub(self.terms[k - size].start);
        let same = |k: usize| {
            self.terms[k].shape == self.terms[k - size].shape && distance(k) == distance(last)
        };
        (joined && (last..n).all(same) && self.may_nest_deeper(last, n, arena))
            .then_some(Repeat { size, copies })
    }

    fn may_nest_deeper(&self, from: usize, to: usize, arena: &Arena) -> bool {
        let terms = &self.terms[from..to];
        terms.iter().all(|t| arena.depth(t.shape) < MAX_DEPTH)
    }

    /// Takes away the terms from `from` on.
    pub(crate) fn truncate(&mut self, from: usize, arena: &Arena) {
        self.terms.truncate(from);
        self.fingerprints.truncate(from);
        if let Some(top) = self.terms.last() {
            self.end = top.addr.wrapping_add(arena.bytes(top.shape));
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.terms.capacity() * size_of::<Term>() + self.fingerprints.capacity() * size_of::<u32>()
    }

    /// Takes the lowest `count` terms away. The fingerprint of the one that is lowest now is never compared with success again, because
    /// a repeat needs its predecessor only if it is not the first of a copy.
    pub(crate) fn take_bottom(&mut self, count: usize) -> Vec<Term> {
        self.fingerprints.drain(..count);
        self.terms.drain(..count).collect()
    }
}
