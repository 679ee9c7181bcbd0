//! Recognises nested loops in a stream of elements (extents in log order), online: after Ketterlin and Clauss.
//!
//! ```text
//! element -> [ open loop, or open run ]   an expected element costs one addition; a run has equal lengths and equal distances
//!                 | an unexpected element closes it: it becomes a term (a leaf or a loop)
//!                 v
//!            [ stack of closed terms ]    repeated terms at its top become the open loop
//! ```
//!
//! Only closed terms are compared. So a row of 16 elements is never folded with the first 8 of the next row.
//!
//! An open loop may end in the middle of an iteration. If its body has leaves only, the partial iteration stays: the last iteration of
//! a loop may be cut. If there are loops in its body, the partial iteration is taken out and folded again (`undo_iteration`).
//!
//! # Invariants
//! 1. The terms of the stack, then the open loop, then the open run are all elements so far, in order, each once.
//! 2. A term has no gap in the log: an element's address is the term's plus the lengths of the elements before it.
//! 3. Memory is bounded: when the stack has too many terms, the oldest leave it as a finished pattern (`closed`).

use super::closed::{ClosedTerms, OpenRepeat};
use crate::Element;
use crate::cursor::{Cursor, ExpectedRun};
use crate::shape::Shape;

/// What the newest elements belong to until it is closed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum FoldState {
    #[default]
    Empty,
    One(Element),
    /// A run of [`LoopRecognizer::run_elements`] elements.
    Run(Element),
    /// The open loop.
    Loop(OpenRepeat),
}

/// Recognises loops in a stream of elements.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoopRecognizer {
    /// The next elements if the open loop or run continues; `left` is 0 if neither is open.
    pub(super) expected: ExpectedRun,
    /// Log address after the newest element.
    pub(super) addr: u64,
    pub(super) state: FoldState,
    pub(super) cursor: Cursor,
    pub(crate) closed: ClosedTerms,
}

impl LoopRecognizer {
    /// Adds an element.
    #[inline]
    pub(super) fn take(&mut self, e: Element) {
        if self.is_expected(&e) && e.addr == self.addr {
            self.addr += e.len;
            self.step();
        } else {
            self.take_unexpected(e);
        }
    }

    #[inline]
    pub(super) fn is_expected(&self, e: &Element) -> bool {
        let expected = &self.expected;
        (e.offset == expected.offset) & (e.len == expected.len) && expected.left > 0
    }

    #[inline]
    fn step(&mut self) {
        let arena = &self.closed.arena;
        self.cursor.advance(&mut self.expected, arena);
    }

    /// Adds an element that is not the expected one.
    #[inline(never)]
    pub(super) fn take_unexpected(&mut self, e: Element) {
        if e.addr != self.addr {
            self.close_all();
        }
        self.addr = e.addr + e.len;
        self.accept(e);
    }

    /// As [`LoopRecognizer::take`], after the log address was checked.
    pub(super) fn accept(&mut self, e: Element) {
        if self.is_expected(&e) {
            return self.step();
        }
        match self.state {
            FoldState::Empty => self.state = FoldState::One(e),
            FoldState::One(first) if first.len == e.len => {
                self.state = FoldState::Run(first);
                let stride = e.offset.wrapping_sub(first.offset);
                self.expected = ExpectedRun {
                    offset: e.offset.wrapping_add(stride),
                    len: e.len,
                    stride,
                    left: u64::MAX,
                };
            }
            state => {
                if let FoldState::Loop(open) = state
                    && self.undo_iteration(open, &e)
                {
                    return self.accept(e);
                }
                if let Some(second) = self.close_newest() {
                    self.accept(second);
                }
                self.accept(e);
            }
        }
    }

    /// Elements of the open run so far.
    pub(super) fn run_elements(&self) -> u64 {
        (u64::MAX - self.expected.left).saturating_add(2)
    }

    /// Closes what is open. Of a run of two elements only the first is closed; the second is returned, because it may begin another
    /// run.
    fn close_newest(&mut self) -> Option<Element> {
        let count = self.run_elements();
        let expected = std::mem::take(&mut self.expected);
        match std::mem::take(&mut self.state) {
            FoldState::Empty => {}
            FoldState::One(e) => self.close(e.offset, e.addr, Shape::leaf(e.len)),
            FoldState::Run(e) if count == 2 => {
                self.close(e.offset, e.addr, Shape::leaf(e.len));
                return Some(Element {
                    offset: e.offset.wrapping_add(expected.stride),
                    addr: e.addr + e.len,
                    len: e.len,
                });
            }
            FoldState::Run(e) => {
                let items = self.closed.arena.push_body([(0, Shape::leaf(e.len))]);
                let shape = self.closed.make_loop(items, expected.stride as i64, count);
                self.close(e.offset, e.addr, shape);
            }
            FoldState::Loop(open) => {
                let elements = open.had + self.cursor.taken(expected.left);
                self.close_loop(open, elements);
            }
        }
        None
    }

    /// Closes everything.
    pub(super) fn close_all(&mut self) {
        while !matches!(self.state, FoldState::Empty) {
            if let Some(second) = self.close_newest() {
                self.accept(second);
            }
        }
    }

    /// Closes the open loop with this number of elements.
    pub(super) fn close_loop(&mut self, open: OpenRepeat, elements: u64) {
        let shape = self
            .closed
            .make_loop(Some(open.items), open.stride, elements);
        self.close(open.start, open.addr, shape);
    }

    /// Closes a term. A repeat at the top of the stack becomes the open loop.
    fn close(&mut self, start: u64, addr: u64, shape: Shape) {
        if let Some((open, copies)) = self.closed.push(start, addr, shape) {
            let base = open.iteration(copies);
            let arena = &self.closed.arena;
            self.expected = self.cursor.start(arena, open.items, open.stride, base);
            self.state = FoldState::Loop(open);
        }
    }

    /// Bytes of memory held, without finished patterns.
    pub(super) fn memory(&self) -> usize {
        self.closed.memory() + self.cursor.memory()
    }
}
