//! Lattices: nested loops whose cells do not overlap, so that the element at an offset is found with one division for each loop.
//!
//! The loops with more than one iteration are the dimensions (`Dim`); what they repeat is the cell. The dimensions are sorted by stride,
//! whichever loop is the outer one, and each stride has room for all that lies inside:
//!
//! ```text
//! offset = base + k0 * stride0 + k1 * stride1 + ... + rest       rest: inside the cell
//!          stride0 >= (count1 - 1) * stride1 + ... + bytes of a cell
//! ```
//!
//! # Invariants
//! 1. Strides are positive: a loop that goes down is counted from its end (`flip`).
//! 2. Cells do not overlap, so at most one of them holds a byte.

use crate::cursor::{Cursor, ExpectedRun};
use crate::shape::{Arena, LoopItem, MAX_DEPTH, Shape, ShapeKind};
use crate::shape_lookup::{ElementHit, hit_body, next_start_body};

/// A dimension of the lattice: a loop with more than one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dim {
    pub(crate) stride: u64,
    pub(crate) count: u64,
    /// Its loop's index in `levels`.
    level: u8,
    /// Its loop goes down.
    flip: bool,
}

/// A loop around the inner part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Level {
    elements: u64,
    per: u64,
    per_bytes: u64,
}

/// What a cell holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CellBody {
    Leaf(u64),
    /// One iteration of a loop of several items: first item and number of items.
    Body(u32, u32),
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lattice {
    /// The largest stride first.
    pub(crate) dims: Vec<Dim>,
    /// The loops, outermost first.
    levels: Vec<Level>,
    inner: CellBody,
    /// Bounds of the inner part, relative to its start.
    bounds: (i64, i64),
    /// Lowest byte, relative to the shape's start.
    pub(crate) low: i64,
    /// Elements of a cell are in order and apart.
    pub(crate) increasing: bool,
    /// The same, and follow each other in the log.
    pub(crate) joined: bool,
}

/// The elements of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Elements of the cells before it in the log.
    pub(crate) index: u64,
    /// Log bytes before it.
    pub(crate) bytes_before: u64,
    /// Its own elements: fewer than others have, if it is cut.
    pub(crate) elements: u64,
}

impl Lattice {
    /// The lattice of a shape; `None` if its loops overlap.
    pub(crate) fn new(arena: &Arena, shape: Shape) -> Option<Lattice> {
        let (mut dims, mut levels) = (Vec::new(), Vec::new());
        let (mut low, mut at) = (0i64, shape);
        let inner = loop {
            let id = match at.kind() {
                ShapeKind::Leaf(len) => break CellBody::Leaf(len),
                ShapeKind::Loop(id) => id,
            };
            let l = arena.get(id);
            let count = l.steps.elements.div_ceil(l.per);
            if count > 1 {
                if l.steps.stride < 0 {
                    low = low
                        .checked_add(l.steps.stride.checked_mul(i64::try_from(count - 1).ok()?)?)?;
                }
                dims.push(Dim {
                    stride: l.steps.stride.unsigned_abs(),
                    count,
                    level: levels.len() as u8,
                    flip: l.steps.stride < 0,
                });
            }
            levels.push(Level {
                elements: l.steps.elements,
                per: l.per,
                per_bytes: l.per_bytes,
            });
            match arena.body(l) {
                [item] => at = item.shape,
                _ => break CellBody::Body(l.items.0, l.items.1),
            }
        };
        let mut lattice = Lattice {
            dims,
            levels,
            inner,
            bounds: (0, 0),
            low: 0,
            increasing: true,
            joined: true,
        };
        lattice.bounds = match lattice.inner {
            CellBody::Leaf(len) => (0, len as i64),
            // The innermost loop has these bounds for one iteration.
            CellBody::Body(..) => match at.kind() {
                ShapeKind::Loop(id) => arena.get(id).body,
                ShapeKind::Leaf(len) => (0, len as i64),
            },
        };
        lattice.low = low.checked_add(lattice.bounds.0)?;
        lattice.increasing = lattice.items(arena).is_none_or(|body| arena.in_order(body));
        lattice.joined = lattice.increasing
            && lattice
                .items(arena)
                .is_none_or(|body| body.iter().all(|i| gapless(arena, i.shape)));
        lattice.dims.sort_by_key(|d| std::cmp::Reverse(d.stride));
        (lattice.extent(0)? <= u64::MAX >> 2).then_some(lattice)
    }

