//! The stack of closed terms: extents and loops that no later element extends.
//!
//! # Invariants
//! 1. The arena holds the loops of all terms.
//! 2. There are fewer than [`SPILL`] terms, and fewer than [`SPILL_ITEMS`] items in bodies. When a limit is reached, the lowest
//!    terms leave the stack as a finished pattern.

use crate::Pattern;
use crate::shape::{Arena, Shape, Steps};
use crate::stack::{Repeat, Stack, Term, WINDOW};

/// The stack never has this many terms.
const SPILL: usize = 4096;
/// Nor its arena this many items.
const SPILL_ITEMS: usize = 4 * SPILL;

/// A repeat of closed terms that may go on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenRepeat {
    pub(crate) start: u64,
    pub(super) addr: u64,
    pub(crate) stride: i64,
    pub(crate) items: (u32, u32),
    /// Elements it had when it was opened.
    pub(super) had: u64,
}

impl OpenRepeat {
    /// Where iteration `k` starts.
    pub(super) fn iteration(&self, k: u64) -> u64 {
        let distance = (self.stride as u64).wrapping_mul(k);
        self.start.wrapping_add(distance)
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClosedTerms {
    pub(crate) stack: Stack,
    pub(crate) arena: Arena,
    done: Vec<Pattern>,
}

impl ClosedTerms {
    /// Pushes a term. If the top of the stack is a repeat now, takes it off and returns it with its number of iterations.
    pub(super) fn push(
        &mut self,
        start: u64,
        addr: u64,
        shape: Shape,
    ) -> Option<(OpenRepeat, u64)> {
        let bytes = self.arena.bytes(shape);
        self.stack.push(Term { start, addr, shape }, bytes);
        let Some(repeat) = self.stack.repeat(&self.arena) else {
            if self.arena.items.len() >= SPILL_ITEMS {
                self.spill(self.stack.terms.len());
            } else if self.stack.terms.len() >= SPILL {
                self.spill(SPILL - 2 * WINDOW);
            }
            return None;
        };
        self.take_repeat(repeat)
    }

    fn take_repeat(&mut self, repeat: Repeat) -> Option<(OpenRepeat, u64)> {
        let copies = repeat.copies as u64;
        let from = self.stack.terms.len() - repeat.copies * repeat.size;
        let body = &self.stack.terms[from..from + repeat.size];
        let (first, second) = (body[0], self.stack.terms[from + repeat.size]);
        let items = body.iter().map(|t| (t.start, t.shape));
        let items = self.arena.push_body(items)?;
        self.stack.truncate(from, &self.arena);
        let open = OpenRepeat {
            start: first.start,
            addr: first.addr,
            stride: second.start.wrapping_sub(first.start) as i64,
            items,
            had: copies * self.arena.sums(items).0,
        };
        Some((open, copies))
    }

    /// Makes a loop of `elements` elements over a body in the arena.
    pub(super) fn make_loop(
        &mut self,
        items: Option<(u32, u32)>,
        stride: i64,
        elements: u64,
    ) -> Shape {
        let gap = 0;
        let steps = Steps {
            stride,
            elements,
            gap,
        };
        // Every element lies below 2^63 in file and log, so all bounds and sums fit; spilling keeps the arena small; and the
        // stack refuses repeats of shapes that are too deep.
        #[allow(clippy::expect_used)]
        items
            .and_then(|items| self.arena.add(steps, items))
            .expect("loops of real extents fit")
    }

    /// Turns the lowest `count` terms into a finished pattern. The arena keeps only the loops of the others.
    fn spill(&mut self, count: usize) {
        let terms = self.stack.take_bottom(count);
        if !terms.is_empty() {
            self.done.push(Pattern::new(&self.arena, terms));
        }
        if self.arena.loops.is_empty() {
            return self.arena.clear();
        }
        let old = std::mem::take(&mut self.arena);
        let mut seen = Default::default();
        for term in &mut self.stack.terms {
            term.shape = self.arena.copy(&old, term.shape, &mut seen);
        }
    }

    /// Turns all terms into a finished pattern.
    pub(super) fn finish(&mut self) {
        if !self.stack.terms.is_empty() {
            self.spill(self.stack.terms.len());
        }
    }

    /// Takes the finished patterns.
    pub(super) fn take_finished(&mut self) -> Vec<Pattern> {
        std::mem::take(&mut self.done)
    }

    /// Bytes of memory held, without finished patterns.
    pub(super) fn memory(&self) -> usize {
        self.stack.memory() + self.arena.memory()
    }
}
