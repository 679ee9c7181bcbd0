//! The extents of a global pattern in the order of the file, a row at a time.
//!
//! ```text
//! row    extents of one length along the axis with the smallest stride:   offset, offset + stride, offset + 2 * stride, ...
//!        that axis is a loop:       all in the log of one slot, at addr, addr + step, ...
//!        that axis is the slots:    each in the log of the next slot, as far after that slot's first byte
//! ```
//!
//! So most extents cost some additions, and only a new row looks at the other axes. If a cell has several elements, its rows
//! are the runs of these.
//!
//! # Invariants
//! 1. Rows and what is in them come in the order of offsets, and do not overlap.
//! 2. Only for patterns whose lattice is `joined`: the elements of a cell are in order, apart, and follow each other in the log.

use crate::cursor::{Cursor, ExpectedRun};
use crate::global::{Axis, GlobalPattern, MAX_AXES};
use crate::segment::PlacedExtent;
use crate::slot_writers::SlotOrigin;

/// Slots whose origins are kept in a table while a long range is gone through, at most.
const MAX_CACHED_ORIGINS: u64 = 1 << 16;

/// Extents at even distances, `left` of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) offset: u64,
    pub(crate) stride: u64,
    pub(crate) len: u64,
    pub(crate) left: u64,
    pub(crate) along: RowAdvance,
}

/// What changes from one to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowAdvance {
    /// The address, by this.
    Log(SlotOrigin, u64),
    /// The slot, by this; each so many bytes after its first.
    Slots(u64, u64, u64),
}

impl Row {
    /// One extent.
    pub(crate) fn one(piece: PlacedExtent) -> Row {
        Row {
            offset: piece.offset,
            stride: 0,
            len: piece.len,
            left: 1,
            along: RowAdvance::Log((piece.source, piece.sequence, piece.addr), 0),
        }
    }

    /// The end of the first extent.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// The first extent; `rows` are those that the row came from.
    #[inline]
    pub(crate) fn piece(&self, rows: Option<&mut Rows<'_>>) -> PlacedExtent {
        let (source, sequence, addr) = match (self.along, rows) {
            (RowAdvance::Log(origin, _), _) => origin,
            (RowAdvance::Slots(slot, _, bytes), Some(rows)) => {
                let origin = rows.origin(slot);
                (origin.0, origin.1, origin.2.wrapping_add(bytes))
            }
            // Only rows go along slots.
            (RowAdvance::Slots(..), None) => SlotOrigin::default(),
        };
        PlacedExtent {
            offset: self.offset,
            len: self.len,
            source,
            addr,
            sequence,
        }
    }

    /// How many end at `bound` or before; the first does.
    pub(crate) fn within(&self, bound: u64) -> u64 {
        match self.stride {
            _ if self.left == 1 => 1,
            0 => self.left,
            stride => ((bound - self.end().min(bound)) / stride + 1).min(self.left),
        }
    }

    /// The next `count` are passed over.
    pub(crate) fn skip(&mut self, count: u64) {
        self.offset = self.offset.wrapping_add(self.stride.wrapping_mul(count));
        self.left -= count;
        match &mut self.along {
            RowAdvance::Log(origin, step) => {
                origin.2 = origin.2.wrapping_add(step.wrapping_mul(count))
            }
            RowAdvance::Slots(slot, weight, _) => *slot += *weight * count,
        }
    }

