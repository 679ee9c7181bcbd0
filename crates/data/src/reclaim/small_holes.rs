//! Freed parts of segments that are not punched yet because they are small.
//!
//! A hole splits the file for every later read: with 8 KiB of holes in every 140 KiB a disk got requests a fifth as long and read a
//! file at three quarters of its speed. Some small parts grow when their neighbours are freed, some go with their segment. The others
//! are punched when the disk's space is short ([`is_short`]), when their segment is about to be emptied, or when there are
//! [`MOST_SMALL_HOLES`] of them.
use crate::segment::SegmentRange;
use std::collections::BTreeSet;

/// Holes are punched in whole pages of this size.
pub const PAGE: u64 = 4096;
/// Freed parts of at least this size are punched soon, bytes.
pub const LARGE_HOLE: u64 = 64 << 10;
/// So many are kept at most: 1 GiB of a disk if all are as large as can be.
pub const MOST_SMALL_HOLES: usize = 16 << 10;
/// A disk with less free space than this, or than a quarter of all, is short of it.
const ENOUGH_BYTES: u64 = 4 << 30;

/// Which small parts are punched too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PunchScope<'a> {
    /// All.
    All,
    /// Those of segments that are about to be emptied.
    Of(&'a BTreeSet<u32>),
    /// None.
    Large,
}

impl PunchScope<'_> {
    fn is_of(self, segment: u32) -> bool {
        match self {
            PunchScope::All => true,
            PunchScope::Of(segments) => segments.contains(&segment),
            PunchScope::Large => false,
        }
    }
}

/// The whole pages of a freed part; the others hold a neighbour's bytes too. `None`: there are none.
pub fn whole_pages(range: &SegmentRange) -> Option<SegmentRange> {
    let (start, end) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
    let segment = range.segment;
    (start < end).then_some(SegmentRange {
        segment,
        start,
        end,
    })
}

/// Whether a disk with `(free, total)` bytes needs every hole.
pub fn is_short((free, total): (u64, u64)) -> bool {
    free < ENOUGH_BYTES.min(total / 4)
}

/// See the head of this file.
#[derive(Default)]
pub struct SmallHoles(Vec<SegmentRange>);

impl SmallHoles {
    /// How many are kept.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes all, to be joined with what was freed since.
    pub fn take(&mut self) -> Vec<SegmentRange> {
        std::mem::take(&mut self.0)
    }

    /// Keeps the small ones of these that are not to be punched yet, unless they are too many. Answers those to punch. What has no whole page
    /// is forgotten.
    pub fn keep(&mut self, ranges: Vec<SegmentRange>, punch: PunchScope<'_>) -> Vec<SegmentRange> {
        let with_pages = ranges.into_iter().filter(|r| whole_pages(r).is_some());
        let (mut now, small): (Vec<_>, Vec<_>) =
            with_pages.partition(|r| r.end - r.start >= LARGE_HOLE || punch.is_of(r.segment));
        if self.len() + small.len() > MOST_SMALL_HOLES {
            now.extend(self.take());
            now.extend(small);
        } else {
            self.0.extend(small);
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(segment: u32) -> SegmentRange {
        SegmentRange::new(segment, 0, LARGE_HOLE - 1)
    }

    #[test]
    fn small_ones_are_kept_until_they_are_many_or_wanted() {
        let mut holes = SmallHoles::default();
        let large = SegmentRange::new(9, 0, LARGE_HOLE);
        let of = BTreeSet::from([2]);
        let punched = holes.keep(vec![small(1), large, small(2)], PunchScope::Of(&of));
        assert_eq!(punched, [large, small(2)]);
        let many = vec![small(3); MOST_SMALL_HOLES - 1];
        assert!(holes.keep(many, PunchScope::Large).is_empty());
        let punched = holes.keep(vec![small(4)], PunchScope::Large);
        assert_eq!((punched.len(), holes.len()), (MOST_SMALL_HOLES + 1, 0));
        assert_eq!(holes.keep(vec![small(5)], PunchScope::All), [small(5)]);
        // Pages that hold a neighbour's bytes too.
        let cut = SegmentRange::new(1, 1, 2 * PAGE - 2);
        assert!(holes.keep(vec![cut], PunchScope::All).is_empty() && holes.len() == 0);
    }

    #[test]
    fn a_small_disk_is_short_of_space_below_a_quarter() {
        assert!(is_short((24, 100)) && !is_short((25, 100)));
        assert!(!is_short((ENOUGH_BYTES, 1 << 50)) && is_short((ENOUGH_BYTES - 1, 1 << 50)));
    }
}
