//! Freed parts of segments that are not punched yet because they are small.
//!
//! A hole splits the file for every later read: with 8 KiB of holes in every 140 KiB a disk got requests a fifth as long and read a
//! file at three quarters of its speed. Some small parts grow when their neighbours are freed, some go with their segment. The others
//! are punched when space is short, or when there are [`MOST_SMALL_HOLES`] of them.
use crate::segment::SegmentRange;
use std::collections::BTreeSet;

/// Freed parts of at least this size are punched soon, bytes.
pub const LARGE_HOLE: u64 = 64 << 10;
/// So many are kept at most: 4 GiB of a disk if all are as large as can be, and 1 MiB of memory.
pub const MOST_SMALL_HOLES: usize = 64 << 10;

/// See the head of this file.
#[derive(Default)]
pub struct SmallHoles(Vec<SegmentRange>);

impl SmallHoles {
    /// Takes all, to be joined with what was freed since.
    pub fn take(&mut self) -> Vec<SegmentRange> {
        std::mem::take(&mut self.0)
    }

    /// Forgets those of segments that are removed.
    pub fn forget(&mut self, removed: &BTreeSet<u32>) {
        self.0.retain(|range| !removed.contains(&range.segment));
    }

    /// Keeps the small ones of these, unless they are too many. Answers those to punch.
    pub fn keep(&mut self, ranges: Vec<SegmentRange>) -> Vec<SegmentRange> {
        let (large, small): (Vec<_>, Vec<_>) = ranges
            .into_iter()
            .partition(|range| range.end - range.start >= LARGE_HOLE);
        if self.0.len() + small.len() > MOST_SMALL_HOLES {
            return [self.take(), large, small].concat();
        }
        self.0.extend(small);
        large
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(segment: u32) -> SegmentRange {
        SegmentRange::new(segment, 0, LARGE_HOLE - 1)
    }

    #[test]
    fn small_ones_are_kept_until_they_are_many_or_their_segment_goes() {
        let mut holes = SmallHoles::default();
        let large = SegmentRange::new(9, 0, LARGE_HOLE);
        assert_eq!(holes.keep(vec![small(1), large, small(2)]), [large]);
        holes.forget(&BTreeSet::from([1]));
        let many = vec![small(3); MOST_SMALL_HOLES - 1];
        assert!(holes.keep(many).is_empty());
        assert_eq!(holes.keep(vec![small(4)]).len(), MOST_SMALL_HOLES + 1);
        assert!(holes.take().is_empty());
    }
}
