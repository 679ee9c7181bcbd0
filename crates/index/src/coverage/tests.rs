//! Coverage against a set of bytes.
use super::*;
use crate::csm::Key;
use crate::extent::SLICE;
use proptest::prelude::*;

fn extent(offset: u64, len: u64) -> Extent {
    Extent {
        offset,
        len,
        member: 1,
        log: 2,
        addr: offset * 3,
        seq: 4,
    }
}

fn free(coverage: &Coverage, fid: u64, start: u64, end: u64, seq: u64) -> Option<bool> {
    let source = Extent {
        seq,
        ..extent(start, end - start)
    };
    match coverage.known_pieces(fid, [(start, end, Some(&source))].into_iter()) {
        KnownPieces::Known(free, _) => Some(free[0]),
        KnownPieces::Nothing => None,
    }
}

fn store(coverage: &Coverage, fid: u64, extents: &[Extent]) {
    let records: Vec<Record> = extents.iter().map(|e| Record::put(fid, e)).collect();
    coverage.apply(&[records.into()], || ());
}

fn begin_empty(coverage: &Coverage, fid: u64) {
    let (version, ()) = coverage.begin(fid, || ());
    coverage.start_empty(fid, version);
}

#[test]
fn a_new_file_is_free_and_what_is_applied_is_not() {
    let coverage = Coverage::new(1 << 20);
    // Not followed before it is looked at again.
    assert_eq!(free(&coverage, 1, 0, 10, 5), Some(false));
    assert_eq!(free(&coverage, 1, 0, 10, 5), None);
    begin_empty(&coverage, 1);
    assert_eq!(free(&coverage, 1, 0, 10, 5), Some(true));
    store(&coverage, 1, &[extent(100, 50)]);
    assert_eq!(free(&coverage, 1, 0, 100, 5), Some(true));
    assert_eq!(free(&coverage, 1, 0, 101, 5), Some(false));
    assert_eq!(free(&coverage, 1, 150, 160, 5), Some(true));
    // Of the same commit and log, and continuing it: a join.
    assert_ne!(free(&coverage, 2, 150, 160, 4), Some(true));
    let next = Extent {
        addr: 300 + 50,
        ..extent(150, 10)
    };
    let look = coverage.known_pieces(1, [(150, 160, Some(&next))].into_iter());
    assert!(matches!(look, KnownPieces::Known(free, _) if !free[0]));
}

#[test]
fn what_was_applied_meanwhile_makes_what_was_read_void() {
    let coverage = Coverage::new(1 << 20);
    let (version, ()) = coverage.begin(1, || ());
    store(&coverage, 1, &[extent(0, 10)]);
    coverage.start_empty(1, version);
    assert_eq!(free(&coverage, 1, 0, 10, 5), Some(false));
    let (version, ()) = coverage.begin(1, || ());
    store(&coverage, 1, &[extent(20, 10)]);
    coverage.load_page(1, version, 0, Some((&[extent(0, 10)], None)));
    assert_eq!(free(&coverage, 1, 20, 30, 5), Some(false));
    let (version, ()) = coverage.begin(1, || ());
    coverage.load_page(
        1,
        version,
        0,
        Some((&[extent(0, 10), extent(20, 10)], None)),
    );
    assert_eq!(free(&coverage, 1, 20, 30, 5), Some(false));
    assert_eq!(free(&coverage, 1, 30, 40, 5), Some(true));
    assert_eq!(free(&coverage, 1, 30, 1 << 40, 5), Some(true));
}

#[test]
fn memory_stays_within_the_budget_whatever_is_written() {
    let budget = 64 << 10;
    let coverage = Coverage::new(budget);
    for fid in 0..2000 {
        begin_empty(&coverage, fid);
        store(&coverage, fid, &[extent(fid * 64, 10)]);
        assert!(coverage.stats().bytes <= budget as u64);
    }
    // One byte in each slice, then pieces all over some.
    begin_empty(&coverage, 9999);
    for k in 0..5000u64 {
        let offset = k * SLICE + k * 7;
        store(&coverage, 9999, &[extent(offset, 1)]);
        assert!(coverage.stats().bytes <= budget as u64);
        let known = free(&coverage, 9999, offset, offset + 1, 5);
        assert_ne!(known, Some(true));
    }
    for k in 0..200_000u64 {
        let offset = (k * 7919) % (1 << 21) * 200;
        store(&coverage, 9999, &[extent(offset, 100)]);
        assert!(
            coverage.stats().bytes <= budget as u64,
            "{:?}",
            coverage.stats()
        );
    }
    assert!(coverage.stats().bytes > 0);
}

