//! Shapes: what a nest of loops looks like, wherever it starts.
//!
//! ```text
//! shape = leaf(len)                                        one extent of `len` bytes
//!       | loop(stride, elements, body = [(rel, shape)...]) iteration k starts at k * stride; item j at `rel[j]` in it
//! ```
//!
//! A loop says how many *elements* (leaves) it has, not how many iterations: the last iteration may be cut anywhere. So a
//! tail that is shorter than a period costs nothing.
//!
//! # Invariants
//! 1. Equal loops of an arena have one number (they are hash-consed), so that comparing shapes is comparing two integers.
//! 2. `rel` of the first item is 0: a shape starts where its first element starts.
//! 3. A body names loops with smaller numbers only: there are no circles.
//! 4. All bounds are relative to the start and fit 64 bits with sign; [`Arena::add`] refuses what does not.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Loops inside loops, at most.
pub(crate) const MAX_DEPTH: u8 = 12;

const LOOP: u64 = 1 << 63;

/// A shape: a length, or the number of a loop in an [`Arena`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape(u64);

/// What a [`Shape`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShapeKind {
    Leaf(u64),
    Loop(u32),
}

impl Shape {
    pub(crate) fn leaf(len: u64) -> Shape {
        Shape(len & !LOOP)
    }

    fn of_loop(id: u32) -> Shape {
        Shape(LOOP | u64::from(id))
    }

    pub(crate) fn kind(self) -> ShapeKind {
        if self.0 & LOOP == 0 {
            ShapeKind::Leaf(self.0)
        } else {
            ShapeKind::Loop(self.0 as u32)
        }
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

/// One part of a loop's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoopItem {
    /// Start, bytes from the iteration's start.
    pub(crate) rel: i64,
    pub(crate) shape: Shape,
    /// Elements of the items before it.
    pub(crate) elements_before: u64,
    /// Bytes of the items before it.
    pub(crate) bytes_before: u64,
}

/// How a loop goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    /// Bytes of the file from an iteration to the next.
    pub(crate) stride: i64,
    pub(crate) elements: u64,
    /// Bytes of the log after each iteration that belong to something else; 0 in what one log's folding finds.
    pub(crate) gap: u64,
}

/// A loop. Bounds are those of the bytes that elements cover, relative to the loop's start.
#[derive(Debug, Clone)]
pub(crate) struct Loop {
    pub(crate) steps: Steps,
    /// Elements of one iteration.
    pub(crate) per: u64,
    /// Bytes of all elements, gaps of the log between them included.
    pub(crate) bytes: u64,
    /// Bytes of one iteration, with the gap after it.
    pub(crate) per_bytes: u64,
    pub(crate) items: (u32, u32),
    /// Bounds of the whole loop.
    pub(crate) bounds: (i64, i64),
    /// Bounds of one iteration.
    pub(crate) body: (i64, i64),
    pub(crate) depth: u8,
    /// Every element starts at the end of the one before, or after it.
    pub(crate) increasing: bool,
}

/// Fingerprints are mixed already.
#[derive(Default)]
pub(crate) struct PremixedHasher(u64);

impl Hasher for PremixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0, u64::from(byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

pub(crate) type LoopsByFingerprint = HashMap<u64, u32, BuildHasherDefault<PremixedHasher>>;

/// Mixes `value` into `state`.
pub(crate) fn mix(state: u64, value: u64) -> u64 {
    let product = u128::from(state ^ value ^ 0x9e37_79b9_7f4a_7c15) * 0xd1b5_4a32_d192_ed03_u128;
    (product as u64) ^ ((product >> 64) as u64)
}

/// Loops and their bodies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arena {
    pub(crate) loops: Vec<Loop>,
    pub(crate) items: Vec<LoopItem>,
    /// By fingerprint: all that were added. Those of an encoded pattern are appended as they come.
    by_fingerprint: LoopsByFingerprint,
}

impl Arena {
    pub(crate) fn get(&self, id: u32) -> &Loop {
        &self.loops[id as usize]
    }

    /// The items that a body counts: the first, and how many.
    pub(crate) fn items(&self, (first, count): (u32, u32)) -> &[LoopItem] {
        &self.items[first as usize..][..count as usize]
    }

    pub(crate) fn body(&self, l: &Loop) -> &[LoopItem] {
        self.items(l.items)
    }

    /// Elements of a shape.
    pub(crate) fn elements(&self, shape: Shape) -> u64 {
        match shape.kind() {
            ShapeKind::Leaf(_) => 1,
            ShapeKind::Loop(id) => self.get(id).steps.elements,
        }
    }

    /// Length of a shape's first element.
    pub(crate) fn first_len(&self, mut shape: Shape) -> u64 {
        loop {
            match shape.kind() {
                ShapeKind::Leaf(len) => return len,
                ShapeKind::Loop(id) => shape = self.items[self.get(id).items.0 as usize].shape,
            }
        }
    }

    /// Bytes of a shape's elements.
    pub(crate) fn bytes(&self, shape: Shape) -> u64 {
        match shape.kind() {
            ShapeKind::Leaf(len) => len,
            ShapeKind::Loop(id) => self.get(id).bytes,
        }
    }

