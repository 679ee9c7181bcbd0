//! Loop distribution: splits a loop over several items into one loop for each, so that the parts can join those of other logs.
//!
//! ```text
//! loop(k, [a, b])   ->   loop(k, [a]) with a gap as long as b in the log, loop(k, [b]) with a gap as long as a
//! ```
//!
//! Outer loops are unrolled, down to as many loops in each other as are to be kept.

use crate::shape::{Arena, Shape, ShapeKind, Steps};

/// Parts of one shape, at most.
const MAX_PARTS: usize = 4096;

/// A part of a shape: a chain of loops around a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShapePart {
    /// Start, relative to the shape's.
    pub(crate) rel: i64,
    /// Log bytes from the shape's first to its own first.
    pub(crate) addr: u64,
    /// In the arena given.
    pub(crate) shape: Shape,
}

/// Whether a shape has a loop over several items.
pub(crate) fn has_loop_over_several_items(arena: &Arena, shape: Shape) -> bool {
    match shape.kind() {
        ShapeKind::Leaf(_) => false,
        ShapeKind::Loop(id) => match arena.body(arena.get(id)) {
            [item] => has_loop_over_several_items(arena, item.shape),
            _ => true,
        },
    }
}

/// The parts of a shape, made in `to`, with at most `keep` loops in each other. `None` if there are too many.
pub(crate) fn distribute(
    from: &Arena,
    to: &mut Arena,
    shape: Shape,
    keep: u8,
) -> Option<Vec<ShapePart>> {
    let ShapeKind::Loop(id) = shape.kind() else {
        let (rel, addr) = (0, 0);
        return Some(vec![ShapePart { rel, addr, shape }]);
    };
    let l = from.get(id);
    let Steps {
        stride, elements, ..
    } = l.steps;
    let (full, tail) = (elements / l.per, elements % l.per);
    let mut out = Vec::new();
    if l.depth > keep {
        if tail > 0 || elements / l.per > MAX_PARTS as u64 {
            return None;
        }
        for item in from.body(l) {
            let inner = distribute(from, to, item.shape, keep)?;
            if (out.len() + inner.len()).saturating_mul(full as usize) > MAX_PARTS {
                return None;
            }
            for (k, part) in (0..full).flat_map(|k| inner.iter().map(move |part| (k, part))) {
                let shift = stride.checked_mul(k as i64)?.checked_add(item.rel)?;
                out.push(ShapePart {
                    rel: shift.checked_add(part.rel)?,
                    addr: k * l.per_bytes + item.bytes_before + part.addr,
                    shape: part.shape,
                });
            }
        }
        return Some(out);
    }
    for item in from.body(l) {
        let cut = tail.saturating_sub(item.elements_before);
        let mut in_tail = Vec::new();
        counts(from, item.shape, cut, &mut in_tail);
        for (part, in_tail) in distribute(from, to, item.shape, keep)?
            .into_iter()
            .zip(in_tail)
        {
            let elements = full * to.elements(part.shape) + in_tail;
            // A loop that is cut in its first iteration is left as it is.
            if full == 0 || out.len() == MAX_PARTS {
                return None;
            }
            let gap = l.per_bytes.checked_sub(to.bytes(part.shape))?;
            let items = to.push_body([(0, part.shape)])?;
            let steps = Steps {
                stride,
                elements,
                gap,
            };
            out.push(ShapePart {
                rel: item.rel.checked_add(part.rel)?,
                addr: item.bytes_before + part.addr,
                shape: to.add(steps, items)?,
            });
        }
    }
    Some(out)
}

/// How many of the first `cut` elements of a shape are in each of its parts.
fn counts(arena: &Arena, shape: Shape, cut: u64, out: &mut Vec<u64>) {
    let ShapeKind::Loop(id) = shape.kind() else {
        out.push(cut.min(1));
        return;
    };
    let l = arena.get(id);
    let cut = cut.min(l.steps.elements);
    let (full, tail) = (cut / l.per, cut % l.per);
    for item in arena.body(l) {
        let (mut whole, mut rest) = (Vec::new(), Vec::new());
        counts(arena, item.shape, arena.elements(item.shape), &mut whole);
        counts(
            arena,
            item.shape,
            tail.saturating_sub(item.elements_before),
            &mut rest,
        );
        out.extend(whole.iter().zip(rest).map(|(w, r)| full * w + r));
    }
}
