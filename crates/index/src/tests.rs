//! The index, case by case.

mod model;

use super::*;
use forebay_storage::{Batch, Options, OsIo};

struct Fixture {
    _dir: tempfile::TempDir,
    store: Arc<Store>,
    index: ExtentIndex,
}

fn fixture() -> Fixture {
    fixture_with(Settings::default())
}

/// Everything small, so that few records are in blocks, trees and tables.
fn small() -> Settings {
    Settings {
        block_bytes: 256,
        table_blocks: 3,
        memtable_bytes: 4096,
        buffer_bytes: 4096,
        cache_bytes: 4096,
        background: false,
        ..Settings::default()
    }
}

fn fixture_with(settings: Settings) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(
        Store::open(
            Arc::new(OsIo),
            &dir.path().join("store"),
            Options::default(),
        )
        .unwrap(),
    );
    let index = ExtentIndex::open(&store, settings).unwrap();
    Fixture {
        _dir: dir,
        store,
        index,
    }
}

impl Fixture {
    /// Applies the changes; returns what was displaced and how many writes it took.
    fn change(&self, fid: u64, changes: &[Change]) -> (Vec<Extent>, usize) {
        let mut batch = Batch::new();
        let displaced = self.index.change(&mut batch, fid, changes).unwrap();
        let puts = || self.index.engine().stats().puts as usize;
        let before = puts();
        self.store.apply(batch).unwrap();
        (displaced, puts() - before)
    }

    fn all(&self, fid: u64) -> Vec<Extent> {
        let entries = self.index.iter().unwrap().map(Result::unwrap);
        entries.filter(|(f, _)| *f == fid).map(|(_, e)| e).collect()
    }
}

use std::result::Result;

#[test]
fn a_search_among_tiny_extents_reads_few_of_them() {
    let f = fixture();
    // Four-byte pieces, each of its own commit: as a program writes single numbers that are all published.
    let puts: Vec<Change> = (0..20_000)
        .map(|k| Change::Put(extent(k * 8, 4, k, 0)))
        .collect();
    f.change(1, &puts);
    let view = f.index.engine().view();
    let at = 150_001;
    let to = std::ops::Bound::Included(at);
    let read: Vec<Extent> = f
        .index
        .extents_at(&view, 1, at, to)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(read.last().unwrap().offset, 150_000);
    assert!(read.len() <= 128, "{} extents for one", read.len());
}

fn extent(offset: u64, len: u64, log: u64, addr: u64) -> Extent {
    Extent {
        offset,
        len,
        member: 1,
        log,
        addr,
        seq: 7,
    }
}

fn put(offset: u64, len: u64, log: u64, addr: u64) -> Change {
    Change::Put(extent(offset, len, log, addr))
}

#[test]
fn the_first_change_of_a_file_looks_at_nothing_and_later_ones_see_it() {
    for pieces in [1, 20] {
        let f = fixture();
        let cut = Change::Cut {
            start: 10_000,
            end: u64::MAX,
        };
        let puts = (0..pieces).map(|k| put(k * 300, 100, 1, k * 100));
        let changes: Vec<Change> = puts.chain([cut]).collect();
        let mut batch = Batch::new();
        let displaced = f.index.change_first(&mut batch, 5, &changes).unwrap();
        assert_eq!(displaced, []);
        f.store.apply(batch).unwrap();
        assert_eq!(f.all(5).len() as u64, pieces);
        let stats = f.index.engine().stats();
        assert_eq!((stats.coverage_misses, stats.coverage_loads), (0, 0));
        let (displaced, _) = f.change(5, &[put(40, 20, 2, 500)]);
        assert_eq!(displaced, [extent(40, 20, 1, 40)]);
    }
}

#[test]
fn a_put_over_the_middle_leaves_both_ends() {
    let f = fixture();
    f.change(5, &[put(0, 100, 1, 0)]);
    let (displaced, writes) = f.change(5, &[put(40, 20, 2, 500)]);
    assert_eq!(displaced, [extent(40, 20, 1, 40)]);
    assert_eq!(writes, 3);
    let expected = [
        extent(0, 40, 1, 0),
        extent(40, 20, 2, 500),
        extent(60, 40, 1, 60),
    ];
    assert_eq!(f.all(5), expected);
    assert_eq!(
        f.index.get(5, 50..70, 10).unwrap(),
        [extent(50, 10, 2, 510), extent(60, 10, 1, 60)]
    );
    assert_eq!(f.index.get(5, 0..100, 1).unwrap(), [extent(0, 40, 1, 0)]);
    assert_eq!(f.index.get(4, 0..u64::MAX, 10).unwrap(), []);
}