    /// Bounds of a shape, relative to its start.
    pub(crate) fn bounds(&self, shape: Shape) -> (i64, i64) {
        match shape.kind() {
            ShapeKind::Leaf(len) => (0, len as i64),
            ShapeKind::Loop(id) => self.get(id).bounds,
        }
    }

    pub(crate) fn depth(&self, shape: Shape) -> u8 {
        match shape.kind() {
            ShapeKind::Leaf(_) => 0,
            ShapeKind::Loop(id) => self.get(id).depth,
        }
    }

    pub(crate) fn increasing(&self, shape: Shape) -> bool {
        match shape.kind() {
            ShapeKind::Leaf(_) => true,
            ShapeKind::Loop(id) => self.get(id).increasing,
        }
    }

    /// Appends the body of a loop; the starts are relative to anything. `None` if the sums are too large.
    pub(crate) fn push_body(
        &mut self,
        body: impl IntoIterator<Item = (u64, Shape)>,
    ) -> Option<(u32, u32)> {
        let first = self.items.len();
        let (mut elements, mut bytes, mut base) = (0u64, 0u64, None);
        for (start, shape) in body {
            let base = *base.get_or_insert(start);
            self.items.push(LoopItem {
                rel: start.wrapping_sub(base) as i64,
                shape,
                elements_before: elements,
                bytes_before: bytes,
            });
            elements = elements.checked_add(self.elements(shape))?;
            bytes = bytes.checked_add(self.bytes(shape))?;
        }
        let len = self.items.len() - first;
        Some((u32::try_from(first).ok()?, u32::try_from(len).ok()?))
    }

    /// Elements and bytes of a body.
    pub(crate) fn sums(&self, items: (u32, u32)) -> (u64, u64) {
        let last = &self.items[items.0 as usize + items.1 as usize - 1];
        (
            last.elements_before + self.elements(last.shape),
            last.bytes_before + self.bytes(last.shape),
        )
    }

    /// The loop of `elements` elements over a body that [`Arena::push_body`] appended last, or a loop that exists already and is
    /// the same. `None` if the body is empty, or if offsets or sums are too large.
    pub(crate) fn add(&mut self, steps: Steps, items: (u32, u32)) -> Option<Shape> {
        if items.1 == 0 || steps.elements == 0 {
            return None;
        }
        let mut fingerprint = self.fingerprint(steps, items);
        // Different loops may have one fingerprint; the later has the next.
        while let Some(&id) = self.by_fingerprint.get(&fingerprint) {
            if self.same(id, steps, items) {
                if self.get(id).items != items && (items.0 + items.1) as usize == self.items.len() {
                    self.items.truncate(items.0 as usize);
                }
                return Some(Shape::of_loop(id));
            }
            fingerprint = fingerprint.wrapping_add(1);
        }
        let shape = self.append(steps, items)?;
        if let ShapeKind::Loop(id) = shape.kind() {
            self.by_fingerprint.insert(fingerprint, id);
        }
        Some(shape)
    }

    /// As [`Arena::add`], but always a new loop, as another arena had it too.
    pub(crate) fn append(&mut self, steps: Steps, items: (u32, u32)) -> Option<Shape> {
        if items.1 == 0 || steps.elements == 0 {
            return None;
        }
        let made = self.measured(steps, items)?;
        let id = u32::try_from(self.loops.len()).ok()?;
        self.loops.push(made);
        Some(Shape::of_loop(id))
    }

    fn fingerprint(&self, steps: Steps, items: (u32, u32)) -> u64 {
        let seed = [steps.stride as u64, steps.elements, steps.gap]
            .into_iter()
            .fold(0, mix);
        self.items(items)
            .iter()
            .fold(seed, |p, i| mix(mix(p, i.rel as u64), i.shape.bits()))
    }

    fn same(&self, id: u32, steps: Steps, items: (u32, u32)) -> bool {
        let l = self.get(id);
        l.steps == steps && (l.items == items || self.body(l) == self.items(items))
    }

    /// Copies `shape` of another arena into this one; `seen` keeps what was copied.
    pub(crate) fn copy(
        &mut self,
        from: &Arena,
        shape: Shape,
        seen: &mut HashMap<u32, Shape>,
    ) -> Shape {
        let ShapeKind::Loop(id) = shape.kind() else {
            return shape;
        };
        if let Some(&copied) = seen.get(&id) {
            return copied;
        }
        let l = from.get(id);
        let body: Vec<(u64, Shape)> = from
            .body(l)
            .iter()
            .map(|item| (item.rel as u64, self.copy(from, item.shape, seen)))
            .collect();
        // What was measured once has sums that fit, and an arena has room for 2^32 loops.
        #[allow(clippy::expect_used)]
        let copied = self
            .push_body(body)
            .and_then(|items| self.add(l.steps, items))
            .expect("a loop that fits one arena fits another");
        seen.insert(id, copied);
        copied
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.loops.clear();
        self.items.clear();
        self.by_fingerprint.clear();
    }

    /// Frees memory that only adding needs.
    pub(crate) fn freeze(&mut self) {
        self.by_fingerprint = LoopsByFingerprint::default();
        self.loops.shrink_to_fit();
        self.items.shrink_to_fit();
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.loops.capacity() * size_of::<Loop>()
            + self.items.capacity() * size_of::<LoopItem>()
            + self.by_fingerprint.capacity() * 16
    }
}
