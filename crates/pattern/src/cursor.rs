//! A cursor over the elements of a shape, or over those that are expected of an open loop, in log order.
//!
//! It hands out runs of elements of one length and one stride, so most steps are one addition.

use crate::shape::{Arena, Shape, ShapeKind};

/// The run that is expected next.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExpectedRun {
    /// Start of the next element.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) stride: u64,
    /// Elements left in the run; 0: nothing is expected.
    pub(crate) left: u64,
}

/// A loop that a cursor is inside.
#[derive(Debug, Clone, Copy)]
struct LoopFrame {
    items: (u32, u32),
    stride: u64,
    /// Start of the iteration.
    base: u64,
    /// The next item.
    item: u32,
    /// Elements to come of this loop.
    left: u64,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cursor {
    frames: Vec<LoopFrame>,
    /// Elements in all runs handed out.
    granted: u64,
}

impl Cursor {
    /// Sets the cursor at the start of an iteration of an endless loop, and returns the first run.
    pub(crate) fn start(
        &mut self,
        arena: &Arena,
        items: (u32, u32),
        stride: i64,
        base: u64,
    ) -> ExpectedRun {
        self.granted = 0;
        self.frames.clear();
        self.frames.push(LoopFrame {
            items,
            stride: stride as u64,
            base,
            item: 0,
            left: u64::MAX,
        });
        self.next(arena)
    }

    /// Sets the cursor at the start of a shape that is gone through once, and returns the first run.
    pub(crate) fn start_shape(&mut self, arena: &Arena, shape: Shape, start: u64) -> ExpectedRun {
        self.granted = 0;
        self.frames.clear();
        match shape.kind() {
            ShapeKind::Leaf(len) => self.grant(start, len, 0, 1),
            ShapeKind::Loop(id) => {
                let run = self.enter(arena, id, start, arena.get(id).steps.elements);
                run.unwrap_or_else(|| self.next(arena))
            }
        }
    }

    /// Takes one element of the run; behind its last one it becomes the next run.
    #[inline]
    pub(crate) fn advance(&mut self, run: &mut ExpectedRun, arena: &Arena) {
        run.offset = run.offset.wrapping_add(run.stride);
        run.left -= 1;
        if run.left == 0 {
            *run = self.next(arena);
        }
    }

    /// A cursor through the first `elements` elements of a body whose first starts at `start`, once, from element number `index` on;
    /// and the run that begins there.
    pub(crate) fn from(
        arena: &Arena,
        mut items: (u32, u32),
        start: u64,
        mut elements: u64,
        mut index: u64,
    ) -> (ExpectedRun, Cursor) {
        let mut cursor = Cursor::default();
        let (mut base, mut stride) = (start, 0);
        loop {
            let body = arena.items(items);
            let item = body.partition_point(|i| i.elements_before <= index);
            let Some(found) = item.checked_sub(1).and_then(|at| body.get(at)) else {
                return (ExpectedRun::default(), Cursor::default());
            };
            let count = arena.elements(found.shape);
            let behind = elements.saturating_sub(found.elements_before);
            let count = count.min(behind);
            index -= found.elements_before;
            cursor.frames.push(LoopFrame {
                items,
                stride,
                base,
                item: item as u32,
                left: behind - count,
            });
            let at = base.wrapping_add(found.rel as u64);
            let id = match found.shape.kind() {
                ShapeKind::Leaf(len) => return (cursor.grant(at, len, 0, count), cursor),
                ShapeKind::Loop(id) => id,
            };
            let l = arena.get(id);
            stride = l.steps.stride as u64;
            let k = index / l.per;
            base = at.wrapping_add(stride.wrapping_mul(k));
            let first = arena.items[l.items.0 as usize].shape;
            if let (1, ShapeKind::Leaf(len)) = (l.items.1, first.kind()) {
                let left = count.saturating_sub(k);
                return (cursor.grant(base, len, stride, left), cursor);
            }
            (items, elements) = (l.items, count.saturating_sub(k * l.per));
            index -= k * l.per;
        }
    }

    /// The next run, once the last one is used up.
    pub(crate) fn next(&mut self, arena: &Arena) -> ExpectedRun {
        while let Some(frame) = self.frames.last_mut() {
            if frame.left == 0 {
                self.frames.pop();
                continue;
            }
            if frame.item == frame.items.1 {
                frame.item = 0;
                frame.base = frame.base.wrapping_add(frame.stride);
            }
            let item = &arena.items[(frame.items.0 + frame.item) as usize];
            frame.item += 1;
            let start = frame.base.wrapping_add(item.rel as u64);
            match item.shape.kind() {
                ShapeKind::Leaf(len) => {
                    frame.left -= 1;
                    return self.grant(start, len, 0, 1);
                }
                ShapeKind::Loop(id) => {
                    let count = arena.get(id).steps.elements.min(frame.left);
                    frame.left -= count;
                    if let Some(run) = self.enter(arena, id, start, count) {
                        return run;
                    }
                }
            }
        }
        ExpectedRun::default()
    }

    /// Goes into the first `count` elements of a loop that starts at `start`: they are one run, or have a frame.
    #[inline]
    fn enter(&mut self, arena: &Arena, id: u32, start: u64, count: u64) -> Option<ExpectedRun> {
        let l = arena.get(id);
        let (items, stride) = (l.items, l.steps.stride as u64);
        let first = arena.items[items.0 as usize].shape;
        if let (1, ShapeKind::Leaf(len)) = (items.1, first.kind()) {
            return Some(self.grant(start, len, stride, count));
        }
        self.frames.push(LoopFrame {
            items,
            stride,
            base: start,
            item: 0,
            left: count,
        });
        None
    }

    fn grant(&mut self, offset: u64, len: u64, stride: u64, left: u64) -> ExpectedRun {
        self.granted = self.granted.wrapping_add(left);
        ExpectedRun {
            offset,
            len,
            stride,
            left,
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.frames.capacity() * size_of::<LoopFrame>()
    }

    /// Elements taken since the start, when `left` of the last run are not.
    pub(crate) fn taken(&self, left: u64) -> u64 {
        self.granted.wrapping_sub(left)
    }
}
