//! Paths: a shape as a list of plain strided steps down to each of its leaves.
//!
//! ```text
//! path    start + k0 * stride0 + k1 * stride1 + ... + [0, len)
//! ```
//!
//! # Invariants
//! 1. The paths of a shape cover all of its bytes. They may cover more: an incomplete last iteration counts as a whole one.
//! 2. Strides are not negative: a loop that goes down is counted from its end. The largest stride comes first.

use crate::shape::{Arena, Shape, ShapeKind};
use crate::stack::Term;
use std::cell::OnceCell;

/// Paths of a shape, at most.
const MOST_PATHS: usize = 1 << 8;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) start: i128,
    pub(crate) len: u64,
    /// Stride and count, which is more than one.
    pub(crate) steps: Vec<(u64, u64)>,
    /// Bytes from the start to after the last leaf.
    pub(crate) span: i128,
}

impl Path {
    pub(crate) fn new(start: i128, len: u64, steps: &[(u64, u64)]) -> Path {
        let mut steps: Vec<(u64, u64)> = steps.iter().copied().filter(|s| s.1 > 1).collect();
        steps.sort_unstable_by(|a, b| b.cmp(a));
        let wide = steps
            .iter()
            .map(|s| i128::from(s.0).saturating_mul(i128::from(s.1 - 1)));
        let span = wide.fold(i128::from(len), i128::saturating_add);
        Path {
            start,
            len,
            steps,
            span,
        }
    }

    /// Whether each step has room for all smaller ones, so that no byte is reached twice.
    pub(crate) fn nests(&self) -> bool {
        let mut extent = u128::from(self.len);
        self.steps.iter().rev().all(|(stride, count)| {
            let fits = u128::from(*stride) >= extent.max(1);
            extent = extent.saturating_add(u128::from(*stride) * u128::from(*count - 1));
            fits
        })
    }
}

/// A term with its bounds, and its paths once they were asked for.
#[derive(Debug)]
pub(crate) struct PlacedTerm<'a> {
    pub(crate) term: Term,
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    pub(crate) arena: &'a Arena,
    paths: OnceCell<Option<Vec<Path>>>,
}

impl<'a> PlacedTerm<'a> {
    pub(crate) fn new(arena: &'a Arena, term: Term, (lo, hi): (u64, u64)) -> PlacedTerm<'a> {
        PlacedTerm {
            term,
            lo,
            hi,
            arena,
            paths: OnceCell::new(),
        }
    }

    /// Its paths. `None`: they are too many, or no step is left. They count as steps, and too many as the most there may be, so
    /// that those of all terms together are not too many either.
    pub(crate) fn paths(&self, left: &mut usize) -> Option<&[Path]> {
        if *left == 0 {
            return None;
        }
        let paths = self.paths.get_or_init(|| {
            let (mut steps, mut found) = (Vec::new(), Vec::new());
            let start = self.term.start.into();
            let all = walk(self.arena, self.term.shape, start, &mut steps, &mut found);
            *left = left.saturating_sub(1 + found.len().min(MOST_PATHS));
            all.then_some(found)
        });
        paths.as_deref()
    }
}

/// Appends the paths of a shape; `false` if there are too many.
fn walk(
    arena: &Arena,
    shape: Shape,
    start: i128,
    steps: &mut Vec<(u64, u64)>,
    out: &mut Vec<Path>,
) -> bool {
    let id = match shape.kind() {
        ShapeKind::Leaf(len) => {
            out.push(Path::new(start, len, steps));
            return out.len() <= MOST_PATHS;
        }
        ShapeKind::Loop(id) => id,
    };
    let l = arena.get(id);
    let count = l.steps.elements.div_ceil(l.per);
    let down = i128::from(l.steps.stride.min(0)) * i128::from(count - 1);
    steps.push((l.steps.stride.unsigned_abs(), count));
    let done = arena.body(l).iter().all(|item| {
        walk(
            arena,
            item.shape,
            start + down + i128::from(item.rel),
            steps,
            out,
        )
    });
    steps.pop();
    done
}
