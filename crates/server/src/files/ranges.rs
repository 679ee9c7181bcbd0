//! Sets of offsets or addresses as sorted, disjoint ranges.
use std::ops::Range;

/// Sorted, and joined where they touch.
pub(super) fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
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

/// What is left of `ranges` without `out`; both sorted and apart.
pub(super) fn without(ranges: &[Range<u64>], out: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for range in ranges {
        let mut at = range.start;
        let first = out.partition_point(|o| o.end <= at);
        for o in out[first..].iter().take_while(|o| o.start < range.end) {
            if at < o.start {
                left.push(at..o.start);
            }
            at = at.max(o.end);
        }
        if at < range.end {
            left.push(at..range.end);
        }
    }
    left
}
