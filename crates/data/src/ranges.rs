//! Sets of addresses as sorted, disjoint half-open ranges.
use std::ops::Range;

/// `range` without `holes` (sorted, disjoint).
pub fn subtract(range: Range<u64>, holes: &[Range<u64>]) -> Vec<Range<u64>> {
    without(std::slice::from_ref(&range), holes)
}

/// What is left of `ranges` without `holes`; both sorted and disjoint.
pub fn without(ranges: &[Range<u64>], holes: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for range in ranges {
        let mut at = range.start;
        let first = holes.partition_point(|h| h.end <= at);
        for hole in holes[first..].iter().take_while(|h| h.start < range.end) {
            if at < hole.start {
                left.push(at..hole.start);
            }
            at = at.max(hole.end);
        }
        if at < range.end {
            left.push(at..range.end);
        }
    }
    left
}

/// Sorts and joins ranges; drops empty ones.
pub fn merge(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|r| !r.is_empty());
    ranges.sort_unstable_by_key(|r| r.start);
    ranges.dedup_by(|next, last| {
        let joined = next.start <= last.end;
        if joined {
            last.end = last.end.max(next.end);
        }
        joined
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn merged_ranges_cover_the_same(ranges in prop::collection::vec((0u64..60, 0u64..20), 0..12)) {
            let ranges: Vec<_> = ranges.into_iter().map(|(s, l)| s..s + l).collect();
            let merged = merge(ranges.clone());
            prop_assert!(merged.windows(2).all(|w| w[0].end < w[1].start));
            for a in 0..100 {
                prop_assert_eq!(merged.iter().any(|r| r.contains(&a)), ranges.iter().any(|r| r.contains(&a)));
            }
        }
    }
}
