//! Looks up an offset in any shape: which element holds the byte, the newest if several do, and where the next one starts.
//!
//! A loop's candidates are the iterations whose bounds hold the offset: one division, and one candidate if iterations do not
//! overlap. Nothing is decoded.

use crate::shape::{Arena, Loop, LoopItem, Shape, ShapeKind};

/// An element of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ElementHit {
    /// Its number in the shape.
    pub(crate) index: u64,
    /// Its start, relative to the shape's.
    pub(crate) rel: i64,
    pub(crate) len: u64,
    /// Bytes of the elements before it.
    pub(crate) bytes_before: u64,
}

/// The newest of the first `elements` elements that holds byte `rel` of the shape.
pub(crate) fn hit(arena: &Arena, shape: Shape, elements: u64, rel: i64) -> Option<ElementHit> {
    match shape.kind() {
        ShapeKind::Leaf(len) => (rel >= 0 && (rel as u64) < len).then_some(ElementHit {
            index: 0,
            rel: 0,
            len,
            bytes_before: 0,
        }),
        ShapeKind::Loop(id) => {
            let l = arena.get(id);
            let (first, behind) = candidates(l, elements, rel);
            // With a stride of 0, what an iteration holds the last whole one holds too.
            let first = if l.steps.stride == 0 {
                first.max(behind.saturating_sub(2))
            } else {
                first
            };
            (first..behind).rev().find_map(|k| {
                let shift = shift(l, k);
                let part = l.per.min(elements - k * l.per);
                let found = hit_body(arena, arena.body(l), part, rel.wrapping_sub(shift))?;
                Some(ElementHit {
                    index: k * l.per + found.index,
                    rel: shift.wrapping_add(found.rel),
                    bytes_before: k * l.per_bytes + found.bytes_before,
                    ..found
                })
            })
        }
    }
}

/// The same for one iteration of a body.
pub(crate) fn hit_body(
    arena: &Arena,
    body: &[LoopItem],
    elements: u64,
    rel: i64,
) -> Option<ElementHit> {
    let there = body.partition_point(|i| i.elements_before < elements);
    body[..there].iter().rev().find_map(|item| {
        let (lo, hi) = arena.bounds(item.shape);
        let inside = rel.wrapping_sub(item.rel);
        if inside < lo || inside >= hi {
            return None;
        }
        let left = elements - item.elements_before;
        let part = arena.elements(item.shape).min(left);
        let found = hit(arena, item.shape, part, inside)?;
        Some(ElementHit {
            index: item.elements_before + found.index,
            rel: item.rel.wrapping_add(found.rel),
            bytes_before: item.bytes_before + found.bytes_before,
            ..found
        })
    })
}

/// The least start of an element after `rel`.
pub(crate) fn next_start(arena: &Arena, shape: Shape, elements: u64, rel: i64) -> Option<i64> {
    match shape.kind() {
        ShapeKind::Leaf(_) => (rel < 0).then_some(0),
        ShapeKind::Loop(id) => {
            let l = arena.get(id);
            let (first, behind) = candidates(l, elements, rel);
            // The iteration beside the candidates, on the side of larger offsets, lies wholly behind `rel`.
            let (first, behind) = match l.steps.stride {
                0 => (first.max(behind.saturating_sub(2)), behind),
                1.. => (
                    first,
                    behind.saturating_add(1).min(elements.div_ceil(l.per)),
                ),
                // Two, because the last iteration may be cut, and lack the lowest items that the one before has.
                _ => (first.saturating_sub(2), behind),
            };
            let starts = (first..behind).filter_map(|k| {
                let shift = shift(l, k);
                let part = l.per.min(elements - k * l.per);
                next_start_body(arena, arena.body(l), part, rel.wrapping_sub(shift))
                    .map(|s| s + shift)
            });
            starts.min()
        }
    }
}

/// The same for one iteration of a body.
pub(crate) fn next_start_body(
    arena: &Arena,
    body: &[LoopItem],
    elements: u64,
    rel: i64,
) -> Option<i64> {
    let there = body.partition_point(|i| i.elements_before < elements);
    let starts = body[..there].iter().filter_map(|item| {
        let left = elements - item.elements_before;
        let part = arena.elements(item.shape).min(left);
        let inside = rel.wrapping_sub(item.rel);
        if inside >= arena.bounds(item.shape).1 {
            return None;
        }
        next_start(arena, item.shape, part, inside).map(|s| s.wrapping_add(item.rel))
    });
    starts.min()
}

fn shift(l: &Loop, k: u64) -> i64 {
    (k as i64).wrapping_mul(l.steps.stride)
}

/// The iterations whose bounds hold `rel`; if none do, the empty range at the place where they would be.
fn candidates(l: &Loop, elements: u64, rel: i64) -> (u64, u64) {
    let count = elements.div_ceil(l.per);
    if l.steps.stride == 0 {
        return (0, if rel < l.body.1 { count } else { 0 });
    }
    let here = l.iterations_reaching(rel.into(), i128::from(rel) + 1);
    let clamp = |k: i128| k.clamp(0, i128::from(count)) as u64;
    (clamp(here.start), clamp(here.end))
}

#[cfg(test)]
mod tests;
