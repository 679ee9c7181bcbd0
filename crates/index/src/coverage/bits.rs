//! A bitmap of the units of one page (1 MiB of a file's offsets, see `coverage`): set where some byte of the unit is stored.
//!
//! ```text
//!  | unit, shift, left | bits ...   words of 8 bytes; in the first: unit in bits 0..21, shift in 21..41, left in 41..62
//!
//!  unit k:  bytes  [ k * unit - shift, (k + 1) * unit - shift )  of the page; the first and the last may lie in it in part
//!  left:    number of units whose bit is not set
//! ```
//!
//! A unit may be of any length and begin anywhere: so the lines of an array need one bit each, as blocks do.
//!
//! Invariants: `shift < unit <= PAGE`, so there is a unit for each byte; bits after the last unit are 0.

/// Bytes of a page.
pub const PAGE: u64 = 1 << 20;
/// The same, for places in it.
pub const PAGE_END: u32 = PAGE as u32;
/// Words before the bits.
const HEAD: usize = 1;
/// Where the shift begins in the first word.
const SHIFT: u32 = 21;
/// Where `left` begins there; 2^20 units are the most there are.
const LEFT: u32 = 41;

/// How a range lies to what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adjacency {
    /// Bytes of it, or beside it, are not known.
    Unknown,
    /// Apart from all of it.
    Disjoint,
    /// Beside some of it.
    Adjacent,
    /// Over some of it.
    Overlapping,
}

/// See the head of this file.
#[derive(Debug, Clone)]
pub struct Bits(Box<[u64]>);

impl Bits {
    /// The units that are set in these ranges, which must fit; one unit begins at `at`.
    pub fn of(unit: u32, at: u32, ranges: impl Iterator<Item = (u32, u32)>) -> Bits {
        let shift = shift(unit, at);
        let units = units(unit, shift);
        let mut words = vec![0; HEAD + units.div_ceil(64) as usize].into_boxed_slice();
        words[0] = u64::from(unit) | u64::from(shift) << SHIFT | u64::from(units) << LEFT;
        let mut bits = Bits(words);
        for (start, end) in ranges {
            bits.set(start, end);
        }
        bits
    }

    /// Bytes that bits of this unit take, of which one begins at `at`.
    pub fn size(unit: u32, at: u32) -> usize {
        let units = units(unit, shift(unit, at));
        (HEAD + units.div_ceil(64) as usize) * 8
    }

    /// Bytes that they take.
    pub fn heap(&self) -> usize {
        size_of_val(&self.0[..])
    }

    fn unit(&self) -> u32 {
        (self.0[0] & ((1 << SHIFT) - 1)) as u32
    }

    fn shift(&self) -> u32 {
        (self.0[0] >> SHIFT & ((1 << (LEFT - SHIFT)) - 1)) as u32
    }

    /// The unit that holds this byte.
    #[inline]
    fn unit_of(&self, byte: u32) -> u32 {
        let (unit, at) = (self.unit(), byte + self.shift());
        // Mostly it is, and that is quicker than to divide.
        match unit.is_power_of_two() {
            true => at >> unit.trailing_zeros(),
            false => at / unit,
        }
    }

    /// Whether this unit begins at this byte.
    #[inline]
    fn begins(&self, unit: u32, byte: u32) -> bool {
        unit * self.unit() == byte + self.shift()
    }

    /// Whether one of the units `first..=last` is set.
    #[inline]
    fn any(&self, first: u32, last: u32) -> bool {
        masks(first, last).any(|(word, mask)| self.0[HEAD + word] & mask != 0)
    }

    /// Whether some byte of `start..end` may be stored.
    pub fn overlaps(&self, start: u32, end: u32) -> bool {
        self.any(self.unit_of(start), self.unit_of(end - 1))
    }

    /// How `start..end` lies to what is stored; `0 < start < end < PAGE`.
    #[inline]
    pub fn adjacency(&self, start: u32, end: u32) -> Adjacency {
        let (before, behind) = (self.unit_of(start - 1), self.unit_of(end));
        if !self.any(before, behind) {
            return Adjacency::Disjoint;
        }
        let first = before + u32::from(self.begins(before + 1, start));
        let last = behind - u32::from(self.begins(behind, end));
        match self.any(first, last) {
            true => Adjacency::Overlapping,
            false => Adjacency::Adjacent,
        }
    }

    /// Sets the units of a range, if it fits: begins where a unit does, and ends where one does. Whether all are set then.
    #[inline]
    pub fn cover(&mut self, start: u32, end: u32) -> Option<bool> {
        let (first, last) = (self.unit_of(start), self.unit_of(end - 1));
        let fits = (start == 0 || self.begins(first, start))
            && (end == PAGE_END || self.begins(last + 1, end));
        fits.then(|| self.set_units(first, last))
    }