    /// Passes over those that end at `offset` or before; the row may have none left then.
    pub(crate) fn skip_to(&mut self, offset: u64) {
        if self.end() > offset {
            return;
        }
        let behind = offset - self.end();
        let count = match self.stride {
            0 => 1,
            stride => behind / stride + 1,
        };
        self.skip(count.min(self.left));
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Rows<'a> {
    global: &'a GlobalPattern,
    /// The place of the next cell in each axis.
    at: [u64; MAX_AXES],
    done: bool,
    /// The next run of the cell before, if it has a body, and what follows it; the origin has the run's address.
    run: ExpectedRun,
    inside: Cursor,
    origin: SlotOrigin,
    /// Origins asked for one by one so far; then all of them.
    asked: u64,
    origins: Vec<SlotOrigin>,
}

impl<'a> Rows<'a> {
    /// The rows from the cell on that holds `offset`, or is the last before it: the first extents may end at `offset` or before.
    pub(crate) fn new(global: &'a GlobalPattern, offset: u64) -> Rows<'a> {
        let mut rows = Rows {
            global,
            at: [0; MAX_AXES],
            done: false,
            run: ExpectedRun::default(),
            inside: Cursor::default(),
            origin: SlotOrigin::default(),
            asked: 0,
            origins: Vec::new(),
        };
        rows.seek(offset);
        rows
    }

    /// Goes on from another offset.
    pub(crate) fn seek(&mut self, offset: u64) {
        (self.at, self.done, self.run) = ([0; MAX_AXES], false, ExpectedRun::default());
        if let Some((_, rest)) = self.global.locate(offset, &mut self.at)
            && self.global.lattice.leaf().is_none()
        {
            self.enter(rest);
        }
    }

    /// The next row.
    pub(crate) fn next(&mut self) -> Option<Row> {
        loop {
            if self.run.left > 0 {
                let (run, origin) = (self.run, self.origin);
                self.origin.2 = origin.2.wrapping_add(run.len.wrapping_mul(run.left));
                self.run = self.inside.next(&self.global.arena);
                return Some(Row {
                    offset: run.offset,
                    stride: run.stride,
                    len: run.len,
                    left: run.left,
                    along: RowAdvance::Log(origin, run.len),
                });
            }
            if self.done {
                return None;
            }
            match self.global.lattice.leaf() {
                None => self.enter(0),
                Some(len) => {
                    if let Some(row) = self.row(len) {
                        return Some(row);
                    }
                }
            }
        }
    }

    /// Goes to the next cell, as far as axis number `axes` goes through; those after it begin anew.
    fn carry(&mut self, axes: usize) {
        for at in (0..axes).rev() {
            self.at[at] += 1;
            if self.at[at] < self.global.axes[at].count() {
                return;
            }
            self.at[at] = 0;
        }
        self.done = true;
    }

    /// The runs of this cell's body are next, from its byte `rest` on; then the next cell.
    fn enter(&mut self, rest: u64) {
        let global = self.global;
        let (slot, base) = global.cell(&self.at);
        let k = global.lattice.iterations(&global.loops(&self.at));
        if let Some(cell) = global.lattice.cell(&k)
            && let Some((run, inside, bytes)) =
                global
                    .lattice
                    .runs(&global.arena, cell.elements, base, rest)
        {
            (self.run, self.inside) = (run, inside);
            self.origin = self.origin(slot);
            self.origin.2 = self.origin.2.wrapping_add(cell.bytes_before + bytes);
        }
        self.carry(global.axes.len());
    }

    /// From this cell on to the last along the last axis; `None` if none of these is there.
    fn row(&mut self, len: u64) -> Option<Row> {
        let global = self.global;
        let (slot, offset) = global.cell(&self.at);
        let loops = global.loops(&self.at);
        let k = global.lattice.iterations(&loops);
        let outer = global.axes.len().saturating_sub(1);
        let from = self.at[outer];
        let mut row = Row {
            offset,
            stride: 0,
            len,
            left: 1,
            along: RowAdvance::Log(SlotOrigin::default(), 0),
        };
        match global.axes.get(outer) {
            Some(Axis::Steps {
                stride,
                count,
                weight: 0,
            }) => {
                self.at[outer] = 0;
                self.carry(outer);
                let dim = global.lattice.dims.len() - 1;
                let there = global.lattice.cells_along(dim, &k);
                let (step, down) = global.lattice.step(dim);
                let (first, behind) = if down {
                    (count - there, *count)
                } else {
                    (0, there)
                };
                let first = first.max(from);
                let left = behind.checked_sub(first).filter(|left| *left > 0)?;
                let mut loops = loops;
                loops[dim] = first;
                let cell = global.lattice.cell(&global.lattice.iterations(&loops))?;
                let (source, sequence, addr) = self.origin(slot);
                let addr = addr.wrapping_add(cell.bytes_before);
                let step = if down { step.wrapping_neg() } else { step };
                row.offset += (first - from) * stride;
                (row.stride, row.left) = (*stride, left);
                row.along = RowAdvance::Log((source, sequence, addr), step);
            }
            Some(Axis::Steps {
                stride,
                count,
                weight,
            }) => {
                self.at[outer] = 0;
                self.carry(outer);
                let cell = global.lattice.cell(&k)?;
                (row.stride, row.left) = (*stride, count - from);
                row.along = RowAdvance::Slots(slot, *weight, cell.bytes_before);
            }
            Some(Axis::Table(_)) | None => {
                self.carry(global.axes.len());
                let cell = global.lattice.cell(&k)?;
                let (source, sequence, addr) = self.origin(slot);
                row.along =
                    RowAdvance::Log((source, sequence, addr.wrapping_add(cell.bytes_before)), 0);
            }
        }
        Some(row)
    }

    #[inline]
    fn origin(&mut self, slot: u64) -> SlotOrigin {
        match self.origins.get(slot as usize) {
            Some(origin) => *origin,
            None => self.ask(slot),
        }
    }

    /// The origin of a slot. A table is worth it once as many were asked for as there are.
    #[inline(never)]
    fn ask(&mut self, slot: u64) -> SlotOrigin {
        self.asked += 1;
        if self.asked == self.global.slots && self.asked <= MAX_CACHED_ORIGINS {
            let all = 0..self.global.slots;
            self.origins = all.map(|slot| self.global.writers.get(slot)).collect();
        }
        self.global.writers.get(slot)
    }
}
