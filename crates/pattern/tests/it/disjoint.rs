//! Patterns that are said to be disjoint are; those of ranks that share a file are said to be.

use crate::common::{Stream, stream};
use forebay_pattern::{Folder, LogSource, Segment};
use proptest::prelude::*;
use std::collections::HashSet;

/// The segment of these extents, which must be one.
fn segment(log: u64, extents: impl IntoIterator<Item = (u64, u64)>) -> Segment {
    let mut folder = Folder::joining();
    for (offset, len) in extents {
        folder.push(offset, len).unwrap();
    }
    let mut found = folder.finish();
    assert_eq!(found.len(), 1);
    Segment::new(LogSource { member: 0, log }, 1, found.remove(0))
}

fn of_stream(Stream(elements): &Stream, shift: u64) -> Segment {
    let mut folder = Folder::joining();
    for e in elements {
        folder.push_at(e.offset + shift, e.len, e.addr).unwrap();
    }
    let pattern = folder.finish().pop().unwrap_or_default();
    Segment::new(LogSource::default(), 1, pattern)
}

fn bytes(segment: &Segment) -> HashSet<u64> {
    let elements = segment.pattern.iter();
    let limit = segment.limit.unwrap_or(u64::MAX);
    elements
        .flat_map(|e| e.offset..e.end())
        .filter(|b| *b < limit)
        .collect()
}

/// No two of them share a byte, as they say of each other.
fn told_apart(segments: &[Segment]) {
    for (i, one) in segments.iter().enumerate() {
        assert!(
            segments[..i]
                .iter()
                .all(|o| o.surely_disjoint(one) && one.surely_disjoint(o)),
            "{i}"
        );
        assert!(!one.surely_disjoint(one));
    }
}

#[test]
fn ranks_that_interleave() {
    let rank = |r: u64| segment(r, (0..1000).map(move |k| (r * 4096 + k * 32 * 4096, 4096)));
    told_apart(&(0..32).map(rank).collect::<Vec<_>>());
    // In any order of commits, with a header each, of any length.
    let rank = |r: u64| {
        let header = (1 << 40) + r * 512;
        let r = r * 13 % 32;
        let body = (0..1000).map(move |k| (r * 4096 + k * 32 * 4096, 4096));
        segment(r, [(header, r + 1)].into_iter().chain(body))
    };
    told_apart(&(0..32).map(rank).collect::<Vec<_>>());
}

#[test]
fn tiles_and_blocks_of_a_cube() {
    // 5 x 5 tiles of 32 rows of 64 bytes.
    let tile = |r: u64| {
        segment(
            r,
            (0..32).map(move |row| (((r / 5 * 32 + row) * 5 + r % 5) * 64, 64)),
        )
    };
    told_apart(&(0..25).map(tile).collect::<Vec<_>>());
    // 3 x 3 x 3 blocks of 10 x 10 rows of 40 bytes.
    let block = |r: u64| {
        let (x, y, z) = (r % 3, r / 3 % 3, r / 9);
        let row = move |k: u64| {
            (
                ((z * 10 + k / 10) * 30 + y * 10 + k % 10) * 120 + x * 40,
                40,
            )
        };
        segment(r, (0..100).map(row))
    };
    told_apart(&(0..27).map(block).collect::<Vec<_>>());
}

#[test]
fn a_segment_that_was_cut_is_apart_from_what_lies_behind() {
    let mut cut = segment(1, (0..100).map(|k| (k * 100, 50)));
    let behind = segment(2, (0..100).map(|k| (5000 + k * 100, 50)));
    assert!(!cut.surely_disjoint(&behind));
    cut.truncate(5000);
    assert!(cut.surely_disjoint(&behind) && behind.surely_disjoint(&cut));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(400, 100_000)))]

    #[test]
    fn never_said_of_patterns_that_share_a_byte(
        one in stream(),
        two in stream(),
        shifts in proptest::collection::vec(0u64..300, 1..9),
        limit in proptest::option::of(3500u64..6000),
    ) {
        let segments: Vec<Segment> = shifts.iter().map(|s| of_stream(&one, *s)).collect();
        let mut two = of_stream(&two, 0);
        if let Some(limit) = limit {
            two.truncate(limit);
        }
        for other in [&segments[0], &two] {
            let there = bytes(other);
            for s in &segments {
                let shared = bytes(s).iter().any(|b| there.contains(b));
                prop_assert!(!(shared && s.surely_disjoint(other)));
                prop_assert!(!(shared && other.surely_disjoint(s)));
            }
        }
    }
}
