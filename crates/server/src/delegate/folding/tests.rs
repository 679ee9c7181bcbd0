//! Which puts become patterns and which stay extents; no byte is lost or put twice.
use super::*;
use forebay_pattern::decode_all;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn put(offset: u64, len: u64, log: u64, addr: u64) -> Change {
    Change::Put(Extent {
        offset,
        len,
        member: 3,
        log,
        addr,
        seq: 0,
    })
}

/// The segments of what was folded.
fn segments(folded: &FoldedLayer) -> Vec<Segment> {
    let (patterns, lost) = decode_all(&folded.patterns);
    assert!(lost.is_empty() && patterns.globals.is_empty());
    patterns.segments
}

#[test]
fn a_strided_writer_costs_some_bytes_however_much_it_wrote() {
    let changes = (0..50_000).map(|k| put(4096 + k * (2 << 20), 4096, 7, 100 + k * 4096));
    let folded = fold(changes.collect());
    assert!(folded.changes.is_empty());
    assert_eq!(folded.records, 50_000);
    assert!(
        folded.patterns.len() < 40,
        "{} bytes",
        folded.patterns.len()
    );
    let source = LogSource { member: 3, log: 7 };
    assert_eq!(segments(&folded)[0].source, source);
}

#[test]
fn a_long_piece_is_a_pattern_and_a_short_one_an_extent() {
    let folded = fold(vec![put(0, 100 << 20, 1, 0)]);
    assert!(folded.changes.is_empty() && folded.patterns.len() < 30);
    assert_eq!(folded.records, 100);
    let short = vec![put(0, 3 << 20, 1, 0)];
    let folded = fold(short.clone());
    assert_eq!(
        (folded.changes, folded.patterns.len(), folded.records),
        (short, 0, 0)
    );
}

#[test]
fn each_log_is_judged_for_itself() {
    let mut changes = vec![Change::Cut { start: 1, end: 2 }];
    // Log 1 strides backwards, log 2 has no order at all, between the others.
    let mut random = 12345u64;
    for k in 0..1000 {
        changes.push(put((2000 - k) * 8192, 4096, 1, k * 4096));
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
        changes.push(put(
            (1 << 40) + k * (1 << 20) + (random >> 45),
            1 + (random >> 50),
            2,
            k << 21,
        ));
    }
    let folded = fold(changes);
    assert_eq!((folded.records, segments(&folded).len()), (1000, 1));
    assert_eq!(folded.changes.len(), 1001);
    assert_eq!(folded.changes[0], Change::Cut { start: 1, end: 2 });
}

#[test]
fn what_lies_further_out_than_patterns_reach_stays_extents() {
    let far = put(1 << 61, 4096, 1, 0);
    let mut changes = vec![far.clone()];
    changes.extend((0..100).map(|k| put(k * 8192, 4096, 1, 4096 + k * 4096)));
    let folded = fold(changes);
    assert_eq!((folded.changes, folded.records), (vec![far], 100));
}

/// Rows of writes: where, how many, how long, how far apart, whose log.
#[test]
fn what_does_not_show_that_it_is_apart_stays_extents_once_it_is_much() {
    // Two rows of odd strides, that pass each other.
    let row = |log: u64, start: u64, stride: u64| {
        let one = move |k: u64| put(start + k * stride, 1, log, k);
        (0..20_000).map(one)
    };
    let changes: Vec<Change> = row(1, 0, 1000).chain(row(2, 301, 1001)).collect();
    assert_eq!(segments(&fold_shown(changes.clone(), 40_000)).len(), 2);
    let folded = fold_shown(changes, 39_999);
    assert_eq!((folded.patterns.len(), folded.records), (0, 0));
    assert_eq!(folded.changes.len(), 40_000);
    // Even ones do.
    let changes = row(1, 0, 1000).chain(row(2, 300, 1000)).collect();
    assert_eq!(segments(&fold_shown(changes, 10)).len(), 2);
}

fn rows() -> impl Strategy<Value = Vec<(u64, u64, u64, i64, u64)>> {
    prop::collection::vec(
        (0..200_000u64, 1..60u64, 1..3000u64, -5000..5000i64, 0..3u64),
        1..12,
    )
}

proptest! {
    #[test]
    fn nothing_is_lost_and_nothing_is_there_twice(rows in rows()) {
        // Later writes win: as in a layer.
        let mut layer = super::super::intervals::Intervals::default();
        let mut addr = [0u64; 3];
        for (start, count, len, stride, log) in rows {
            for k in 0..count {
                let at = (start as i64 + k as i64 * stride).unsigned_abs();
                let source = super::super::intervals::ByteSource::Log { member: 3, log, addr: addr[log as usize] };
                addr[log as usize] += len;
                layer.insert(at..at + len, source, |_, _| ());
            }
        }
        let mut bytes = BTreeMap::new();
        let mut changes = Vec::new();
        for (range, source) in layer.iter() {
            let super::super::intervals::ByteSource::Log { log, addr, .. } = source else { continue };
            changes.push(put(range.start, range.end - range.start, log, addr));
            bytes.insert(range.start, (range.end, log, addr));
        }
        let all: u64 = layer.bytes();
        let folded = fold(changes);
        let mut elements: Vec<(u64, u64, u64, u64)> = Vec::new();
        let mut of_patterns = 0;
        for segment in segments(&folded) {
            prop_assert_eq!((segment.first, segment.last, segment.source.member), (0, 0, 3));
            for e in segment.pattern.iter() {
                of_patterns += 1;
                elements.push((e.offset, e.len, segment.source.log, e.addr));
            }
        }
        prop_assert_eq!(of_patterns, folded.records, "short pieces: one record each");
        for change in &folded.changes {
            let Change::Put(e) = change else { panic!("only puts went in") };
            elements.push((e.offset, e.len, e.log, e.addr));
        }
        elements.sort_unstable();
        prop_assert_eq!(elements.iter().map(|e| e.1).sum::<u64>(), all);
        let mut end = 0;
        for (offset, len, log, addr) in elements {
            prop_assert!(offset >= end, "{offset} is there twice");
            end = offset + len;
            let (&from, &(to, l, a)) = bytes.range(..=offset).next_back().unwrap();
            prop_assert!(l == log && a + (offset - from) == addr && end <= to);
        }
    }
}
