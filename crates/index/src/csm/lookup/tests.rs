//! Lookups over runs, trees and tables against a plain map.
use super::*;
use crate::csm::block::BlockSplitter;
use crate::csm::tests::{on_disk, on_disk_in, records};
use crate::csm::tree::Tree;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes from one possible key to the next, and the longest record.
const GRID: u64 = 8;

/// Layers may be laid over each other in any way: their records never overlap.
fn on_grid(records: &[Record]) -> Vec<Record> {
    let put = |r: &Record| Record {
        key: Key {
            offset: r.key.offset * GRID,
            ..r.key
        },
        len: (r.len / 250).min(GRID as u32),
        ..*r
    };
    records.iter().map(put).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(96, 5_000)))]
    #[test]
    fn every_request_gets_its_records(
        layers in proptest::collection::vec((records(60), 0u8..3), 0..6),
        asked in proptest::collection::vec((0u64..4, 0u64..40_000, prop_oneof![1u64..20, 1u64..3000, Just(u64::MAX)]), 1..60),
        piece in prop_oneof![Just(1usize), 100usize..2000, Just(usize::MAX)],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut model: BTreeMap<Key, Record> = BTreeMap::new();
        let mut sources = Vec::new();
        for (i, (records, kind)) in layers.iter().enumerate() {
            let records = on_grid(records);
            model.extend(records.iter().map(|r| (r.key, *r)));
            sources.push(match kind {
                0 => Source::Run(records.into()),
                1 => Source::Tree(Arc::new(Tree::of(&records, &mut BlockSplitter::new(200)))),
                _ => Source::Disk(on_disk(dir.path(), i as u64 * 100, &records)),
            });
        }
        sources.reverse();
        model.retain(|_, r| r.len > 0);
        let mut asked: Vec<(u64, Range<u64>)> =
            asked.into_iter().map(|(fid, at, len)| (fid, at..at.saturating_add(len))).collect();
        asked.sort_by_key(|(fid, range)| (*fid, range.start));
        let scans = scans(Lookup { sources, piece }, &model, &asked);
        let deletes = layers.iter().any(|(records, _)| records.iter().any(|r| r.len == 0));
        prop_assert!(scans == 0 || deletes || piece < usize::MAX);
    }

    /// Two stretches of equal records, each in a run of its own or both in one, and requests in steps through both and beyond.
    #[test]
    fn requests_in_steps_get_their_records(
        counts in (1u64..400, 1u64..400), hole in 0u64..(3 << 20), len in 1u64..20, space in 0u64..3,
        step in 1u64..40, start in 0u64..40, width in 1u64..60, kind in 0u8..3,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let record = |i: u64, from: u64| Record {
            len: len as u32,
            log: i % 16,
            addr: i / 16 * len,
            seq: 1 + i % 16,
            ..Record::delete(Key { fid: 1, offset: from + i * (len + space) })
        };
        let behind = hole + counts.0 * (len + space);
        let all: Vec<Record> = (0..counts.0).map(|i| record(i, 7)).chain((0..counts.1).map(|i| record(i, 7 + behind))).collect();
        let (first, second) = all.split_at(counts.0 as usize);
        let mut splitter = BlockSplitter::new(4096);
        let disk = |number, records: &[Record]| Source::Disk(on_disk_in(dir.path(), number, records, 3000));
        let sources = match kind {
            0 => vec![disk(1, second), disk(1000, first)],
            1 => vec![disk(1, &all)],
            _ => vec![disk(1, first), Source::Tree(Arc::new(Tree::of(second, &mut splitter)))],
        };
        let offset = |i: u64| start + i * step * (len + space);
        let end = behind + (counts.1 + 9) * (len + space);
        let in_steps = |from: u64| (0..).map(move |i| from + offset(i)).take_while(move |at| *at < from.max(end)).take(200);
        let mut starts: Vec<u64> = in_steps(0).chain(in_steps(behind)).collect();
        starts.sort_unstable();
        let asked: Vec<_> = starts.into_iter().map(|at| (1, at..at + width)).collect();
        let model = all.iter().map(|r| (r.key, *r)).collect();
        prop_assert_eq!(scans(Lookup { sources, piece: usize::MAX }, &model, &asked), 0);
    }
}

/// Checks all answers; how many requests were left to a scan.
fn scans(lookup: Lookup, model: &BTreeMap<Key, Record>, asked: &[(u64, Range<u64>)]) -> usize {
    let requests: Vec<RangeRequest> = asked
        .iter()
        .map(|(fid, range)| RangeRequest::new(*fid, range))
        .collect();
    let (mut next, mut scans) = (0, 0);
    let answered = lookup.answer(&requests, |i, answer| {
        assert_eq!(i, next);
        next += 1;
        let (fid, range) = &asked[i];
        let LookupResult::Records(found) = answer else {
            scans += 1;
            return Ok(());
        };
        let reaches =
            |r: &&Record| r.key.fid == *fid && r.extent().is_some_and(|e| e.clip(range).is_some());
        let found: Vec<Record> = found.iter().filter(reaches).copied().collect();
        let want: Vec<Record> = model.values().filter(reaches).copied().collect();
        assert_eq!(found, want);
        Ok(())
    });
    answered.unwrap();
    assert_eq!(next, requests.len());
    scans
}
