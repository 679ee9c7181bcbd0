//! Log bytes in a range, and what one pattern has of another, agree with a look at each element; long patterns take few steps.

use crate::common::{Stream, stream};
use forebay_pattern::{Element, Folder, Pattern};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;

fn fold(elements: impl IntoIterator<Item = Element>) -> Pattern {
    let mut folder = Folder::joining();
    for e in elements {
        folder.push_at(e.offset, e.len, e.addr).unwrap();
    }
    folder.finish().pop().unwrap_or_default()
}

fn row(start: u64, len: u64, stride: u64, count: u64) -> Pattern {
    fold((0..count).map(|k| Element {
        offset: start + k * stride,
        len,
        addr: k * len,
    }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(300, 100_000)))]

    #[test]
    fn a_range_has_the_bytes_of_its_elements(
        Stream(elements) in stream(),
        ranges in prop::collection::vec((3000u64..6000, 0u64..1500), 6),
    ) {
        let p = fold(elements);
        for (start, len) in ranges {
            let range = start..start + len;
            let mut left = u64::MAX;
            let runs = p.gather(&range, &mut left).unwrap();
            prop_assert!(runs.windows(2).all(|w| w[0].end < w[1].start));
            let found: BTreeSet<u64> = runs.into_iter().flatten().collect();
            let all = p.iter().flat_map(|e| (0..e.len).map(move |i| (e.offset + i, e.addr + i)));
            let inside: BTreeSet<u64> = all.filter(|(at, _)| range.contains(at)).map(|b| b.1).collect();
            prop_assert_eq!(&found, &inside);
            if p.is_increasing() {
                let found: BTreeSet<u64> = p.within(&range).into_iter().flatten().collect();
                prop_assert_eq!(&found, &inside);
            }
        }
    }

    #[test]
    fn what_is_covered_is_all_there_is_in_its_range(
        own in (0u64..60, 1u64..12, 1u64..14, 1u64..9, any::<bool>()),
        other in (0u64..60, 1u64..12, 1u64..14, 1u64..9, any::<bool>()),
        same_stride in prop::bool::weighted(0.7),
    ) {
        let made = |(start, len, stride, count, down): (u64, u64, u64, u64, bool)| {
            let at = move |k: u64| start + stride.max(len) * if down { count - 1 - k } else { k };
            fold((0..count).map(|k| Element { offset: at(k), len, addr: k * len }))
        };
        let stride = if same_stride { own.2.max(own.1).max(other.1) } else { other.2 };
        let (a, b) = (made((own.0, own.1, own.2.max(stride), own.3, own.4)), made((other.0, other.1, stride, other.3, other.4)));
        let bytes = |p: &Pattern| -> BTreeSet<u64> { p.iter().flat_map(|e| e.offset..e.end()).collect() };
        let (in_a, in_b) = (bytes(&a), bytes(&b));
        if let Some(range) = a.covers(&b) {
            let shared: BTreeSet<u64> = in_a.intersection(&in_b).copied().collect();
            let inside: BTreeSet<u64> = in_b.iter().copied().filter(|at| range.contains(at)).collect();
            prop_assert_eq!(shared, inside);
        }
        prop_assert_eq!(a.covers(&a), Some(a.bounds().0..a.bounds().1));
    }
}

#[test]
fn long_patterns_take_few_steps() {
    // A matrix of 2000 x 2000 elements, row by row, the last row first, and column by column.
    let of = |at: fn(u64, u64) -> u64| {
        fold((0..4_000_000).map(move |i| Element {
            offset: at(i / 2000, i % 2000),
            len: 8,
            addr: i * 8,
        }))
    };
    let taken = |p: &Pattern, range: Range<u64>| {
        let mut left = 1 << 20;
        let runs = p.gather(&range, &mut left).unwrap();
        let bytes: u64 = runs.iter().map(|r| r.end - r.start).sum();
        ((1 << 20) - left, bytes)
    };
    let by_rows = of(|i, j| i * 20_000 + j * 10);
    assert_eq!(by_rows.terms(), 1);
    let half = 500 * 2000 * 8 + 1000 * 8 + 3;
    let (steps, bytes) = taken(&by_rows, 0..500 * 20_000 + 10_003);
    assert!(steps < 10 && bytes == half, "{steps} steps, {bytes} bytes");
    let backwards = of(|i, j| (1999 - i) * 20_000 + (1999 - j) * 10);
    let (steps, bytes) = taken(&backwards, 0..500 * 20_000 + 10_003);
    assert!(steps < 20 && bytes == half, "{steps} steps, {bytes} bytes");
    let by_columns = of(|i, j| j * 20_000 + i * 10);
    let (steps, bytes) = taken(&by_columns, 0..500 * 20_000 + 10_003);
    assert!(
        steps < 10_000 && bytes == half,
        "{steps} steps, {bytes} bytes"
    );
    assert_eq!(by_columns.gather(&(5..10_000), &mut 100), None);
    // The same places in another log; fewer or more records of the same row.
    let again = of(|i, j| j * 20_000 + i * 10);
    assert_eq!(
        again.covers(&by_columns),
        Some(by_columns.bounds().0..by_columns.bounds().1)
    );
    let (long, short) = (row(70, 10, 50, 100_000), row(70 + 50 * 7, 10, 50, 500));
    assert_eq!(long.covers(&short), Some(420..420 + 499 * 50 + 10));
    assert_eq!(short.covers(&long), Some(420..420 + 499 * 50 + 10));
    assert_eq!(long.covers(&row(71, 10, 50, 500)), None);
    assert_eq!(long.covers(&row(71, 9, 50, 3)), Some(71..71 + 109));
}
