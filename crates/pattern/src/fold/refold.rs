//! Folds a whole pattern into a folder, a row of elements at a time.
//!
//! The result is the same as if each element had been pushed. An expected element only advances the cursor of the open loop, so a
//! whole row of them is one advance.

use super::recognizer::LoopRecognizer;
use super::{Folder, check};
use crate::cursor::Cursor;
use crate::shape::{Shape, ShapeKind};
use crate::{Element, Pattern, Result};

impl Folder {
    /// Adds all extents of a pattern, at their addresses. Takes some additions for each of its [rows](Pattern::rows).
    ///
    /// # Errors
    /// `TooFar`: some offset, length or address of 2^60 or more. Extents before it are added.
    pub fn push_pattern(&mut self, pattern: &Pattern) -> Result<()> {
        let mut cursor = Cursor::default();
        for term in &pattern.terms {
            let mut row = cursor.start_shape(&pattern.arena, term.shape, term.start);
            let mut addr = term.addr;
            while row.left > 0 {
                let first = Element {
                    offset: row.offset,
                    len: row.len,
                    addr,
                };
                self.push_row(first, row.stride, row.left)?;
                addr = addr.wrapping_add(row.len.wrapping_mul(row.left));
                row = cursor.next(&pattern.arena);
            }
        }
        Ok(())
    }

    /// Adds `count` extents of one length, one after the other in the log.
    fn push_row(&mut self, first: Element, stride: u64, count: u64) -> Result<()> {
        let at = |i: u64| Element {
            offset: first.offset.wrapping_add(stride.wrapping_mul(i)),
            len: first.len,
            addr: first.addr.wrapping_add(first.len.wrapping_mul(i)),
        };
        // The first and the last may join what is before and behind; those between cannot, unless all are one.
        if count < 3 || stride == first.len || first.len == 0 {
            return (0..count)
                .map(at)
                .try_for_each(|e| self.push_at(e.offset, e.len, e.addr));
        }
        let last = at(count - 1);
        check(&last)?;
        self.push_at(first.offset, first.len, first.addr)?;
        if self.joins {
            let held = std::mem::take(&mut self.held);
            self.loops.take(held);
        }
        self.loops.take_row(at(1), stride, count - 2);
        self.push_at(last.offset, last.len, last.addr)
    }
}

impl LoopRecognizer {
    /// As [`LoopRecognizer::take`] for each.
    fn take_row(&mut self, mut e: Element, stride: u64, mut count: u64) {
        while count > 0 {
            let same = self.is_expected(&e) && e.addr == self.addr;
            let steps = match same && (self.expected.stride == stride) {
                true => count.min(self.expected.left),
                false => 1,
            };
            let (along, bytes) = (stride.wrapping_mul(steps), e.len * steps);
            if same {
                self.addr += bytes;
                let expected = &mut self.expected;
                let ahead = expected.stride.wrapping_mul(steps);
                expected.offset = expected.offset.wrapping_add(ahead);
                expected.left -= steps;
                if self.expected.left == 0 {
                    self.expected = self.cursor.next(&self.closed.arena);
                }
            } else {
                self.take_unexpected(e);
            }
            e.offset = e.offset.wrapping_add(along);
            e.addr += bytes;
            count -= steps;
        }
    }
}

impl Pattern {
    /// Number of rows (extents of one length at equal distances), about: the work of [`Folder::push_pattern`].
    pub fn rows(&self) -> u64 {
        // Loops come behind those in their bodies.
        let mut of_loops: Vec<u64> = Vec::with_capacity(self.arena.loops.len());
        let rows = |shape: Shape, known: &[u64]| match shape.kind() {
            ShapeKind::Leaf(_) => 1,
            ShapeKind::Loop(id) => known.get(id as usize).copied().unwrap_or(u64::MAX),
        };
        for l in &self.arena.loops {
            let body = self.arena.body(l);
            let sum = body.iter().map(|item| rows(item.shape, &of_loops));
            let sum = sum.fold(0u64, u64::saturating_add);
            let single = matches!(body, [item] if matches!(item.shape.kind(), ShapeKind::Leaf(_)));
            of_loops.push(match single {
                true => 1,
                // Of a cut iteration, all rows.
                false => sum
                    .saturating_mul(l.steps.elements.div_ceil(l.per.max(1)))
                    .min(l.steps.elements),
            });
        }
        let terms = self.terms.iter().map(|t| rows(t.shape, &of_loops));
        terms.fold(0, u64::saturating_add)
    }
}