#[test]
fn what_drifting_writers_of_an_array_leave_half_filled_stays_known_in_little_memory() {
    // As BTIO's, class E: lines of 2,040 bytes, 20 in a row, a writer's one below the other; every second writer has been here.
    let (line, row, rows) = (2040, 20 * 2040, 16 * 1028);
    let coverage = Coverage::new(8 << 20);
    begin_empty(&coverage, 1);
    for writer in (0..20).step_by(2) {
        let at = |k: u64| extent(k * row + writer * line, line);
        let lines: Vec<Extent> = (0..rows).map(at).collect();
        store(&coverage, 1, &lines);
    }
    let pages = rows * row / PAGE;
    let bytes = coverage.stats().bytes;
    assert!(bytes <= pages * 132, "{bytes} bytes for {pages} pages");
    for writer in 0..20 {
        for k in (0..rows).step_by(101) {
            let start = k * row + writer * line;
            let known = free(&coverage, 1, start, start + line, 5);
            assert_eq!(known, Some(writer % 2 == 1), "line {k} of {writer}");
        }
    }
    // Each page is whole once the others have been here too.
    for writer in (1..20).step_by(2) {
        let at = |k: u64| extent(k * row + writer * line, line);
        let lines: Vec<Extent> = (0..rows).map(at).collect();
        store(&coverage, 1, &lines);
    }
    let bytes = coverage.stats().bytes;
    assert!(bytes < 10_000, "{bytes} bytes for whole pages");
}

