//! What the published code gets wrong, one test each. Numbers are those of the list in the design notes.

use forebay_pattern::{Element, Folder, LogSource, MapLookup, Pattern, PatternMap, Segment};

fn fold(extents: impl IntoIterator<Item = (u64, u64)>) -> Pattern {
    let mut folder = Folder::new();
    for (offset, len) in extents {
        folder.push(offset, len).unwrap();
    }
    let mut patterns = folder.finish();
    assert_eq!(patterns.len(), 1);
    patterns.remove(0)
}

/// Offsets whose differences repeat `period`.
fn periodic(period: &[u64], count: u64) -> impl Iterator<Item = (u64, u64)> {
    let (sum, p) = (period.iter().sum::<u64>(), period.len() as u64);
    (0..count).map(move |i| {
        (
            i / p * sum + period[..(i % p) as usize].iter().sum::<u64>(),
            1,
        )
    })
}

fn segment(log: u64, sequence: u64, extents: impl IntoIterator<Item = (u64, u64)>) -> Segment {
    Segment::new(LogSource { member: 0, log }, sequence, fold(extents))
}

fn map(segments: &[Segment]) -> PatternMap {
    forebay_pattern::Patterns::merged(segments.to_vec()).map()
}

/// Every byte of both ways to read: merged, and segment by segment.
fn assert_bytes(segments: &[Segment], end: u64, expected: impl Fn(u64) -> Option<(u64, u64)>) {
    for map in [
        map(segments),
        PatternMap::new(Vec::new(), segments.to_vec()),
    ] {
        for offset in 0..end {
            let found = match map.lookup(offset) {
                MapLookup::Data(p) => Some((p.source.log, p.addr)),
                MapLookup::Hole(_) | MapLookup::End => None,
            };
            assert_eq!(found, expected(offset), "at {offset}");
        }
    }
}

#[test]
fn fault_1_periods_are_primitive() {
    let pattern = fold(periodic(&[3, 4, 7], 300));
    assert_eq!(
        (pattern.terms(), pattern.loops(), pattern.nodes()),
        (1, 1, 1 + 3)
    );
}

#[test]
fn fault_2_long_periods_are_found() {
    for p in [7, 13, 31, 63] {
        let period: Vec<u64> = (1..=p).map(|i| i * i % 101 + 1).collect();
        let pattern = fold(periodic(&period, p * 1000));
        assert!(
            pattern.terms() <= 2,
            "{} terms for a period of {p}",
            pattern.terms()
        );
        assert_eq!(pattern.elements(), p * 1000);
    }
}

#[test]
fn fault_3_a_short_tail_stays_with_its_loop() {
    for tail in 0..7 {
        let pattern = fold(periodic(&[3, 4, 7, 1, 9, 2, 5], 7 * 50 + tail));
        assert_eq!((pattern.terms(), pattern.elements()), (1, 350 + tail));
        assert_eq!(
            pattern.get(349 + tail).map(|e| e.offset),
            periodic(&[3, 4, 7, 1, 9, 2, 5], 400)
                .nth(349 + tail as usize)
                .map(|e| e.0)
        );
    }
}

#[test]
fn fault_4_nests_of_any_depth_are_one_term() {
    let rows = (0..1000).flat_map(|y| (0..100).map(move |x| (y * 1_000_000 + x * 4096, 512)));
    let cube = (0..20).flat_map(|z| {
        (0..30).flat_map(move |y| {
            (0..40).map(move |x| (z * 90_000_000 + y * 1_000_000 + x * 4096, 512))
        })
    });
    let four = (0..5u64 * 6 * 7 * 8).map(|i| {
        (
            i % 8 * 100 + i / 8 % 7 * 10_000 + i / 56 % 6 * 1_000_000 + i / 336 * 100_000_000,
            50,
        )
    });
    for pattern in [fold(rows), fold(cube), fold(four)] {
        assert_eq!(pattern.terms(), 1);
        assert!(pattern.nodes() <= 5);
    }
}

#[test]
fn fault_5_partial_strides_and_headers_of_different_lengths() {
    // Five ranks write a header of their own length behind the data, then 10 records; the last two ranks only 7.
    let count = |rank: u64| if rank < 3 { 10 } else { 7 };
    let segments: Vec<Segment> = (0..5u64)
        .map(|rank| {
            let records = (0..count(rank)).map(move |k| (k * 100 + rank * 20, 20));
            segment(
                rank,
                3,
                std::iter::once((2000 + rank * 50, rank * 7 + 1)).chain(records),
            )
        })
        .collect();
    assert_bytes(&segments, 2500, |offset| {
        let (k, rank) = (offset / 100, offset % 100 / 20);
        if offset < 1000 && k < count(rank) {
            return Some((rank, rank * 7 + 1 + k * 20 + offset % 20));
        }
        let (rank, at) = (offset.checked_sub(2000)? / 50, offset % 50);
        (rank < 5 && at < rank * 7 + 1).then_some((rank, at))
    });
}