#[test]
fn long_puts_are_stored_in_parts_that_respect_slices() {
    let f = fixture();
    let start = SLICE - MAX_EXTENT / 2;
    f.change(1, &[put(start, 3 * MAX_EXTENT, 1, 0)]);
    let lens: Vec<u64> = f.all(1).iter().map(|e| e.len).collect();
    let half = MAX_EXTENT / 2;
    assert_eq!(lens, [half, MAX_EXTENT, MAX_EXTENT, half]);
    // A byte deep inside a full-length extent is found.
    let at = SLICE + MAX_EXTENT - 1;
    assert_eq!(
        f.index.get(1, at..at + 1, 9).unwrap(),
        [extent(at, 1, 1, at - start)]
    );
}

#[test]
fn contiguous_puts_join_in_one_batch_and_across_batches() {
    let f = fixture();
    let small: Vec<Change> = (0..64).map(|i| put(i * 4096, 4096, 1, i * 4096)).collect();
    let (displaced, writes) = f.change(1, &small);
    assert_eq!((displaced.len(), writes), (0, 1));
    // On the right and on the left of what is stored.
    f.change(1, &[put(64 * 4096, 4096, 1, 64 * 4096)]);
    assert_eq!(f.all(1), [extent(0, 65 * 4096, 1, 0)]);
    f.change(2, &[put(4096, 4096, 1, 4096)]);
    f.change(2, &[put(0, 4096, 1, 0)]);
    assert_eq!(f.all(2), [extent(0, 8192, 1, 0)]);
    // Another commit stays apart: its sequence differs.
    let mut other = extent(8192, 4096, 1, 8192);
    other.seq = 8;
    f.change(2, &[Change::Put(other)]);
    assert_eq!(f.all(2).len(), 2);
}

#[test]
fn repeating_a_put_writes_and_displaces_nothing() {
    let f = fixture();
    let changes = [put(10, 3 * MAX_EXTENT, 1, 0), put(SLICE, 10, 1, 9 << 20)];
    f.change(1, &changes);
    assert_eq!(f.change(1, &changes), (vec![], 0));
    // Even with a put of other bytes between: those are displaced, once.
    let again = [put(0, 10, 3, 0), put(0, 10, 4, 0), put(0, 10, 3, 0)];
    assert_eq!(f.change(1, &again).0, [extent(0, 10, 4, 0)]);
}

#[test]
fn a_cut_to_the_end_of_offsets_truncates() {
    let f = fixture();
    f.change(1, &[put(0, 100, 1, 0), put(5 * SLICE, 100, 1, 100)]);
    f.change(2, &[put(0, 1, 1, 200)]);
    let cut = Change::Cut {
        start: 50,
        end: u64::MAX,
    };
    let (displaced, _) = f.change(1, std::slice::from_ref(&cut));
    assert_eq!(
        displaced,
        [extent(50, 50, 1, 50), extent(5 * SLICE, 100, 1, 100)]
    );
    assert_eq!(f.all(1), [extent(0, 50, 1, 0)]);
    assert_eq!(f.all(2).len(), 1);
    assert_eq!(f.change(1, &[cut]), (vec![], 0));
}

#[test]
fn offsets_near_the_end_of_u64_do_not_overflow() {
    let f = fixture();
    let far = u64::MAX - 10;
    f.change(1, &[put(far, 100, 1, 0)]);
    assert_eq!(
        f.index.get(1, far..u64::MAX, 9).unwrap(),
        [extent(far, 10, 1, 0)]
    );
    let (displaced, _) = f.change(
        1,
        &[Change::Cut {
            start: 0,
            end: u64::MAX,
        }],
    );
    assert_eq!(displaced, [extent(far, 10, 1, 0)]);
}

#[test]
fn remove_takes_a_file_in_steps() {
    let f = fixture();
    let puts: Vec<Change> = (0..10).map(|i| put(i * 10, 5, 1, i * 5 + i)).collect();
    f.change(1, &puts);
    f.change(2, &puts);
    let mut sizes = Vec::new();
    loop {
        let mut batch = Batch::new();
        let removed = f.index.remove(&mut batch, 1, 4).unwrap();
        f.store.apply(batch).unwrap();
        sizes.push(removed.len());
        if removed.is_empty() {
            break;
        }
    }
    assert_eq!(sizes, [4, 4, 2, 0]);
    assert_eq!(f.index.iter().unwrap().count(), 10);
}

#[test]
fn gets_with_a_limit_return_the_first_extents_however_many_there_are() {
    for settings in [Settings::default(), small()] {
        let f = fixture_with(settings);
        let puts: Vec<Change> = (0..5000).map(|k| put(k * 8, 4, k, 0)).collect();
        f.change(1, &puts);
        for limit in [1, 40, 3000, usize::MAX] {
            let found = f.index.get(1, 3..u64::MAX, limit).unwrap();
            assert_eq!(found.len(), limit.min(5000));
            assert_eq!(found[0], extent(3, 1, 0, 3));
            let offsets = found[1..].iter().map(|e| e.offset);
            assert!(offsets.eq((1..found.len() as u64).map(|k| k * 8)));
        }
    }
}
