//! The stored bytes of one page (1 MiB of a file's offsets, see `coverage`): none, all, a range, a list of ranges, or one bit a
//! unit once that is no larger than twice the list.
//!
//! ```text
//!  Span, Spans:  [ start, end ) [ start, end ) ...    ascending; no two touch; bytes from the start of the page
//!  Bits:         some byte of a unit is stored (`bits`); units as long as the pieces that are written allow
//! ```
//!
//! Invariant: a stored byte is reported as stored until the page is evicted. Lists are exact, however long they are. Bits may report
//! bytes that are not stored, because ranges are rounded outwards to whole units.
use super::bits::{Adjacency, Bits, PAGE_END, common};

/// Bits are not made finer if that took more than this many bytes.
const MAX_EXACT_BITS_BYTES: usize = 4096;

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
    Span(u32, u32),
    /// These bytes are.
    Spans(Vec<(u32, u32)>),
    /// These units are.
    Bits(Bits),
}

impl Page {
    /// Memory beyond the page itself, in bytes.
    pub fn heap(&self) -> usize {
        match self {
            Page::Spans(spans) => allocated(spans.capacity() * SPAN),
            Page::Bits(bits) => allocated(bits.heap()),
            _ => 0,
        }
    }

    /// Whether some byte of `start..end` may be stored; `start < end <= PAGE`.
    pub fn overlaps(&self, start: u32, end: u32) -> bool {
        match self {
            Page::Empty => false,
            Page::Full | Page::Unknown => true,
            Page::Span(from, to) => *from < end && start < *to,
            Page::Spans(spans) => {
                let at = spans.partition_point(|span| span.1 <= start);
                spans.get(at).is_some_and(|span| span.0 < end)
            }
            Page::Bits(bits) => bits.overlaps(start, end),
        }
    }

    /// How `start..end` lies to what is stored; `0 < start < end < PAGE`.
    #[inline]
    pub fn adjacency(&self, start: u32, end: u32) -> Adjacency {
        match self {
            Page::Empty => Adjacency::Disjoint,
            Page::Full => Adjacency::Overlapping,
            Page::Unknown => Adjacency::Unknown,
            Page::Bits(bits) => bits.adjacency(start, end),
            Page::Span(from, to) => adjacency(&[(*from, *to)], start, end),
            Page::Spans(spans) => adjacency(spans, start, end),
        }
    }

    /// Bytes `start..end` are stored now; `start < end <= PAGE`.
    pub fn cover(&mut self, start: u32, end: u32) {
        let full = match self {
            Page::Full | Page::Unknown => return,
            Page::Empty => {
                *self = Page::Span(start, end);
                (start, end) == (0, PAGE_END)
            }
            Page::Span(from, to) if start <= *to && *from <= end => {
                (*from, *to) = ((*from).min(start), (*to).max(end));
                (*from, *to) == (0, PAGE_END)
            }
            Page::Span(from, to) => {
                let old = (*from, *to);
                let mut spans = vec![old.min((start, end)), old.max((start, end))];
                spans.reserve_exact(2);
                *self = Page::Spans(spans);
                false
            }
            Page::Spans(spans) => {
                if spans.len() == spans.capacity() && self.compact(start, end) {
                    return self.cover(start, end);
                }
                let Page::Spans(spans) = self else { return };
                add(spans, start, end);
                spans[0] == (0, PAGE_END)
            }
            Page::Bits(bits) => match bits.cover(start, end) {
                Some(full) => full,
                None if self.refine(start, end) => return self.cover(start, end),
                None => {
                    let Page::Bits(bits) = self else { return };
                    bits.set(start, end)
                }
            },
        };
        if full {
            *self = Page::Full;
        }
    }

    /// Spans become bits in which another fits too, if these are no larger than twice as many spans; whether they did.
    fn compact(&mut self, start: u32, end: u32) -> bool {
        let Page::Spans(spans) = self else {
            return false;
        };
        let (unit, at) = common(spans.iter().copied().chain([(start, end)]));
        if Bits::size(unit, at) > spans.capacity() * SPAN * 2 {
            return false;
        }
        *self = Page::Bits(Bits::of(unit, at, spans.iter().copied()));
        true
    }

    /// Bits become finer ones or spans, so that a range fits which does not, unless both are too large; whether they did.
    fn refine(&mut self, start: u32, end: u32) -> bool {
        let Page::Bits(bits) = self else { return false };
        let (unit, at) = bits.common(start, end);
        let finer = Bits::size(unit, at);
        let spans = (bits.count() + 1) * SPAN;
        if finer.min(spans) > MAX_EXACT_BITS_BYTES {
            return false;
        }
        *self = match finer <= spans {
            true => Page::Bits(Bits::of(unit, at, bits.runs())),
            false => {
                let mut all = Vec::with_capacity(spans / SPAN);
                all.extend(bits.runs());
                Page::Spans(all)
            }
        };
        true
    }
}

/// Memory of an allocation of `bytes` bytes: a word more, in multiples of 16.
fn allocated(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16)
}

