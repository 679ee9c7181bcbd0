//! The encoded body of a segment: loops, then terms, each as columns of numbers.
//!
//! ```text
//!  body   | grain | grain of lengths | loops | loop ... | terms | starts | shapes | breaks | break ... |   or, flag 8:
//!         | offset | length |
//!  loop   | elements | stride | gap | items | starts of items 1.. | shapes of items |
//!  starts   distance from the end of the item or term before, or from 0; signed
//!  shapes   runs: | code * 2 + (1 if a count follows) | count - 2 |
//!  code     0..8: the shape used so many shapes ago, the newest first; 8 + 2 * length; 9 + 2 * (loops since that loop)
//!  break  | terms since the last break | bytes skipped in the log, signed |
//! ```
//!
//! All are varints; signed ones have the sign in the lowest bit. Distances and strides count grains, lengths grains of lengths:
//! the largest units of which all are multiples. Loops come after the loops in them. Grains are there with flag 16 (else they
//! are 1), loops with flag 32, breaks with flag 64, gaps of loops (log bytes skipped after each iteration; else 0) with flag
//! 128. A single leaf has a form of its own.
//!
//! Three forms are tried, and the shortest is kept: folded, with short loops unrolled, all unrolled. So irregular extents
//! take what a plain list of distances and lengths takes.

use crate::Pattern;
use crate::shape::{Arena, Loop, Shape, ShapeKind};
use crate::shape_cache::ShapeCache;
use crate::stack::Term;
use forebay_codec::varint;
use std::collections::HashMap;

/// Loops of fewer elements are unrolled in the second form.
const UNROLLED_ELEMENTS: u64 = 8;
/// The plain form is tried up to this many elements a term.
const PLAIN_ELEMENTS_PER_TERM: u64 = 16;

pub(crate) const ONE_LEAF: u8 = 8;
pub(crate) const GRAINS: u8 = 16;
pub(crate) const LOOPS: u8 = 32;
pub(crate) const BREAKS: u8 = 64;
pub(crate) const GAPS: u8 = 128;
/// Bodies up to this size are tried without grains too.
const SMALL_BODY_BYTES: usize = 64;

/// Flags and bytes of the shortest body of `pattern`.
pub(crate) fn body(pattern: &Pattern) -> (u8, Vec<u8>) {
    let mut best = folded(pattern);
    if pattern.arena.loops.is_empty() {
        return best;
    }
    for most in [UNROLLED_ELEMENTS, u64::MAX] {
        if most == u64::MAX && pattern.elements() / PLAIN_ELEMENTS_PER_TERM > pattern.terms() as u64
        {
            continue;
        }
        let terms = unrolled(pattern, most);
        let other = written(&pattern.arena, &terms);
        if other.1.len() < best.1.len() {
            best = other;
        }
    }
    best
}

/// The same, with the terms as they are.
pub(crate) fn folded(pattern: &Pattern) -> (u8, Vec<u8>) {
    if let [term] = &pattern.terms[..]
        && let ShapeKind::Leaf(len) = term.shape.kind()
    {
        let mut out = Vec::with_capacity(16);
        varint::put(&mut out, term.start);
        varint::put(&mut out, len);
        return (ONE_LEAF, out);
    }
    written(&pattern.arena, &pattern.terms)
}

/// The terms with grains, or without if that is shorter.
fn written(arena: &Arena, terms: &[Term]) -> (u8, Vec<u8>) {
    let mut form = BodyForm::new(arena, terms);
    let with = form.put();
    if with.0 & GRAINS == 0 || with.1.len() > SMALL_BODY_BYTES {
        return with;
    }
    (form.grain, form.len_grain) = (1, 1);
    let without = form.put();
    if without.1.len() < with.1.len() {
        without
    } else {
        with
    }
}

/// The terms, with those of fewer than `most` elements replaced by their elements.
fn unrolled(pattern: &Pattern, most: u64) -> Vec<Term> {
    let mut out = Vec::with_capacity(pattern.terms.len());
    for term in &pattern.terms {
        let elements = pattern.arena.elements(term.shape);
        if elements == 1 || elements >= most {
            out.push(*term);
            continue;
        }
        out.extend((0..elements).map(|i| {
            let e = crate::pattern::element(&pattern.arena, term, i);
            Term {
                start: e.offset,
                addr: e.addr,
                shape: Shape::leaf(e.len),
            }
        }));
    }
    out
}

/// Terms and the loops they need, about to be written.
struct BodyForm<'a> {
    arena: &'a Arena,
    terms: &'a [Term],
    /// Loops in the order of writing, the inner ones first.
    order: Vec<u32>,
    places: HashMap<u32, u64>,
    grain: u64,
    len_grain: u64,
}

