//! A global pattern: one shape at many places of a file (slots), written by many logs. An offset is found by one division for each
//! axis.
//!
//! ```text
//! axes, the largest stride first:   loops of the shape | starts of the slots: even, or a sorted table
//! slot number -> log, sequence, address of its first byte                see `slot_writers`
//! ```
//!
//! Each slot has its own address and sequence. So headers may differ in length, and a log may have several slots.
//!
//! # Invariants
//! 1. Cells do not overlap (see `lattice`), and slots do not: at most one extent holds a byte.
//! 2. Slots are numbered by their start, ascending.

use crate::Segment;
use crate::column::Column;
use crate::lattice::Lattice;
use crate::segment::PlacedExtent;
use crate::shape::{Arena, MAX_DEPTH, Shape};
use crate::slot_writers::SlotWriters;

/// Axes of a global pattern, at most: those of the loops and those of the slots.
pub(crate) const MAX_AXES: usize = MAX_DEPTH as usize + 4;

impl Axis {
    /// Whether it goes along a dim of the lattice.
    fn is_loop(&self) -> bool {
        matches!(self, Axis::Steps { weight: 0, .. })
    }

    pub(crate) fn count(&self) -> u64 {
        match self {
            Axis::Steps { count, .. } => *count,
            Axis::Table(starts) => starts.len() as u64,
        }
    }
}

/// An axis, see the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Even steps, each of `weight` slots; 0: of cells of one slot, along a dim of the lattice.
    Steps {
        stride: u64,
        count: u64,
        weight: u64,
    },
    /// Slots at these distances from the first.
    Table(Box<[u64]>),
}

/// See the module.
#[derive(Debug, Clone)]
pub struct GlobalPattern {
    pub(crate) arena: Arena,
    pub(crate) shape: Shape,
    pub(crate) lattice: Lattice,
    pub(crate) axes: Vec<Axis>,
    /// Start of slot 0's shape.
    pub(crate) start: u64,
    pub(crate) slots: u64,
    pub(crate) writers: SlotWriters,
    pub(crate) limit: Option<u64>,
    extent: u64,
}

/// Where slots lie, relative to the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SlotStarts {
    /// Even steps inside even steps: (stride, count), the outermost first.
    Even(Vec<(u64, u64)>),
    Table(Box<[u64]>),
}

impl SlotStarts {
    pub(crate) fn count(&self) -> Option<u64> {
        match self {
            SlotStarts::Even(dims) => dims.iter().try_fold(1u64, |n, d| n.checked_mul(d.1)),
            SlotStarts::Table(starts) => Some(starts.len() as u64),
        }
    }
}

impl GlobalPattern {
    /// A pattern of `shape` at `places` from `start` on. `None` if its cells would overlap.
    pub(crate) fn new(
        from: &Arena,
        shape: Shape,
        start: u64,
        places: SlotStarts,
        writers: SlotWriters,
        limit: Option<u64>,
    ) -> Option<GlobalPattern> {
        let mut arena = Arena::default();
        let shape = arena.copy(from, shape, &mut Default::default());
        arena.freeze();
        let lattice = Lattice::new(&arena, shape)?;
        let slots = places.count()?;
        let (axes, extent) = axes(&lattice, &places)?;
        let base = i64::try_from(start).ok()?.checked_add(lattice.low)?;
        if base < 0 || axes.len() > MAX_AXES || slots == 0 {
            return None;
        }
        Some(GlobalPattern {
            arena,
            shape,
            lattice,
            axes,
            start,
            slots,
            writers,
            limit,
            extent,
        })
    }

    /// A term of a segment, whose shape is in `arena`, as a pattern of one slot.
    pub(crate) fn single(
        segment: &Segment,
        arena: &Arena,
        term: &crate::stack::Term,
    ) -> Option<GlobalPattern> {
        let writers = SlotWriters::new(&[(segment.source, segment.last, term.addr)], &[])?;
        let places = SlotStarts::Even(Vec::new());
        GlobalPattern::new(
            arena,
            term.shape,
            term.start,
            places,
            writers,
            segment.limit,
        )
    }

    fn base(&self) -> u64 {
        self.start.wrapping_add(self.lattice.low as u64)
    }

    /// Offsets from the lowest to after the highest byte that there may be.
    pub fn bounds(&self) -> (u64, u64) {
        let (base, end) = (self.base(), self.base().saturating_add(self.extent));
        let limit = self.limit.unwrap_or(u64::MAX);
        (base.min(limit), end.min(limit))
    }

    /// Number of logs' parts in it.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Number of extents, those after the limit too.
    pub fn elements(&self) -> u64 {
        self.slots.saturating_mul(self.lattice.elements())
    }

    /// Bytes of all extents, those after the limit too.
    pub fn bytes(&self) -> u64 {
        self.slots.saturating_mul(self.arena.bytes(self.shape))
    }

