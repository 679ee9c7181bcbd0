//! Undoes the last iteration of an open loop over rows when it turns out to be the start of another structure.
//!
//! For example, after planes of 20 rows a plane of 21 rows begins like one more of 20. If its beginning stayed an iteration of the
//! loop, the plane would be split at a place that depends on what came before, and equal planes of two logs would get different
//! shapes. So its elements are folded again, together with what follows.
//!
//! At most half of the loop's elements are undone, and a loop is closed each time, so the cost of an element stays bounded.

use super::closed::OpenRepeat;
use super::recognizer::{FoldState, LoopRecognizer};
use crate::Element;
use crate::cursor::Cursor;
use crate::shape::ShapeKind;

/// Elements that are undone at most, so that memory stays bounded.
const MAX_UNDONE: u64 = 1 << 14;

impl LoopRecognizer {
    /// Called with an element `e` that the open loop does not expect. If its last iteration is better folded anew, closes the loop
    /// without it, folds its elements again (`e` not yet), and returns `true`.
    pub(super) fn undo_iteration(&mut self, open: OpenRepeat, e: &Element) -> bool {
        let (per, per_bytes) = self.closed.arena.sums(open.items);
        let mut body = self.closed.arena.items(open.items).iter();
        if body.all(|item| self.closed.arena.depth(item.shape) == 0) {
            return false;
        }
        let elements = open.had + self.cursor.taken(self.expected.left);
        let tail = elements % per;
        let back = match tail {
            0 if self.continues_inner_loop(open, elements / per, e) => per,
            tail => tail,
        };
        let iterations = (elements - back) / per;
        if back == 0 || back > MAX_UNDONE || iterations < 2 {
            return false;
        }
        let base = open.iteration(iterations);
        let mut addr = open.addr + iterations * per_bytes;
        let mut cursor = Cursor::default();
        let mut expected = cursor.start(&self.closed.arena, open.items, open.stride, base);
        let mut again = Vec::with_capacity(back as usize);
        for _ in 0..back {
            let (offset, len) = (expected.offset, expected.len);
            again.push(Element { offset, len, addr });
            addr += len;
            cursor.advance(&mut expected, &self.closed.arena);
        }
        self.state = FoldState::Empty;
        self.expected = Default::default();
        self.close_loop(open, elements - back);
        for element in again {
            self.accept(element);
        }
        true
    }

    /// Whether `e` would be one more iteration of the inner loop that ends the last of `iterations` whole iterations.
    fn continues_inner_loop(&self, open: OpenRepeat, iterations: u64, e: &Element) -> bool {
        let steps = |stride: i64, count: u64| (stride as u64).wrapping_mul(count);
        let mut items = open.items;
        let mut start = open.iteration(iterations - 1);
        loop {
            let last = self.closed.arena.items[(items.0 + items.1 - 1) as usize];
            start = start.wrapping_add(last.rel as u64);
            let ShapeKind::Loop(id) = last.shape.kind() else {
                return false;
            };
            let l = self.closed.arena.get(id);
            let (full, tail) = (l.steps.elements / l.per, l.steps.elements % l.per);
            if tail > 0 {
                return false;
            }
            let next = start.wrapping_add(steps(l.steps.stride, full));
            if next == e.offset
                && l.steps.stride != 0
                && self.closed.arena.first_len(last.shape) == e.len
            {
                return true;
            }
            start = start.wrapping_add(steps(l.steps.stride, full - 1));
            items = l.items;
        }
    }
}