    /// Bytes that the dims from `from` on span, with the inner part; `None` if one of them has too little room.
    pub(crate) fn extent(&self, from: usize) -> Option<u64> {
        let cell = (self.bounds.1 - self.bounds.0) as u64;
        self.dims[from..]
            .iter()
            .rev()
            .try_fold(cell, |extent, dim| {
                (dim.stride >= extent.max(1))
                    .then_some(())
                    .and_then(|()| dim.stride.checked_mul(dim.count - 1)?.checked_add(extent))
            })
    }

    /// Bytes of a cell, if every cell is there and each of its bytes is held.
    pub(crate) fn full(&self, arena: &Arena) -> Option<u64> {
        let cell = (self.bounds.1 - self.bounds.0) as u64;
        let held = match self.items(arena) {
            None => cell,
            Some(body) => body.iter().map(|i| arena.bytes(i.shape)).sum(),
        };
        let uncut = self.levels.iter().all(|l| l.elements.is_multiple_of(l.per));
        (uncut && self.joined && held == cell).then_some(cell)
    }

    pub(crate) fn elements(&self) -> u64 {
        self.levels.first().map_or(1, |l| l.elements)
    }

    fn items<'a>(&self, arena: &'a Arena) -> Option<&'a [LoopItem]> {
        match self.inner {
            CellBody::Leaf(_) => None,
            CellBody::Body(first, len) => Some(arena.items((first, len))),
        }
    }

    /// The element that holds byte `rest` of the cell that `at` counts to; `at[i]` belongs to dim `i`. `rel` of the answer is
    /// relative to the cell's lowest byte.
    #[inline]
    pub(crate) fn hit(&self, arena: &Arena, at: &[u64], rest: u64) -> Option<ElementHit> {
        let cell = self.cell(&self.iterations(at))?;
        let found = match self.inner {
            CellBody::Leaf(len) => (rest < len).then_some(ElementHit {
                index: 0,
                rel: 0,
                len,
                bytes_before: 0,
            })?,
            CellBody::Body(first, len) => {
                let body = arena.items((first, len));
                self.hit_in_cell(arena, body, cell.elements, rest)?
            }
        };
        Some(ElementHit {
            index: cell.index + found.index,
            bytes_before: cell.bytes_before + found.bytes_before,
            ..found
        })
    }

    fn hit_in_cell(
        &self,
        arena: &Arena,
        body: &[LoopItem],
        elements: u64,
        rest: u64,
    ) -> Option<ElementHit> {
        let rel = i64::try_from(rest).ok()?.checked_add(self.bounds.0)?;
        let found = hit_body(arena, body, elements, rel)?;
        Some(ElementHit {
            rel: found.rel - self.bounds.0,
            ..found
        })
    }

    /// The iteration of every level at the place of a cell: `at[i]` belongs to dim `i`.
    #[inline]
    pub(crate) fn iterations(&self, at: &[u64]) -> [u64; MAX_DEPTH as usize] {
        let mut k = [0u64; MAX_DEPTH as usize];
        for (dim, &at) in self.dims.iter().zip(at) {
            k[dim.level as usize] = if dim.flip { dim.count - 1 - at } else { at };
        }
        k
    }

    /// The cell of these iterations; `None` if it is cut off: the last iteration may be cut, in any loop.
    #[inline]
    pub(crate) fn cell(&self, k: &[u64; MAX_DEPTH as usize]) -> Option<Cell> {
        let (mut left, mut index, mut bytes_before) = (self.elements(), 0, 0);
        for (level, k) in self.levels.iter().zip(k) {
            let skipped = k * level.per;
            if skipped >= left {
                return None;
            }
            left = level.per.min(left - skipped);
            index += skipped;
            bytes_before += k * level.per_bytes;
        }
        Some(Cell {
            index,
            bytes_before,
            elements: left,
        })
    }

    /// How many cells there are along a dim, in the order of the log, with the other iterations as given. All that are there come first.
    pub(crate) fn cells_along(&self, dim: usize, k: &[u64; MAX_DEPTH as usize]) -> u64 {
        let dim = &self.dims[dim];
        let at = dim.level as usize;
        let inside = |mut left: u64| {
            left > 0
                && self.levels[at + 1..]
                    .iter()
                    .zip(&k[at + 1..])
                    .all(|(level, k)| {
                        let there = k * level.per < left;
                        left = level.per.min(left.saturating_sub(k * level.per));
                        there
                    })
        };
        let mut left = self.elements();
        for (level, k) in self.levels[..at].iter().zip(k) {
            left = level.per.min(left.saturating_sub(k * level.per));
        }
        let per = self.levels[at].per;
        match (inside(per), inside(left % per)) {
            (true, cut) => left / per + u64::from(cut),
            (false, _) => 0,
        }
    }

    /// How a step along a dim goes in the log, and whether it goes down.
    pub(crate) fn step(&self, dim: usize) -> (u64, bool) {
        let dim = &self.dims[dim];
        (self.levels[dim.level as usize].per_bytes, dim.flip)
    }

    /// Length of the only element of a cell, if it has no body.
    pub(crate) fn leaf(&self) -> Option<u64> {
        match self.inner {
            CellBody::Leaf(len) => Some(len),
            CellBody::Body(..) => None,
        }
    }

    /// The elements of a cell's body in the order of the log: their runs, where the first is relative to `base`, and its log bytes before. Only
    /// from the first element on that ends after byte `rest`. `base` is the offset of the cell's lowest byte.
    pub(crate) fn runs(
        &self,
        arena: &Arena,
        elements: u64,
        base: u64,
        rest: u64,
    ) -> Option<(ExpectedRun, Cursor, u64)> {
        let CellBody::Body(first, len) = self.inner else {
            return None;
        };
        let body = self.items(arena)?;
        let (mut index, mut bytes_before) = (0, 0);
        if rest > 0 {
            let hit = |rest| self.hit_in_cell(arena, body, elements, rest);
            let next = || hit(self.next_in_cell(arena, rest)?);
            let found = hit(rest).or_else(next)?;
            (index, bytes_before) = (found.index, found.bytes_before);
        }
        let start = base.wrapping_sub(self.bounds.0 as u64);
        let (run, cursor) = Cursor::from(arena, (first, len), start, elements, index);
        Some((run, cursor, bytes_before))
    }

    /// The least start after byte `rest` in one cell, relative to the cell's lowest byte.
    pub(crate) fn next_in_cell(&self, arena: &Arena, rest: u64) -> Option<u64> {
        let body = self.items(arena)?;
        let per = self.levels.last()?.per;
        let rel = i64::try_from(rest).ok()?.checked_add(self.bounds.0)?;
        let next = next_start_body(arena, body, per, rel)?;
        Some((next - self.bounds.0) as u64)
    }

    pub(crate) fn memory(&self) -> usize {
        self.dims.capacity() * size_of::<Dim>() + self.levels.capacity() * size_of::<Level>()
    }
}

/// Whether the elements of a shape follow each other in the log.
fn gapless(arena: &Arena, shape: Shape) -> bool {
    match shape.kind() {
        ShapeKind::Leaf(_) => true,
        ShapeKind::Loop(id) => {
            let l = arena.get(id);
            l.steps.gap == 0 && arena.body(l).iter().all(|i| gapless(arena, i.shape))
        }
    }
}
