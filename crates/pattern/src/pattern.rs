//! A pattern: terms of one log, in log order. Any element is found by its number without the others.

use crate::cursor::{Cursor, ExpectedRun};
use crate::element::Element;
use crate::shape::{Arena, ShapeKind};
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
            run: ExpectedRun::default(),
            cursor: Cursor::default(),
            addr: 0,
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

/// All extents of a [`Pattern`], in log order.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    pattern: &'a Pattern,
    /// The next term.
    next: usize,
    /// What is left of the current one: the next elements, and the log address of the first.
    run: ExpectedRun,
    cursor: Cursor,
    addr: u64,
}

impl Iterator for Elements<'_> {
    type Item = Element;

    fn next(&mut self) -> Option<Element> {
        let arena = &self.pattern.arena;
        if self.run.left == 0 {
            let term = self.pattern.terms.get(self.next)?;
            self.next += 1;
            let (offset, addr) = (term.start, term.addr);
            if let ShapeKind::Leaf(len) = term.shape.kind() {
                return Some(Element { offset, len, addr });
            }
            self.addr = addr;
            self.run = self.cursor.start_shape(arena, term.shape, term.start);
        }
        let (offset, len, addr) = (self.run.offset, self.run.len, self.addr);
        self.addr = addr.wrapping_add(len);
        self.cursor.advance(&mut self.run, arena);
        Some(Element { offset, len, addr })
    }
}
