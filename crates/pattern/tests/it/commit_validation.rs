//! Whether the elements of a commit are disjoint: exactly, and in bounded time whatever counts loops claim.

use crate::common::{Stream, stream};
use forebay_pattern::{Folder, LogSource, Segment, all_disjoint};
use proptest::prelude::*;
use std::collections::HashSet;
use std::ops::Range;

fn segments(log: u64, extents: impl IntoIterator<Item = (u64, u64)>) -> Vec<Segment> {
    let mut folder = Folder::joining();
    let mut addr = 0;
    for (offset, len) in extents {
        folder.push_at(offset, len, addr).unwrap();
        addr += len;
    }
    let source = LogSource { member: 0, log };
    let found = folder.finish().into_iter();
    found.map(|p| Segment::new(source, 1, p)).collect()
}

#[test]
fn what_writers_make_is_told_without_a_look_at_elements() {
    const MANY: u64 = 100_000;
    let rank = |r: u64| (0..MANY).map(move |k| (r * 100 + k * 700, 100));
    let mut all: Vec<Segment> = (0..4).flat_map(|r| segments(r, rank(r))).collect();
    // Backwards, two areas in turns, and a range in a gap.
    all.extend(segments(7, (0..MANY).rev().map(|k| (400 + k * 700, 100))));
    let turns = (0..MANY).flat_map(|k| [(500 + k * 700, 50), ((1 << 40) + k * 700, 50)]);
    all.extend(segments(8, turns));
    let gap = 600..700;
    assert_eq!(
        all_disjoint(&all, std::slice::from_ref(&gap), 0),
        Some(true)
    );
    assert_eq!(
        all_disjoint(&all, &[gap.clone(), 650..651], MANY),
        Some(false)
    );
    // Too many to look at: one byte of one of them is in another's gap only by a look.
    all.extend(segments(9, (0..MANY).map(|k| (k * 701, 1))));
    assert_eq!(all_disjoint(&all, &[], MANY), None);
}

#[test]
fn damaged_loops_are_answered_at_once() {
    // As many iterations as a number can say, over each other.
    let mut one = Folder::joining();
    for i in 0..64u64 {
        one.push_at(i * 10, 10 + (i % 2) * 5, i * 100).unwrap();
    }
    for pattern in one.finish() {
        let of = [Segment::new(LogSource::default(), 1, pattern)];
        assert_eq!(all_disjoint(&of, &[], 1000), Some(false));
    }
    let empty = 5..5;
    assert_eq!(
        all_disjoint(&[], std::slice::from_ref(&empty), 9),
        Some(false)
    );
    let all = 0..u64::MAX;
    assert_eq!(all_disjoint(&[], std::slice::from_ref(&all), 9), None);
    assert_eq!(all_disjoint(&[], &[], 9), Some(true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(400, 100_000)))]

    #[test]
    fn agrees_with_a_set_of_bytes(
        streams in prop::collection::vec((stream(), 0u64..3000), 1..4),
        ranges in prop::collection::vec((0u64..4000, 1u64..40), 0..3),
    ) {
        let mut segments = Vec::new();
        for (Stream(elements), shift) in streams {
            let mut folder = Folder::joining();
            for e in elements {
                folder.push_at(e.offset + shift, e.len, e.addr).unwrap();
            }
            let found = folder.finish().into_iter();
            segments.extend(found.map(|p| Segment::new(LogSource::default(), 1, p)));
        }
        let ranges: Vec<Range<u64>> = ranges.into_iter().map(|(at, len)| at..at + len).collect();
        let elements = segments.iter().flat_map(|s| s.pattern.iter().map(|e| e.offset..e.end()));
        let mut seen = HashSet::new();
        let mut bytes = elements.chain(ranges.iter().cloned()).flatten();
        let want = bytes.all(|byte| seen.insert(byte));
        prop_assert_eq!(all_disjoint(&segments, &ranges, 1 << 20), Some(want));
    }
}

#[test]
fn many_extents_in_the_gaps_of_a_pattern_are_told_apart_by_strides() {
    let of = segments(1, (0..50_000).map(|k| (k * 1000, 100)));
    let ranges: Vec<Range<u64>> = (0..50_000)
        .map(|k| k * 1000 + 200 + k % 90..k * 1000 + 300 + k % 90)
        .collect();
    assert_eq!(all_disjoint(&of, &ranges, 0), Some(true));
}
