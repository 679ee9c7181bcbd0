//! Lookups over runs, trees and tables against a plain map.
use super::*;
use crate::csm::tests::{on_disk, records};
use crate::csm::{Cutter, Tree};
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
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("SOAK").is_some() { 5_000 } else { 96 }))]
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
                1 => Source::Tree(Arc::new(Tree::of(&records, &mut Cutter::new(200)))),
                _ => Source::Disk(on_disk(dir.path(), i as u64 * 100, &records)),
            });
        }
        sources.reverse();
        model.retain(|_, r| r.len > 0);
        let mut asked: Vec<(u64, Range<u64>)> =
            asked.into_iter().map(|(fid, at, len)| (fid, at..at.saturating_add(len))).collect();
        asked.sort_by_key(|(fid, range)| (*fid, range.start));
        let requests: Vec<Request> = asked.iter().map(|(fid, range)| Request::new(*fid, range)).collect();
        let lookup = Lookup { sources, piece };
        let (mut next, mut scans) = (0, 0);
        lookup.answer(&requests, |i, answer| {
            assert_eq!(i, next);
            next += 1;
            let (fid, range) = &asked[i];
            let Answer::Records(found) = answer else {
                scans += 1;
                return Ok(());
            };
            let reaches = |r: &&Record| r.key.fid == *fid && r.extent().is_some_and(|e| e.clip(range).is_some());
            let found: Vec<Record> = found.iter().filter(reaches).copied().collect();
            let want: Vec<Record> = model.values().filter(reaches).copied().collect();
            assert_eq!(found, want);
            Ok(())
        }).unwrap();
        prop_assert_eq!(next, requests.len());
        let deletes = layers.iter().any(|(records, _)| records.iter().any(|r| r.len == 0));
        prop_assert!(scans == 0 || deletes || piece < usize::MAX);
    }
}
