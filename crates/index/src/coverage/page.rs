//! Which bytes of one page are stored: none, all, a list of spans, or one bit a unit, whichever is smallest.
//!
//! ```text
//!  Spans:  [ start, end ) [ start, end ) ...      ascending; no two touch; bytes from the start of the page
//!  Bits:   bit k: some byte of  [ k * unit, (k + 1) * unit )  is stored; unit a power of two
//! ```
//!
//! Invariant: a byte that was covered is covered, until the page is forgotten. Bits may tell of more: what is not aligned to
//! the unit is rounded to it.

/// Bytes of a page.
pub const PAGE: u64 = 1 << 20;
/// So many spans are kept before bits are thought of (when their memory would double).
const FEW: usize = 8;
/// Bits of a finer unit than this (log2) are not made for what comes later.
const FINEST: u32 = 8;

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub enum Page {
    /// Nothing is stored.
    #[default]
    Empty,
    /// Not known: everything may be.
    Unknown,
    /// Everything is.
    Full,
    /// These bytes are.
    Spans(Vec<(u32, u32)>),
    /// These units are.
    Bits {
        /// log2 of the unit.
        shift: u32,
        /// Units that are not covered.
        left: u32,
        /// One bit a unit.
        words: Box<[u64]>,
    },
}

impl Page {
    /// Memory beyond the page itself, in bytes.
    pub fn heap(&self) -> usize {
        match self {
            Page::Spans(spans) => spans.capacity() * size_of::<(u32, u32)>() + 16,
            Page::Bits { words, .. } => size_of_val(&words[..]) + 16,
            _ => 0,
        }
    }

    /// Whether some byte of `start..end` may be stored; `start < end <= PAGE`.
    pub fn overlaps(&self, start: u32, end: u32) -> bool {
        match self {
            Page::Empty => false,
            Page::Full | Page::Unknown => true,
            Page::Spans(spans) => {
                let at = spans.partition_point(|span| span.1 <= start);
                spans.get(at).is_some_and(|span| span.0 < end)
            }
            Page::Bits { shift, words, .. } => masks(start >> shift, (end - 1) >> shift)
                .any(|(word, mask)| words[word] & mask != 0),
        }
    }

    /// Bytes `start..end` are stored now; `start < end <= PAGE`.
    pub fn cover(&mut self, start: u32, end: u32) {
        let full = match self {
            Page::Full | Page::Unknown => return,
            Page::Empty => {
                *self = Page::Spans(vec![(start, end)]);
                end - start == PAGE as u32
            }
            Page::Spans(spans) => {
                add(spans, start, end);
                let grown = spans.len() > FEW && spans.len() == spans.capacity();
                let full = spans[0] == (0, PAGE as u32);
                if grown && !full {
                    self.compact();
                }
                full
            }
            Page::Bits { shift, .. } => {
                let aligned = (start | end).trailing_zeros();
                if aligned < *shift && aligned >= FINEST {
                    self.refine(aligned);
                }
                self.set(start, end)
            }
        };
        if full {
            *self = Page::Full;
        }
    }

    /// Sets the bits of a range; whether all are set then.
    fn set(&mut self, start: u32, end: u32) -> bool {
        let Page::Bits { shift, left, words } = self else {
            return false;
        };
        for (word, mask) in masks(start >> *shift, (end - 1) >> *shift) {
            *left -= (mask & !words[word]).count_ones();
            words[word] |= mask;
        }
        *left == 0
    }

    /// Spans become bits, if these are smaller.
    fn compact(&mut self) {
        let Page::Spans(spans) = self else { return };
        let all = spans
            .iter()
            .fold(PAGE as u32, |all, span| all | span.0 | span.1);
        let shift = all.trailing_zeros();
        let units = PAGE as u32 >> shift;
        if units as usize / 8 > spans.len() * size_of::<(u32, u32)>() {
            return;
        }
        let spans = std::mem::take(spans);
        *self = Page::bits(shift);
        for (start, end) in spans {
            self.set(start, end);
        }
    }

    fn bits(shift: u32) -> Page {
        let left = PAGE as u32 >> shift;
        let words = vec![0; left.div_ceil(64) as usize].into();
        Page::Bits { shift, left, words }
    }

    /// The same bits with a smaller unit.
    fn refine(&mut self, finer: u32) {
        let old = std::mem::replace(self, Page::bits(finer));
        if let Page::Bits { shift, words, .. } = old {
            for unit in 0..PAGE as u32 >> shift {
                if words[unit as usize / 64] >> (unit % 64) & 1 == 1 {
                    self.set(unit << shift, (unit + 1) << shift);
                }
            }
        }
    }
}

/// The words with the bits `first..=last`, and which of their bits these are.
fn masks(first: u32, last: u32) -> impl Iterator<Item = (usize, u64)> {
    (first / 64..=last / 64).map(move |word| {
        let from = first.max(word * 64) % 64;
        let to = last.min(word * 64 + 63) % 64;
        (word as usize, (u64::MAX << from) & (u64::MAX >> (63 - to)))
    })
}

/// Adds a span; those that it overlaps or touches become one with it.
fn add(spans: &mut Vec<(u32, u32)>, start: u32, end: u32) {
    let from = spans.partition_point(|span| span.1 < start);
    let same = spans[from..]
        .iter()
        .take_while(|span| span.0 <= end)
        .count();
    match &mut spans[from..from + same] {
        [] => spans.insert(from, (start, end)),
        [first, rest @ ..] => {
            let last = rest.last().map_or(first.1, |last| last.1);
            *first = (first.0.min(start), last.max(end));
            let gone = rest.len();
            if gone > 0 {
                spans.drain(from + 1..from + 1 + gone);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(unit: u32) -> impl Strategy<Value = Vec<(u32, u32)>> {
        let most = PAGE as u32 / unit;
        let range =
            (0..most, 1u32..40).prop_map(move |(at, n)| (at * unit, (at + n).min(most) * unit));
        proptest::collection::vec(range, 0..200)
    }

    proptest! {
        #[test]
        fn what_was_covered_is_and_aligned_pages_tell_of_nothing_else(ranges in (3u32..18).prop_flat_map(|s| ranges(1 << s)), more in ranges(100)) {
            let mut page = Page::default();
            let mut model = vec![false; PAGE as usize];
            for (start, end) in &ranges {
                page.cover(*start, *end);
                model[*start as usize..*end as usize].fill(true);
                prop_assert!(page.overlaps(*start, *end));
            }
            for at in (0..PAGE as u32).step_by(4096).chain(ranges.iter().flat_map(|r| [r.0.saturating_sub(1), r.0, r.1 - 1, r.1.min(PAGE as u32 - 1)])) {
                prop_assert_eq!(page.overlaps(at, at + 1), model[at as usize], "byte {}", at);
            }
            prop_assert_eq!(matches!(page, Page::Full), model.iter().all(|covered| *covered));
            // Whatever comes then, nothing is lost.
            for (start, end) in more {
                page.cover(start, end);
                prop_assert!(page.overlaps(start, start + 1) && page.overlaps(end - 1, end));
            }
            for (start, end) in ranges {
                prop_assert!(page.overlaps(start, start + 1) && page.overlaps(end - 1, end));
            }
        }
    }

    #[test]
    fn a_page_of_many_pieces_is_small() {
        let mut page = Page::default();
        for k in 0..512 {
            page.cover(k * 2048, k * 2048 + 1024);
        }
        assert!(page.heap() <= 144, "{} bytes", page.heap());
        for k in 0..512 {
            page.cover(k * 2048 + 1024, k * 2048 + 2048);
        }
        assert!(matches!(page, Page::Full));
    }
}
