//! A pattern: terms of one log, in log order. Any element is found by its number without the others.

use crate::element::Element;
use crate::shape::{Arena, Loop, Shape, ShapeKind};
use crate::stack::Term;
use std::ops::Range;

/// What was found in a stream of extents of one log: terms, each a leaf or a nest of loops, in log order.
#[derive(Debug, Clone, Default)]
pub struct Pattern {
    pub(crate) arena: Arena,
    pub(crate) terms: Vec<Term>,
    /// Elements before each term.
    before: Vec<u64>,
    elements: u64,
}

impl Pattern {
    /// The terms, with a copy of the loops that they need.
    pub(crate) fn new(from: &Arena, mut terms: Vec<Term>) -> Pattern {
        let mut arena = Arena::default();
        let mut seen = Default::default();
        for term in &mut terms {
            term.shape = arena.copy(from, term.shape, &mut seen);
        }
        arena.freeze();
        Pattern::with(arena, terms)
    }

    /// The terms and their loops.
    pub(crate) fn with(arena: Arena, terms: Vec<Term>) -> Pattern {
        let mut elements = 0u64;
        let before = terms
            .iter()
            .map(|term| {
                let before = elements;
                elements += arena.elements(term.shape);
                before
            })
            .collect();
        Pattern {
            arena,
            terms,
            before,
            elements,
        }
    }

    /// Number of terms.
    pub fn terms(&self) -> usize {
        self.terms.len()
    }

    /// Each term alone.
    pub fn each_term(&self) -> impl Iterator<Item = Pattern> + '_ {
        let alone = |term: &Term| Pattern::new(&self.arena, vec![*term]);
        self.terms.iter().map(alone)
    }

    /// Number of different loops.
    pub fn loops(&self) -> usize {
        self.arena.loops.len()
    }

    /// Parts of all loops and terms: what a reader has to keep.
    pub fn nodes(&self) -> usize {
        self.terms.len() + self.arena.items.len()
    }

    /// Number of extents.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Bytes of all extents, those that overlap counted again.
    pub fn bytes(&self) -> u64 {
        let bytes = |t: &Term| self.arena.bytes(t.shape);
        self.terms.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Log addresses of all extents, in log order; terms that go on in the log are one range. Of what was folded for one log: in a
    /// loop whose iterations have bytes of others between them, these are in the range too.
    pub fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for term in &self.terms {
            let end = term.addr.saturating_add(self.arena.bytes(term.shape));
            match runs.last_mut() {
                Some(last) if last.end == term.addr => last.end = end,
                _ => runs.push(term.addr..end),
            }
        }
        runs
    }

    /// Offsets from the lowest to after the highest byte. Empty at 0 if there is none.
    pub fn bounds(&self) -> (u64, u64) {
        let bounds = self.terms.iter().map(|t| self.term_bounds(t));
        bounds
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
            .unwrap_or_default()
    }

    /// Whether each extent begins at or after the end of the one before it, in log order. Then no byte is in two of them, and [`Pattern::within`] finds
    /// what lies in a range without a look at each.
    pub fn is_increasing(&self) -> bool {
        let bounds = |t: &Term| self.term_bounds(t);
        let apart = |w: &[Term]| bounds(&w[0]).1 <= bounds(&w[1]).0;
        let inside = |t: &Term| self.arena.increasing(t.shape);
        self.terms.iter().all(inside) && self.terms.windows(2).all(apart)
    }

    pub(crate) fn term_bounds(&self, term: &Term) -> (u64, u64) {
        let (lo, hi) = self.arena.bounds(term.shape);
        let at = |rel: i64| term.start.wrapping_add(rel as u64);
        (at(lo), at(hi))
    }

    /// Extent number `index`, in log order. Takes a division and a binary search for each level of loops.
    pub fn get(&self, index: u64) -> Option<Element> {
        if index >= self.elements {
            return None;
        }
        let at = self.before.partition_point(|&before| before <= index) - 1;
        let term = &self.terms[at];
        Some(element(&self.arena, term, index - self.before[at]))
    }

    /// All extents in log order.
    pub fn iter(&self) -> Elements<'_> {
        Elements {
            pattern: self,
            next: 0,
            addr: 0,
            frames: Vec::new(),
        }
    }

    /// Forgets the terms, and the loops too unless they are needed.
    pub(crate) fn forget_terms(&mut self, keep_loops: bool) {
        let arena = std::mem::take(&mut self.arena);
        *self = Pattern::default();
        if keep_loops {
            self.arena = arena;
        }
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        size_of::<Pattern>()
            + self.arena.memory()
            + self.terms.capacity() * size_of::<Term>()
            + self.before.capacity() * size_of::<u64>()
    }
}

/// Element number `index` of a term that has it.
pub(crate) fn element(arena: &Arena, term: &Term, mut index: u64) -> Element {
    let (mut shape, mut offset, mut addr) = (term.shape, term.start, term.addr);
    loop {
        match shape.kind() {
            ShapeKind::Leaf(len) => return Element { offset, len, addr },
            ShapeKind::Loop(id) => {
                let l = arena.get(id);
                let k = index / l.per;
                index -= k * l.per;
                let body = arena.body(l);
                let item = match body {
                    [item] => item,
                    _ => &body[body.partition_point(|i| i.elements_before <= index) - 1],
                };
                index -= item.elements_before;
                offset = offset
                    .wrapping_add((l.steps.stride as u64).wrapping_mul(k))
                    .wrapping_add(item.rel as u64);
                addr = addr.wrapping_add(k * l.per_bytes + item.bytes_before);
                shape = item.shape;
            }
        }
    }
}

/// A loop in the middle of being walked.
#[derive(Debug, Clone, Copy)]
struct LoopWalk<'a> {
    of: &'a Loop,
    base: u64,
    item: usize,
    left: u64,
}

/// All extents of a [`Pattern`], in log order.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    pattern: &'a Pattern,
    next: usize,
    addr: u64,
    frames: Vec<LoopWalk<'a>>,
}

impl Elements<'_> {
    fn enter(&mut self, shape: Shape, start: u64, left: u64) -> Option<Element> {
        match shape.kind() {
            ShapeKind::Leaf(len) => {
                let addr = self.addr;
                self.addr = addr.wrapping_add(len);
                Some(Element {
                    offset: start,
                    len,
                    addr,
                })
            }
            ShapeKind::Loop(id) => {
                self.frames.push(LoopWalk {
                    of: self.pattern.arena.get(id),
                    base: start,
                    item: 0,
                    left,
                });
                None
            }
        }
    }
}

impl Iterator for Elements<'_> {
    type Item = Element;

    fn next(&mut self) -> Option<Element> {
        loop {
            let Some(walk) = self.frames.last_mut() else {
                let term = self.pattern.terms.get(self.next)?;
                self.next += 1;
                self.addr = term.addr;
                let all = self.pattern.arena.elements(term.shape);
                if let Some(leaf) = self.enter(term.shape, term.start, all) {
                    return Some(leaf);
                }
                continue;
            };
            if walk.left == 0 {
                self.frames.pop();
                continue;
            }
            let body = &self.pattern.arena.items[walk.of.range()];
            if walk.item == body.len() {
                walk.item = 0;
                walk.base = walk.base.wrapping_add(walk.of.steps.stride as u64);
            }
            let item = body[walk.item];
            walk.item += 1;
            let count = self.pattern.arena.elements(item.shape).min(walk.left);
            walk.left -= count;
            let start = walk.base.wrapping_add(item.rel as u64);
            if let Some(leaf) = self.enter(item.shape, start, count) {
                return Some(leaf);
            }
        }
    }
}