    /// Sets the units of a range, also those that it fills in part; whether all are set then.
    pub fn set(&mut self, start: u32, end: u32) -> bool {
        self.set_units(self.unit_of(start), self.unit_of(end - 1))
    }

    #[inline]
    fn set_units(&mut self, first: u32, last: u32) -> bool {
        for (word, mask) in masks(first, last) {
            let word = HEAD + word;
            let new = mask & !self.0[word];
            self.0[word] |= new;
            self.0[0] -= u64::from(new.count_ones()) << LEFT;
        }
        self.0[0] >> LEFT == 0
    }

    /// The longest unit that these ones are whole numbers of and in which a range fits, and where one of them begins.
    pub fn common(&self, start: u32, end: u32) -> (u32, u32) {
        let from = self.unit() - self.shift();
        let ends = [start, end]
            .into_iter()
            .filter(|at| *at != 0 && *at != PAGE_END);
        let unit = ends.fold(self.unit(), |unit, at| divisor(unit, at.abs_diff(from)));
        (unit, from)
    }

    /// How many runs are set.
    pub fn count(&self) -> usize {
        let mut last = 0;
        let starts = |word: &u64| {
            let starts = word & !(word << 1 | last);
            last = word >> 63;
            starts.count_ones() as usize
        };
        self.0[HEAD..].iter().map(starts).sum()
    }

    /// The first unit of `from..units` that is set, or is not.
    fn find(&self, from: u32, units: u32, set: bool) -> Option<u32> {
        let mut masks = masks(from, units.checked_sub(1).filter(|last| from <= *last)?);
        masks.find_map(|(word, mask)| {
            let bits = self.0[HEAD + word] ^ if set { 0 } else { u64::MAX };
            let found = (bits & mask).trailing_zeros();
            (found < 64).then_some(word as u32 * 64 + found)
        })
    }

    /// The runs of bytes that are set, in order.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        let (unit, shift) = (self.unit(), self.shift());
        let units = units(unit, shift);
        let mut at = 0;
        std::iter::from_fn(move || {
            let from = self.find(at, units, true)?;
            at = self.find(from, units, false).unwrap_or(units);
            let (start, end) = ((from * unit).saturating_sub(shift), at * unit - shift);
            Some((start, end.min(PAGE_END)))
        })
    }
}

/// The longest unit in which all of these ranges fit, and where one of them begins.
pub fn common(ranges: impl Iterator<Item = (u32, u32)>) -> (u32, u32) {
    let ends = ranges.flat_map(|(start, end)| [start, end]);
    let mut ends = ends.filter(|at| *at != 0 && *at != PAGE_END);
    let Some(first) = ends.next() else {
        return (PAGE_END, 0);
    };
    match ends.fold(0, |unit, at| divisor(unit, at.abs_diff(first))) {
        0 => (PAGE_END, first),
        unit => (unit, first),
    }
}

/// The greatest common divisor; of 0 and another number that one.
fn divisor(mut a: u32, mut b: u32) -> u32 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// How far the first unit lies before the page.
fn shift(unit: u32, at: u32) -> u32 {
    match at % unit {
        0 => 0,
        more => unit - more,
    }
}

/// Units of a page.
fn units(unit: u32, shift: u32) -> u32 {
    (PAGE_END + shift).div_ceil(unit)
}

/// The words with the bits `first..=last`, and which of their bits these are.
#[inline]
fn masks(first: u32, last: u32) -> impl Iterator<Item = (usize, u64)> {
    (first / 64..=last / 64).map(move |word| {
        let from = first.max(word * 64) % 64;
        let to = last.min(word * 64 + 63) % 64;
        (word as usize, (u64::MAX << from) & (u64::MAX >> (63 - to)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_what_was_set(unit in 100u32..30_000, at in 0u32..PAGE_END, spans in proptest::collection::vec((0u32..40, 1u32..20), 0..30)) {
            let mut end = 0;
            let first = at % unit;
            let mut want: Vec<(u32, u32)> = Vec::new();
            for (gap, len) in spans {
                let start = end + gap;
                end = start + len;
                let byte = |k: u32| if k == 0 { 0 } else { first + (k - 1) * unit };
                if byte(end) > PAGE_END || byte(start) == byte(end) {
                    break;
                }
                match want.last_mut() {
                    Some(last) if last.1 == byte(start) => last.1 = byte(end),
                    _ => want.push((byte(start), byte(end))),
                }
            }
            let (common_unit, begins) = common(want.iter().copied());
            for (unit, at) in [(unit, at), (common_unit, begins)] {
                let bits = Bits::of(unit, at, want.iter().copied());
                prop_assert!(want.iter().all(|w| bits.clone().cover(w.0, w.1).is_some()));
                prop_assert_eq!(bits.runs().collect::<Vec<_>>(), want.clone());
                prop_assert_eq!(bits.count(), want.len());
                prop_assert_eq!(bits.heap(), Bits::size(unit, at));
            }
        }
    }
}