impl<'a> BodyForm<'a> {
    fn new(arena: &'a Arena, terms: &'a [Term]) -> BodyForm<'a> {
        let mut form = BodyForm {
            arena,
            terms,
            order: Vec::new(),
            places: HashMap::new(),
            grain: 0,
            len_grain: 0,
        };
        for term in terms {
            form.visit(term.shape);
        }
        let mut grain = distances(arena, terms.iter().map(|t| (t.start, t.shape))).fold(0, gcd);
        for &id in &form.order {
            let l = arena.get(id);
            grain = gcd(grain, l.steps.stride);
            grain = item_distances(arena, l).fold(grain, gcd);
        }
        (form.grain, form.len_grain) = (grain.max(1), form.len_grain.max(1));
        form
    }

    fn visit(&mut self, shape: Shape) {
        match shape.kind() {
            ShapeKind::Leaf(len) => self.len_grain = gcd(self.len_grain, len as i64),
            ShapeKind::Loop(id) => {
                if self.places.contains_key(&id) {
                    return;
                }
                for item in self.arena.body(self.arena.get(id)) {
                    self.visit(item.shape);
                }
                self.places.insert(id, self.order.len() as u64);
                self.order.push(id);
            }
        }
    }

    fn put(&self) -> (u8, Vec<u8>) {
        let mut flags = 0;
        let mut bytes = Vec::with_capacity(64);
        let out = &mut bytes;
        if (self.grain, self.len_grain) != (1, 1) {
            flags |= GRAINS;
            varint::put(out, self.grain);
            varint::put(out, self.len_grain);
        }
        if !self.order.is_empty() {
            flags |= LOOPS;
            varint::put(out, self.order.len() as u64);
        }
        let gaps = self
            .order
            .iter()
            .any(|&id| self.arena.get(id).steps.gap > 0);
        if gaps {
            flags |= GAPS;
        }
        let mut recent = ShapeCache::default();
        for (place, &id) in self.order.iter().enumerate() {
            let l = self.arena.get(id);
            varint::put(out, l.steps.elements);
            self.signed(out, l.steps.stride);
            if gaps {
                varint::put(out, l.steps.gap);
            }
            let body = self.arena.body(l);
            varint::put(out, body.len() as u64);
            item_distances(self.arena, l).for_each(|d| self.signed(out, d));
            self.shapes(out, &mut recent, place as u64, body.iter().map(|i| i.shape));
        }
        varint::put(out, self.terms.len() as u64);
        let parts = self.terms.iter().map(|t| (t.start, t.shape));
        distances(self.arena, parts).for_each(|d| self.signed(out, d));
        let place = self.order.len() as u64;
        self.shapes(out, &mut recent, place, self.terms.iter().map(|t| t.shape));
        let (count, breaks) = self.address_breaks();
        if count > 0 {
            flags |= BREAKS;
            varint::put(out, count);
            out.extend_from_slice(&breaks);
        }
        (flags, bytes)
    }

    fn signed(&self, out: &mut Vec<u8>, value: i64) {
        varint::put(out, varint::fold((value / self.grain as i64) as u64));
    }

    fn shapes(
        &self,
        out: &mut Vec<u8>,
        recent: &mut ShapeCache,
        place: u64,
        shapes: impl Iterator<Item = Shape>,
    ) {
        let mut shapes = shapes.peekable();
        while let Some(shape) = shapes.next() {
            let mut more = 0;
            while shapes.next_if_eq(&shape).is_some() {
                more += 1;
            }
            let code = recent.place(shape).unwrap_or_else(|| match shape.kind() {
                ShapeKind::Leaf(len) => ShapeCache::SIZE + 2 * (len / self.len_grain),
                ShapeKind::Loop(id) => ShapeCache::SIZE + 1 + 2 * (place - 1 - self.places[&id]),
            });
            recent.used(shape);
            varint::put(out, code * 2 + u64::from(more > 0));
            if more > 0 {
                varint::put(out, more - 1);
            }
        }
    }

    fn address_breaks(&self) -> (u64, Vec<u8>) {
        let mut list = Vec::new();
        let (mut at, mut count) = (0, 0);
        let mut end = self.terms.first().map_or(0, |t| t.addr);
        for (i, term) in self.terms.iter().enumerate() {
            if term.addr != end {
                varint::put(&mut list, (i - at) as u64);
                varint::put(&mut list, varint::fold(term.addr.wrapping_sub(end)));
                (at, count) = (i, count + 1);
            }
            end = term.addr + self.arena.bytes(term.shape);
        }
        (count, list)
    }
}

/// Distance of each part from the end of the one before, of the first from 0.
fn distances(
    arena: &Arena,
    parts: impl Iterator<Item = (u64, Shape)>,
) -> impl Iterator<Item = i64> {
    parts.scan(0u64, |end, (start, shape)| {
        let distance = start.wrapping_sub(*end) as i64;
        *end = start.wrapping_add(arena.bounds(shape).1 as u64);
        Some(distance)
    })
}

/// The same of a loop's items but the first, which starts at 0.
fn item_distances(arena: &Arena, l: &Loop) -> impl Iterator<Item = i64> {
    let items = arena.body(l).iter();
    distances(arena, items.map(|i| (i.rel as u64, i.shape))).skip(1)
}

/// The greatest common divisor; the other number if one is 0.
pub(crate) fn gcd(mut a: u64, b: i64) -> u64 {
    let mut b = b.unsigned_abs();
    if a == 1 {
        return 1;
    }
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
