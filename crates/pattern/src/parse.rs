//! Reading the body of a segment: see `encode` for its layout. Nothing is trusted: what makes no sense is refused.

use crate::Pattern;
use crate::encode::{BREAKS, GAPS, GRAINS, LOOPS, ONE_LEAF};
use crate::shape::{Arena, Shape, Steps};
use crate::shape_cache::ShapeCache;
use crate::stack::Term;
use forebay_codec::varint;

/// Reads a body whose first element is at `addr` of the log.
pub(crate) fn parse(flags: u8, bytes: &[u8], addr: u64) -> Result<Pattern, &'static str> {
    if flags & !(ONE_LEAF | GRAINS | LOOPS | BREAKS | GAPS) != 0 {
        return Err("it has unknown flags");
    }
    let mut reader = Reader {
        bytes,
        flags,
        grain: 1,
        len_grain: 1,
        recent: ShapeCache::default(),
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
        let loops = reader.number_if_flagged(LOOPS)?;
        for _ in 0..loops {
            reader.parse_loop()?;
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
    recent: ShapeCache,
    loops: Vec<Shape>,
    arena: Arena,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<u64, &'static str> {
        varint::take(&mut self.bytes).ok_or("its body is cut off")
    }

    /// A number that is there with a flag, else 0.
    fn number_if_flagged(&mut self, flag: u8) -> Result<u64, &'static str> {
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

    fn parse_loop(&mut self) -> Result<(), &'static str> {
        let elements = self.next()?;
        let stride = self.signed()?;
        let gap = self.number_if_flagged(GAPS)?;
        let steps = Steps {
            stride,
            elements,
            gap,
        };
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
        // Two that are the same stay two: codes of shapes count them so.
        let shape = self.arena.append(steps, items);
        let shape = shape.ok_or("a loop is too large")?;
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
        let shape = match code.checked_sub(ShapeCache::SIZE) {
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
        let mut skips = self.number_if_flagged(BREAKS)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;
    use crate::encode::folded;

    /// An arena may have a loop twice: then codes of shapes count it twice, for reader and writer alike.
    #[test]
    fn equal_loops_stay_apart() {
        let mut arena = Arena::default();
        let mut looped = |stride, elements| {
            let items = [(0, Shape::leaf(1)), (25, Shape::leaf(1))];
            let items = arena.push_body(items).unwrap();
            let gap = 0;
            let steps = Steps {
                stride,
                elements,
                gap,
            };
            arena.append(steps, items).unwrap()
        };
        let (a, b, same) = (looped(40, 10), looped(38, 4), looped(40, 10));
        assert_ne!(a, same);
        let leaf = Shape::leaf(7);
        let shapes = [a, leaf, b, same, leaf, a, b, Shape::leaf(9), same, b, leaf];
        let mut addr = 5;
        let terms = shapes.iter().enumerate().map(|(i, shape)| {
            let term = Term {
                start: 1000 * i as u64,
                addr,
                shape: *shape,
            };
            addr += arena.bytes(*shape);
            term
        });
        let terms = terms.collect();
        let pattern = Pattern::with(arena, terms);
        let (flags, bytes) = folded(&pattern);
        let back = parse(flags, &bytes, 5).unwrap();
        let elements = |p: &Pattern| p.iter().collect::<Vec<Element>>();
        assert_eq!(elements(&back), elements(&pattern));
    }
}