#[test]
fn fault_6_the_newest_write_wins_and_the_others_stay() {
    let strided = |n| (0..n).map(|k| (k * 10, 8));
    // Two processes write the same: the later commit wins, whichever comes first in the list.
    let two = [segment(1, 9, strided(16)), segment(2, 4, strided(16))];
    assert_bytes(&two, 200, |o| {
        (o < 158 && o % 10 < 8).then(|| (1, o / 10 * 8 + o % 10))
    });
    // The first 8 of 16 are written again.
    let again = [segment(1, 4, strided(16)), segment(1, 5, strided(8))];
    assert_bytes(&again, 200, |o| {
        (o < 158 && o % 10 < 8).then(|| (1, o / 10 * 8 + o % 10))
    });
    let mut folder = Folder::new();
    strided(16)
        .chain(strided(8))
        .for_each(|(o, l)| folder.push(o, l).unwrap());
    let one = Segment::new(LogSource::default(), 1, folder.finish().remove(0));
    assert_bytes(&[one], 200, |o| {
        let first = if o < 80 { 128 } else { 0 };
        (o < 158 && o % 10 < 8).then(|| (0, first + o / 10 * 8 + o % 10))
    });
}

#[test]
fn fault_7_lengths_above_the_stride_and_strides_of_any_sign() {
    let overlapping = segment(1, 1, (0..20).map(|k| (k * 10, 25)));
    assert_bytes(&[overlapping], 230, |o| {
        (o < 215)
            .then(|| ((o / 10).min(19), o))
            .map(|(k, o)| (1, k * 25 + o - k * 10))
    });
    let down = segment(1, 1, (0..20).map(|k| (500 - k * 20, 15)));
    assert_bytes(&[down], 600, |o| {
        (0..20)
            .find(|k| (500 - k * 20..515 - k * 20).contains(&o))
            .map(|k| (1, k * 15 + o + k * 20 - 500))
    });
    let same = segment(1, 1, (0..20).map(|_| (70, 5)));
    assert_bytes(&[same], 100, |o| {
        (70..75).contains(&o).then(|| (1, 19 * 5 + o - 70))
    });
}

#[test]
fn fault_8_holes_are_told_from_the_end_and_are_found_quickly() {
    let logs = 2000u64;
    // Each log has its own length, so that nothing is merged; a hole of 1,000,000 is in the middle.
    let segments: Vec<Segment> = (0..logs)
        .map(|log| {
            segment(
                log,
                1,
                [(
                    log * 3000 + if log >= 1000 { 1_000_000 } else { 0 },
                    log + 1,
                )],
            )
        })
        .collect();
    let map = map(&segments);
    assert_eq!(map.entries() as u64, logs);
    assert_eq!(
        map.lookup(999 * 3000 + 1000),
        MapLookup::Hole(1000 * 3000 + 1_000_000)
    );
    assert!(matches!(map.lookup(map.end() - 1), MapLookup::Data(p) if p.len == 1));
    assert_eq!(map.lookup(map.end()), MapLookup::End);
    assert_eq!(map.lookup(u64::MAX), MapLookup::End);
}

#[test]
fn fault_9_random_extents_take_no_more_than_a_plain_list() {
    let mut seed = 12345u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for bits in [12, 20, 40] {
        let mut folder = Folder::new();
        let (mut plain, mut before) = (0usize, 0u64);
        let size = |v: u64| (70 - (v | 1).leading_zeros() as usize) / 7;
        for _ in 0..40_000 {
            let (offset, len) = (random() >> (64 - bits), 4096);
            folder.push(offset, len).unwrap();
            // A plain list: the distance from the extent before with its sign, and the length, as varints.
            let distance = offset.wrapping_sub(before) as i64;
            plain += size(((distance << 1) ^ (distance >> 63)) as u64) + size(len);
            before = offset;
        }
        let bytes: usize = folder
            .finish()
            .into_iter()
            .map(|p| Segment::new(LogSource::default(), 1, p).encoded().len())
            .sum();
        assert!(
            bytes as f64 <= plain as f64 * 1.02,
            "{bytes} bytes, plain {plain}"
        );
    }
}

#[test]
fn fault_10_the_example_of_the_global_pattern_is_found() {
    // Figure 10: offset 1250 is in slot 2 * 3 + 1 (counted from 0), the second of process 7.
    let ids = [4, 7, 6, 2, 8, 9, 4, 7, 6, 2, 8, 9u64];
    let mut written = std::collections::BTreeMap::new();
    let mut segments = Vec::new();
    for (slot, &log) in ids.iter().enumerate() {
        let base = 1000 + slot as u64 / 3 * 120 + slot as u64 % 3 * 10;
        let addr = written.entry(log).or_insert(0u64);
        let mut folder = Folder::new();
        for row in 0..4 {
            folder.push_at(base + row * 30, 10, *addr).unwrap();
            *addr += 10;
        }
        segments.push(Segment::new(
            LogSource { member: 0, log },
            1,
            folder.finish().remove(0),
        ));
    }
    let map = map(&segments);
    let MapLookup::Data(p) = map.lookup(1250) else {
        panic!("not found")
    };
    assert_eq!((p.source.log, p.addr, p.len), (7, 40, 10));
    let expected = segments
        .iter()
        .flat_map(|s| s.pattern.iter().map(|e| (e, s.source.log)));
    for (Element { offset, addr, .. }, log) in expected {
        let MapLookup::Data(p) = map.lookup(offset) else {
            panic!("nothing at {offset}")
        };
        assert_eq!((p.source.log, p.addr), (log, addr));
    }
}
