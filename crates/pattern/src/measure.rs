//! Derived properties of a loop and of its first elements: bounds, bytes, order, which iterations lie in a range.

use crate::shape::{Arena, Loop, LoopItem, MAX_DEPTH, Shape, ShapeKind, Steps};
use std::ops::Range;

impl Loop {
    /// Iterations that reach into `from..to`, relative to the loop's start, as if it had no ends. Its stride is not 0.
    pub(crate) fn iterations_reaching(&self, from: i128, to: i128) -> Range<i128> {
        let (lo, hi) = (i128::from(self.body.0), i128::from(self.body.1));
        let (stride, below, above) = match i128::from(self.steps.stride) {
            stride @ 0.. => (stride, from - hi, to - lo),
            down => (-down, lo - to, hi - from),
        };
        below.div_euclid(stride) + 1..-(-above).div_euclid(stride)
    }

    /// Iterations that lie in `from..to` whole; as [`Loop::iterations_reaching`]. Empty, with any start, if there are none.
    pub(crate) fn inside(&self, from: i128, to: i128) -> Range<i128> {
        let (lo, hi) = (i128::from(self.body.0), i128::from(self.body.1));
        let (stride, below, above) = match i128::from(self.steps.stride) {
            stride @ 0.. => (stride, from - lo, to - hi),
            down => (-down, hi - to, lo - from),
        };
        -(-below).div_euclid(stride)..above.div_euclid(stride) + 1
    }
}

impl Arena {
    /// A loop with all that follows from its steps and its body. `None` if something does not fit.
    pub(crate) fn measured(&self, steps: Steps, items: (u32, u32)) -> Option<Loop> {
        let Steps {
            stride, elements, ..
        } = steps;
        let (per, sum) = self.sums(items);
        let per_bytes = sum.checked_add(steps.gap)?;
        let body = self.items(items);
        let (full, tail) = (elements / per, elements % per);
        let whole = self.part_bounds(body, per)?;
        let mut bounds = (i64::MAX, i64::MIN);
        let mut add = |k: u64, part: (i64, i64)| {
            let shift = i64::try_from(i128::from(k) * i128::from(stride)).ok()?;
            bounds.0 = bounds.0.min(part.0.checked_add(shift)?);
            bounds.1 = bounds.1.max(part.1.checked_add(shift)?);
            Some(())
        };
        if full > 0 {
            add(0, whole)?;
            add(full - 1, whole)?;
        }
        if tail > 0 {
            add(full, self.part_bounds(body, tail)?)?;
        }
        let bytes = full
            .checked_mul(per_bytes)?
            .checked_add(self.part_bytes(body, tail))?;
        i64::try_from(bytes).ok()?;
        let depth = 1 + body.iter().map(|i| self.depth(i.shape)).max()?;
        let apart =
            elements <= per || i128::from(stride) >= i128::from(whole.1) - i128::from(whole.0);
        (depth <= MAX_DEPTH).then_some(Loop {
            steps,
            per,
            bytes,
            per_bytes,
            items,
            bounds,
            body: whole,
            depth,
            increasing: self.in_order(body) && apart,
        })
    }

    /// Whether each element of a body starts at the end of the one before, or after it.
    pub(crate) fn in_order(&self, body: &[LoopItem]) -> bool {
        body.iter().all(|i| self.increasing(i.shape))
            && body.windows(2).all(|w| {
                let (end, start) = (self.bounds(w[0].shape).1, self.bounds(w[1].shape).0);
                w[0].rel.saturating_add(end) <= w[1].rel.saturating_add(start)
            })
    }

    /// Bounds of the first `elements` elements of a body.
    fn part_bounds(&self, body: &[LoopItem], elements: u64) -> Option<(i64, i64)> {
        let mut bounds = (i64::MAX, i64::MIN);
        for item in body.iter().take_while(|i| i.elements_before < elements) {
            let (lo, hi) = self.cut_bounds(item.shape, elements - item.elements_before)?;
            bounds.0 = bounds.0.min(item.rel.checked_add(lo)?);
            bounds.1 = bounds.1.max(item.rel.checked_add(hi)?);
        }
        Some(bounds)
    }

    /// Bounds of the first `elements` elements of a shape.
    fn cut_bounds(&self, shape: Shape, elements: u64) -> Option<(i64, i64)> {
        let ShapeKind::Loop(id) = shape.kind() else {
            return Some(self.bounds(shape));
        };
        let l = self.get(id);
        if elements >= l.steps.elements {
            return Some(l.bounds);
        }
        let (full, tail) = (elements / l.per, elements % l.per);
        let mut bounds = (i64::MAX, i64::MIN);
        if full > 0 {
            // Iterations of a whole loop, whose bounds were found to fit.
            let shift = (full - 1) as i64 * l.steps.stride;
            bounds = (
                l.body.0.min(l.body.0 + shift),
                l.body.1.max(l.body.1 + shift),
            );
        }
        if tail > 0 {
            let shift = full as i64 * l.steps.stride;
            let (lo, hi) = self.part_bounds(self.body(l), tail)?;
            bounds = (bounds.0.min(lo + shift), bounds.1.max(hi + shift));
        }
        Some(bounds)
    }

    /// Bytes of the first `elements` elements of a body.
    pub(crate) fn part_bytes(&self, body: &[LoopItem], elements: u64) -> u64 {
        let at = body.partition_point(|i| i.elements_before < elements);
        let Some(item) = at.checked_sub(1).map(|at| &body[at]) else {
            return 0;
        };
        item.bytes_before + self.cut_bytes(item.shape, elements - item.elements_before)
    }

    /// Bytes of the first `elements` elements of a shape.
    pub(crate) fn cut_bytes(&self, shape: Shape, elements: u64) -> u64 {
        match shape.kind() {
            ShapeKind::Leaf(len) => len * elements.min(1),
            ShapeKind::Loop(id) => {
                let l = self.get(id);
                if elements >= l.steps.elements {
                    return l.bytes;
                }
                let (full, tail) = (elements / l.per, elements % l.per);
                full * l.per_bytes + self.part_bytes(self.body(l), tail)
            }
        }
    }
}