/// Bytes of a span.
const SPAN: usize = size_of::<(u32, u32)>();

fn adjacency(spans: &[(u32, u32)], start: u32, end: u32) -> Adjacency {
    let at = spans.partition_point(|span| span.1 < start);
    let mut reach = spans[at..].iter().take_while(|span| span.0 <= end);
    match reach.clone().next() {
        None => Adjacency::Disjoint,
        Some(_) if reach.any(|span| span.0 < end && start < span.1) => Adjacency::Overlapping,
        Some(_) => Adjacency::Adjacent,
    }
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
    use super::super::bits::PAGE;
    use super::*;
    use proptest::prelude::*;

    /// Ranges of units of this length, of which one begins at `at`; what lies beyond the page is cut off.
    fn ranges(unit: u32, at: u32) -> impl Strategy<Value = Vec<(u32, u32)>> {
        let most = PAGE_END / unit;
        let range = (0..most, 1u32..40).prop_map(move |(k, n)| {
            let from = (at % unit + k * unit).checked_sub(unit);
            let to = (at % unit + (k + n) * unit).saturating_sub(unit);
            (from.unwrap_or(0), to.clamp(1, PAGE_END))
        });
        proptest::collection::vec(range, 0..200)
    }

    /// Powers of two, any lengths that a few bytes of bits hold, and tiny ones.
    fn units() -> impl Strategy<Value = (u32, u32)> {
        let unit = prop_oneof![
            (3u32..18).prop_map(|s| 1 << s),
            300u32..9000,
            Just(2040),
            3u32..100
        ];
        (unit, 0u32..10_000)
    }

    fn covered(spans: &[bool], range: std::ops::Range<u32>) -> bool {
        spans[range.start as usize..range.end as usize]
            .iter()
            .any(|covered| *covered)
    }

    proptest! {
        #[test]
        fn what_was_covered_is_and_aligned_pages_tell_of_nothing_else(ranges in units().prop_flat_map(|(unit, at)| ranges(unit, at)), more in ranges(100, 0), probes in proptest::collection::vec((1u32..PAGE_END - 2, 1u32..5000), 50)) {
            let mut page = Page::default();
            let mut model = vec![false; PAGE as usize];
            for (start, end) in &ranges {
                page.cover(*start, *end);
                model[*start as usize..*end as usize].fill(true);
                prop_assert!(page.overlaps(*start, *end));
            }
            for at in (0..PAGE_END).step_by(4096).chain(ranges.iter().flat_map(|r| [r.0.saturating_sub(1), r.0, r.1 - 1, r.1.min(PAGE_END - 1)])) {
                prop_assert_eq!(page.overlaps(at, at + 1), model[at as usize], "byte {}", at);
            }
            let beside = ranges.iter().flat_map(|r| [(r.1, 7), (r.1, 2040), (r.0.saturating_sub(9), 9), (r.0.saturating_sub(9), 8)]);
            for (start, len) in probes.into_iter().chain(beside).filter(|p| p.0 > 0 && p.0 < PAGE_END - 1) {
                let end = (start + len).min(PAGE_END - 1);
                let want = match (covered(&model, start..end), covered(&model, start - 1..end + 1)) {
                    (true, _) => Adjacency::Overlapping,
                    (false, true) => Adjacency::Adjacent,
                    _ => Adjacency::Disjoint,
                };
                prop_assert_eq!(page.adjacency(start, end), want, "{}..{}", start, end);
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
        // Powers of two, and lines of BTIO at any place.
        for (len, first) in [(1024, 0), (1024, 512), (2040, 0), (2040, 1744), (1360, 40)] {
            let mut page = Page::default();
            let pieces = |odd| {
                let end_of = move |k: u32| (first + k * len).min(PAGE_END);
                let all = (0..).map(move |k| (if k == 0 { 0 } else { end_of(k - 1) }, end_of(k)));
                all.take_while(|piece| piece.0 < PAGE_END)
                    .filter(|piece| piece.0 < piece.1)
                    .enumerate()
                    .filter(move |(k, _)| k % 2 == odd)
            };
            for (_, (start, end)) in pieces(1) {
                page.cover(start, end);
            }
            let bits = PAGE as usize / len as usize / 8;
            let heap = page.heap();
            assert!(heap <= bits + 32, "{heap} bytes for {len}");
            assert!(heap <= 144 || first > 0);
            for (_, (start, end)) in pieces(0) {
                assert!(!page.overlaps(start, end));
                page.cover(start, end);
            }
            assert!(matches!(page, Page::Full), "{len} from {first}: {page:?}");
        }
    }

    #[test]
    fn a_piece_that_fits_no_unit_is_kept_exactly_while_the_page_is_small() {
        let mut page = Page::default();
        for k in 0..40 {
            page.cover(k * 16384, k * 16384 + 4096);
        }
        assert!(matches!(page, Page::Bits(_)));
        page.cover(5001, 5010);
        assert!(page.overlaps(5000, 5002) && page.overlaps(5009, 5011));
        assert!(!page.overlaps(4096, 5001) && !page.overlaps(5010, 16384));
    }
}