#[test]
fn what_writers_that_take_turns_leave_is_kept_once_for_all_slices() {
    // 512 writers, 4 KiB each in turn, commit one after the other in an order that leaves gaps.
    let coverage = Coverage::new(8 << 20);
    begin_empty(&coverage, 1);
    let (slices, round) = (64, 512 * 4096);
    let pieces = |writer: u64| -> Vec<Extent> {
        let at = |k: u64| extent(k * round + writer * 4096, 4096);
        (0..slices * SLICE / round).map(at).collect()
    };
    let order: Vec<u64> = (0..512).map(|i| i * 75 % 512).collect();
    for (i, writer) in order.iter().enumerate() {
        store(&coverage, 1, &pieces(*writer));
        let bytes = coverage.stats().bytes;
        assert!(bytes < slices * 200 + 10_000, "{bytes} bytes after {i}");
        if i % 100 != 50 {
            continue;
        }
        for (k, other) in order.iter().enumerate() {
            for place in [0, 1, slices * SLICE / round - 1] {
                let start = place * round + other * 4096;
                let known = free(&coverage, 1, start, start + 4096, 5);
                assert_eq!(known, Some(k > i), "piece {place} of {other}");
            }
        }
    }
    // What happens to one of them happens to no other.
    let gone = Record::delete(Key {
        fid: 1,
        offset: SLICE,
    });
    coverage.apply(&[vec![gone].into()], || ());
    begin_empty(&coverage, 2);
    assert!(coverage.stats().bytes < slices * 200 + 20_000);
    assert_eq!(free(&coverage, 1, 0, 4096, 5), Some(false));
    // With the budget of one slice all is forgotten, and counted so.
    let small = Coverage::new(2000 + 64 * 160);
    begin_empty(&small, 1);
    for writer in order.iter().take(20) {
        store(&small, 1, &pieces(*writer));
        assert!(small.stats().bytes <= 2000 + 64 * 160);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(u64, u64),
    Remove(usize),
    Begin,
    Load(u64),
}

/// Units of 64 KiB over the end of the first slice, so that there are few pages, slices and boundaries.
const UNIT: u64 = 64 << 10;
const UNITS: u64 = 96;
const BASE: u64 = SLICE - UNITS / 2 * UNIT;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..UNITS, 1u64..16).prop_map(|(at, n)| Step::Put(at, n.min(UNITS - at))),
        2 => any::<usize>().prop_map(Step::Remove),
        1 => Just(Step::Begin),
        2 => (0..UNITS).prop_map(Step::Load),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn what_is_called_free_is_free(before in 0usize..10, steps in steps(), budget in 300usize..6000) {
        let coverage = Coverage::new(budget);
        // Extents by offset: what a store would hold.
        let mut stored: std::collections::BTreeMap<u64, Extent> = Default::default();
        for (i, step) in steps.iter().enumerate() {
            match *step {
                Step::Put(at, n) => {
                    let (start, end) = (BASE + at * UNIT, BASE + (at + n) * UNIT);
                    // As `change` does it: no two overlap.
                    let over: Vec<Extent> = stored.values().filter(|e| e.offset < end && e.end() > start).copied().collect();
                    let mut records = Vec::new();
                    for old in over {
                        stored.remove(&old.offset);
                        records.push(Record::delete(Key { fid: 1, offset: old.offset }));
                        for part in [old.clip(&(0..start)), old.clip(&(end..u64::MAX))].into_iter().flatten() {
                            stored.insert(part.offset, part);
                            records.push(Record::put(1, &part));
                        }
                    }
                    let new = extent(start, end - start);
                    stored.insert(start, new);
                    records.push(Record::put(1, &new));
                    coverage.apply(&[records.into()], || ());
                }
                Step::Remove(which) => {
                    if let Some(offset) = stored.keys().nth(which % stored.len().max(1)).copied() {
                        stored.remove(&offset);
                        coverage.apply(&[vec![Record::delete(Key { fid: 1, offset })].into()], || ());
                    }
                }
                Step::Begin if i >= before => {
                    let (version, ()) = coverage.begin(1, || ());
                    if stored.is_empty() {
                        coverage.start_empty(1, version);
                    }
                }
                Step::Begin => {}
                Step::Load(at) => {
                    let page = (BASE + at * UNIT) / PAGE;
                    let look = coverage.known_pieces(1, [(page * PAGE, page * PAGE + 1, None)].into_iter());
                    if matches!(look, KnownPieces::Nothing) {
                        continue;
                    }
                    let (version, ()) = coverage.begin(1, || ());
                    let (start, end) = (page * PAGE, (page + 1) * PAGE);
                    let found: Vec<Extent> = stored.values().filter(|e| e.offset < end && e.end() > start).copied().collect();
                    let next = stored.range(end..).next().map(|(offset, _)| *offset);
                    coverage.load_page(1, version, page, Some((&found, next)));
                }
            }
            for at in 0..UNITS {
                let (start, end) = (BASE + at * UNIT, BASE + (at + 1) * UNIT);
                if free(&coverage, 1, start, end, 5) == Some(true) {
                    prop_assert!(!stored.values().any(|e| e.offset < end && e.end() > start), "{start} {:?}", stored);
                }
            }
            prop_assert_eq!(coverage.stats().bytes, coverage.counted());
            let whole = free(&coverage, 1, BASE - 5, BASE + UNITS * UNIT, 5);
            prop_assert!(whole != Some(true) || stored.is_empty());
        }
    }

    #[test]
    fn slices_that_share_what_is_known_are_told_apart(
        commits in proptest::collection::vec((0u64..64, 1u64..16, 0usize..3, 0u64..3, any::<bool>()), 1..25),
        gone in proptest::collection::vec((0usize..25, 0u64..3, 0u64..64), 0..5),
        budget in 1_000usize..40_000,
    ) {
        // Three slices; a commit puts a piece of each 2 MiB into some of them, and a few places lose theirs.
        let (round, unit) = (2 << 20, 32 << 10);
        let coverage = Coverage::new(budget);
        begin_empty(&coverage, 1);
        let mut stored: std::collections::BTreeMap<u64, Extent> = Default::default();
        for (i, (at, units, from, slices, all)) in commits.into_iter().enumerate() {
            let rounds = SLICE / round;
            let mut records = Vec::new();
            for slice in from as u64..(from as u64 + slices + 1).min(3) {
                for k in (0..rounds).filter(|k| all || k % 3 == 0) {
                    let start = slice * SLICE + k * round + at * unit;
                    let new = extent(start, (units * unit).min(round - at * unit));
                    if stored.values().all(|e| e.end() <= new.offset || new.end() <= e.offset) {
                        stored.insert(start, new);
                        records.push(Record::put(1, &new));
                    }
                }
            }
            for (_, slice, at) in gone.iter().filter(|gone| gone.0 == i) {
                let key = stored.range(slice * SLICE + at * unit..).next().map(|(k, _)| *k);
                if let Some(offset) = key {
                    stored.remove(&offset);
                    records.push(Record::delete(Key { fid: 1, offset }));
                }
            }
            coverage.apply(&[records.into()], || ());
            prop_assert_eq!(coverage.stats().bytes, coverage.counted());
            prop_assert!(coverage.stats().bytes <= budget as u64);
            for slice in 0..3 {
                for k in [0, 1, rounds - 1] {
                    for piece in 0..round / unit {
                        let start = slice * SLICE + k * round + piece * unit;
                        let over = stored.range(..start + unit).next_back().is_some_and(|(_, e)| e.end() > start);
                        let known = free(&coverage, 1, start, start + unit, 5);
                        prop_assert!(!over || known != Some(true), "{slice} {k} {piece}");
                        // Nothing was forgotten or removed, so all is known.
                        prop_assert!(over || known != Some(false) || budget < 20_000 || !gone.is_empty(), "{slice} {k} {piece}");
                    }
                }
            }
        }
    }
}