    /// Whose logs its bytes are in; a log that has several commits in it comes several times.
    pub fn sources(&self) -> impl Iterator<Item = crate::LogSource> + '_ {
        self.writers.sources()
    }

    /// Places in every axis of the cell that would hold `offset`, the slot, and the byte in the cell. Behind the last cell of an axis the
    /// byte is after the cell.
    #[inline]
    pub(crate) fn locate(&self, offset: u64, at: &mut [u64; MAX_AXES]) -> Option<(u64, u64)> {
        let mut rest = offset.checked_sub(self.base())?;
        let mut slot = 0;
        for (axis, at) in self.axes.iter().zip(at) {
            match axis {
                Axis::Steps {
                    stride,
                    count,
                    weight,
                } => {
                    let k = (rest / stride).min(count - 1);
                    rest -= k * stride;
                    slot += k * weight;
                    *at = k;
                }
                Axis::Table(starts) => {
                    // The first start is 0.
                    let k = starts.partition_point(|&s| s <= rest) - 1;
                    rest -= starts[k];
                    slot += k as u64;
                    *at = k as u64;
                }
            }
        }
        Some((slot, rest))
    }

    /// Places in the lattice's dims.
    #[inline]
    pub(crate) fn loops(&self, at: &[u64; MAX_AXES]) -> [u64; MAX_DEPTH as usize] {
        let mut loops = [0; MAX_DEPTH as usize];
        let axes = self.axes.iter().zip(at);
        let of_loops = axes.filter(|(axis, _)| axis.is_loop());
        for (k, (_, at)) in loops.iter_mut().zip(of_loops) {
            *k = *at;
        }
        loops
    }

    /// The slot and the offset of the cell at these places.
    #[inline]
    pub(crate) fn cell(&self, at: &[u64; MAX_AXES]) -> (u64, u64) {
        let (mut slot, mut offset) = (0, self.base());
        for (axis, k) in self.axes.iter().zip(at) {
            match axis {
                Axis::Steps { stride, weight, .. } => {
                    offset += k * stride;
                    slot += k * weight;
                }
                Axis::Table(starts) => {
                    offset += starts[*k as usize];
                    slot += k;
                }
            }
        }
        (slot, offset)
    }

    /// The extent that holds `offset`. Takes a division an axis, however many extents there are.
    pub(crate) fn hit(&self, offset: u64) -> Option<PlacedExtent> {
        let mut at = [0; MAX_AXES];
        let (slot, rest) = self.locate(offset, &mut at)?;
        let loops = self.loops(&at);
        let found = self.lattice.hit(&self.arena, &loops, rest)?;
        let (source, sequence, addr) = self.writers.get(slot);
        Some(PlacedExtent {
            offset: offset - (rest - found.rel as u64),
            len: found.len,
            source,
            addr: addr.wrapping_add(found.bytes_before),
            sequence,
        })
    }

    /// A place after `offset` and not after the next start of an extent. `None` if there is none.
    pub(crate) fn next_start(&self, offset: u64) -> Option<u64> {
        let base = self.base();
        if offset < base {
            return Some(base);
        }
        let mut at = [0; MAX_AXES];
        let (_, rest) = self.locate(offset, &mut at)?;
        if let Some(next) = self.lattice.next_in_cell(&self.arena, rest) {
            return Some(offset - rest + next);
        }
        // The first byte of the next cell: one step in the innermost axis that has one left.
        let mut cell = offset - rest;
        for (axis, k) in self.axes.iter().zip(at).rev() {
            let (here, next) = match axis {
                Axis::Steps { stride, count, .. } => {
                    (k * stride, (k + 1 < *count).then(|| (k + 1) * stride))
                }
                Axis::Table(starts) => (starts[k as usize], starts.get(k as usize + 1).copied()),
            };
            cell -= here;
            if let Some(next) = next {
                return Some(cell + next);
            }
        }
        None
    }

    /// Whether extents of a cell are in order, so that what follows a hit never overlaps it.
    pub(crate) fn increasing(&self) -> bool {
        self.lattice.increasing
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        let tables = self.axes.iter().map(|a| match a {
            Axis::Table(starts) => starts.len() * 8,
            _ => 0,
        });
        size_of::<GlobalPattern>()
            + self.arena.memory()
            + self.lattice.memory()
            + self.axes.capacity() * size_of::<Axis>()
            + tables.sum::<usize>()
            + self
                .writers
                .columns()
                .map(Column::memory)
                .iter()
                .sum::<usize>()
    }
}

/// The axes of loops and slots together, sorted, and the bytes they span; `None` if one has too little room.
fn axes(lattice: &Lattice, places: &SlotStarts) -> Option<(Vec<Axis>, u64)> {
    let mut axes: Vec<Axis> = lattice
        .dims
        .iter()
        .map(|d| Axis::Steps {
            stride: d.stride,
            count: d.count,
            weight: 0,
        })
        .collect();
    match places {
        SlotStarts::Even(dims) => {
            let mut weight = places.count()?;
            for &(stride, count) in dims {
                weight = weight.checked_div(count)?;
                if count > 1 {
                    axes.push(Axis::Steps {
                        stride,
                        count,
                        weight,
                    });
                }
            }
            axes.sort_by_key(|a| std::cmp::Reverse(stride_of(a)));
        }
        SlotStarts::Table(starts) => {
            // It stands above the loops that fit between two slots.
            let gap = starts.windows(2).map(|w| w[1].checked_sub(w[0])).min()??;
            if starts.first() != Some(&0) {
                return None;
            }
            let at = (0..=axes.len()).find(|&at| lattice.extent(at).is_some_and(|e| e <= gap))?;
            axes.insert(at, Axis::Table(starts.clone()));
        }
    }
    let cell = lattice.extent(lattice.dims.len())?;
    let extent = axes.iter().rev().try_fold(cell, |extent, axis| {
        let (room, span) = match axis {
            Axis::Steps { stride, count, .. } => (*stride, stride.checked_mul(count - 1)?),
            Axis::Table(starts) => (
                starts.windows(2).map(|w| w[1] - w[0]).min()?,
                *starts.last()?,
            ),
        };
        (room >= extent.max(1)).then_some(())?;
        extent.checked_add(span)
    })?;
    (extent >> 62 == 0).then_some((axes, extent))
}

fn stride_of(axis: &Axis) -> u64 {
    match axis {
        Axis::Steps { stride, .. } => *stride,
        Axis::Table(_) => 0,
    }
}
