//! The body of a segment: loops, then terms, each by columns.
//!
//! ```text
//!  body   | grain | grain of lengths | loops | loop ... | terms | starts | shapes | breaks | break ... |   or, flag 8:
//!         | offset | length |
//!  loop   | elements | stride | items | starts of items 1.. | shapes of items |
//!  starts   distance from the end of the item or term before, or from 0; signed
//!  shapes   runs: | code * 2 + (1 if a count follows) | count - 2 |
//!  code     0..8: the shape used so many shapes ago, the newest first; 8 + 2 * length; 9 + 2 * (loops since that loop)
//!  break  | terms since the last break | bytes skipped in the log, signed |
//! ```
//!
//! All are varints; signed ones have the sign in the lowest bit. Distances and strides count grains, lengths grains of
//! lengths: the largest units of which all are multiples. Loops come after the loops in them. Grains are there with flag 16 (else
//! they are 1), loops with flag 32, breaks with flag 64. A single leaf has a form of its own.
//!
//! Three forms are tried, and the shortest is kept: folded, with short loops unrolled, all unrolled. So irregular extents
//! take what a plain list of distances and lengths takes.

use crate::Pattern;
use crate::recent::Recent;
use crate::shape::{Arena, Kind, Shape};
use crate::stack::Term;
use forebay_codec::varint;
use std::collections::HashMap;

/// Loops of fewer elements are unrolled in the second form.
const SHORT: u64 = 8;
/// The plain form is tried up to so many elements a term.
const PLAIN: u64 = 16;

const ONE_LEAF: u8 = 8;
const GRAINS: u8 = 16;
const LOOPS: u8 = 32;
const BREAKS: u8 = 64;
/// Bodies up to so many bytes are tried without grains too.
const SMALL: usize = 64;

/// Flags and bytes of the shortest body of `pattern`.
pub(crate) fn body(pattern: &Pattern) -> (u8, Vec<u8>) {
    let mut best = folded(pattern);
    if pattern.arena.loops.is_empty() {
        return best;
    }
    for most in [SHORT, u64::MAX] {
        if most == u64::MAX && pattern.elements() / PLAIN > pattern.terms() as u64 {
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
        && let Kind::Leaf(len) = term.shape.kind()
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
    let mut form = Form::new(arena, terms);
    let with = form.put();
    if with.0 & GRAINS == 0 || with.1.len() > SMALL {
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
struct Form<'a> {
    arena: &'a Arena,
    terms: &'a [Term],
    /// Loops in the order of writing, the inner ones first.
    order: Vec<u32>,
    places: HashMap<u32, u64>,
    grain: u64,
    len_grain: u64,
}

impl<'a> Form<'a> {
    fn new(arena: &'a Arena, terms: &'a [Term]) -> Form<'a> {
        let mut form = Form {
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
        let mut end = 0;
        for term in terms {
            form.grain = gcd(form.grain, distance(end, term.start));
            end = form.end(term.start, term.shape);
        }
        for &id in &form.order {
            let l = arena.get(id);
            form.grain = gcd(form.grain, l.stride.unsigned_abs());
            let mut end = 0;
            for item in arena.body(l) {
                if item.elements_before > 0 {
                    form.grain = gcd(form.grain, distance(end, item.rel as u64));
                }
                end = form.end(item.rel as u64, item.shape);
            }
        }
        (form.grain, form.len_grain) = (form.grain.max(1), form.len_grain.max(1));
        form
    }

    fn visit(&mut self, shape: Shape) {
        match shape.kind() {
            Kind::Leaf(len) => self.len_grain = gcd(self.len_grain, len),
            Kind::Loop(id) => {
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

    fn end(&self, start: u64, shape: Shape) -> u64 {
        start.wrapping_add(self.arena.bounds(shape).1 as u64)
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
        let mut recent = Recent::default();
        for (place, &id) in self.order.iter().enumerate() {
            let l = self.arena.get(id);
            varint::put(out, l.elements);
            self.signed(out, l.stride as u64);
            let body = self.arena.body(l);
            varint::put(out, body.len() as u64);
            let mut end = 0;
            for item in body {
                if item.elements_before > 0 {
                    self.signed(out, (item.rel as u64).wrapping_sub(end));
                }
                end = self.end(item.rel as u64, item.shape);
            }
            self.shapes(out, &mut recent, place as u64, body.iter().map(|i| i.shape));
        }
        varint::put(out, self.terms.len() as u64);
        let mut end = 0;
        for term in self.terms {
            self.signed(out, term.start.wrapping_sub(end));
            end = self.end(term.start, term.shape);
        }
        let place = self.order.len() as u64;
        self.shapes(out, &mut recent, place, self.terms.iter().map(|t| t.shape));
        let (count, breaks) = self.breaks();
        if count > 0 {
            flags |= BREAKS;
            varint::put(out, count);
            out.extend_from_slice(&breaks);
        }
        (flags, bytes)
    }

    fn signed(&self, out: &mut Vec<u8>, value: u64) {
        varint::put(out, varint::fold((value as i64 / self.grain as i64) as u64));
    }

    fn shapes(
        &self,
        out: &mut Vec<u8>,
        recent: &mut Recent,
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
                Kind::Leaf(len) => Recent::SIZE + 2 * (len / self.len_grain),
                Kind::Loop(id) => Recent::SIZE + 1 + 2 * (place - 1 - self.places[&id]),
            });
            recent.used(shape);
            varint::put(out, code * 2 + u64::from(more > 0));
            if more > 0 {
                varint::put(out, more - 1);
            }
        }
    }

    fn breaks(&self) -> (u64, Vec<u8>) {
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

fn distance(from: u64, to: u64) -> u64 {
    (to.wrapping_sub(from) as i64).unsigned_abs()
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    if a == 1 {
        return 1;
    }
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Reads a body whose first element is at `addr` of the log.
pub(crate) fn parse(flags: u8, bytes: &[u8], addr: u64) -> Result<Pattern, &'static str> {
    if flags & !(ONE_LEAF | GRAINS | LOOPS | BREAKS) != 0 {
        return Err("it has unknown flags");
    }
    let mut reader = Reader {
        bytes,
        flags,
        grain: 1,
        len_grain: 1,
        recent: Recent::default(),
        loops: Vec::new(),
        arena: Arena::default(),
    };
    let terms = if flags == ONE_LEAF {
        let (start, len) = (reader.next()?, reader.next()?);
        if (start | len | addr) >> 62 != 0 {
            return Err("its extent is too far");
        }
        let shape = Shape::leaf(len);
        vec![Term { start, addr, shape }]
    } else if flags & ONE_LEAF != 0 {
        return Err("its flags make no sense");
    } else {
        if flags & GRAINS != 0 {
            (reader.grain, reader.len_grain) = (reader.next()?, reader.next()?);
        }
        let loops = reader.given(LOOPS)?;
        for _ in 0..loops {
            reader.looped()?;
        }
        reader.terms(addr)?
    };
    if !reader.bytes.is_empty() {
        return Err("bytes are left over");
    }
    reader.arena.freeze();
    Ok(Pattern::with(reader.arena, terms))
}

struct Reader<'a> {
    bytes: &'a [u8],
    flags: u8,
    grain: u64,
    len_grain: u64,
    recent: Recent,
    loops: Vec<Shape>,
    arena: Arena,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<u64, &'static str> {
        varint::take(&mut self.bytes).ok_or("its body is cut off")
    }

    /// A number that is there with a flag, else 0.
    fn given(&mut self, flag: u8) -> Result<u64, &'static str> {
        if self.flags & flag == 0 {
            Ok(0)
        } else {
            self.next()
        }
    }

    /// A number of things of at least a byte each.
    fn count(&mut self) -> Result<usize, &'static str> {
        let count = usize::try_from(self.next()?).unwrap_or(usize::MAX);
        (count <= self.bytes.len())
            .then_some(count)
            .ok_or("it counts more than it has")
    }

    fn signed(&mut self) -> Result<i64, &'static str> {
        let grains = varint::unfold(self.next()?) as i64;
        let grain = i64::try_from(self.grain).map_err(|_| "its grain is too large")?;
        grains.checked_mul(grain).ok_or("a distance is too large")
    }

    fn looped(&mut self) -> Result<(), &'static str> {
        let elements = self.next()?;
        let stride = self.signed()?;
        let count = self.next()?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count == 0 || count > self.bytes.len() + 1 {
            return Err("a loop has no items, or more than there are");
        }
        let mut distances = Vec::with_capacity(count);
        distances.push(0);
        for _ in 1..count {
            distances.push(self.signed()?);
        }
        let shapes = self.shapes(count)?;
        let mut end = 0i64;
        let mut body = Vec::with_capacity(count);
        for (distance, shape) in distances.into_iter().zip(shapes) {
            let rel = end.checked_add(distance).ok_or("an item is too far")?;
            end = rel
                .checked_add(self.arena.bounds(shape).1)
                .ok_or("an item is too long")?;
            body.push((rel as u64, shape));
        }
        let items = self.arena.push_body(body).ok_or("a loop is too large")?;
        let shape = self
            .arena
            .add(stride, elements, items)
            .ok_or("a loop is too large")?;
        self.loops.push(shape);
        Ok(())
    }

    fn shapes(&mut self, count: usize) -> Result<Vec<Shape>, &'static str> {
        let mut out = Vec::with_capacity(count);
        while out.len() < count {
            let run = self.next()?;
            let shape = self.shape(run / 2)?;
            let more = if run % 2 == 1 {
                self.next()?.saturating_add(1)
            } else {
                0
            };
            let left = (count - out.len()) as u64;
            if more >= left {
                return Err("a run of shapes is too long");
            }
            out.extend(std::iter::repeat_n(shape, more as usize + 1));
        }
        Ok(out)
    }

    fn shape(&mut self, code: u64) -> Result<Shape, &'static str> {
        let shape = match code.checked_sub(Recent::SIZE) {
            None => self.recent.get(code),
            Some(code) if code % 2 == 0 => {
                let len = (code / 2).checked_mul(self.len_grain);
                len.filter(|len| len >> 62 == 0).map(Shape::leaf)
            }
            Some(code) => usize::try_from(code / 2)
                .ok()
                .and_then(|back| self.loops.iter().nth_back(back).copied()),
        };
        let shape = shape.ok_or("there is no such shape")?;
        self.recent.used(shape);
        Ok(shape)
    }

    fn terms(&mut self, addr: u64) -> Result<Vec<Term>, &'static str> {
        let count = self.count()?;
        let mut distances = Vec::with_capacity(count);
        for _ in 0..count {
            distances.push(self.signed()?);
        }
        let shapes = self.shapes(count)?;
        let mut skips = self.given(BREAKS)?;
        let mut skip_in = if skips > 0 { self.next()? } else { u64::MAX };
        let (mut end, mut addr, mut elements) = (0i64, addr, 0u64);
        let mut terms = Vec::with_capacity(count);
        for (distance, shape) in distances.into_iter().zip(shapes) {
            if skip_in == 0 {
                addr = addr.wrapping_add(varint::unfold(self.next()?));
                skips -= 1;
                skip_in = if skips > 0 { self.next()? } else { u64::MAX };
                if skip_in == 0 {
                    return Err("two breaks are at one place");
                }
            }
            skip_in = skip_in.wrapping_sub(1);
            let start = end.checked_add(distance).ok_or("a term is too far")?;
            let (lo, hi) = self.arena.bounds(shape);
            end = start.checked_add(hi).ok_or("a term is too long")?;
            if start.checked_add(lo).is_none_or(|lo| lo < 0) {
                return Err("a term starts before the file");
            }
            let start = start as u64;
            terms.push(Term { start, addr, shape });
            let sums = elements.checked_add(self.arena.elements(shape));
            elements = sums.ok_or("it has too many elements")?;
            let next = addr.checked_add(self.arena.bytes(shape));
            addr = next
                .filter(|a| a >> 63 == 0)
                .ok_or("a log address is too large")?;
        }
        (skips == 0).then_some(terms).ok_or("breaks are left over")
    }
}
