//! The index against a plain model: which log byte every byte of a file comes from.

use super::*;
use forebay_storage::{Batch, Options, OsIo};
use proptest::prelude::*;
use std::collections::HashSet;

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

/// What the model knows of a unit of the file: `(member, log, addr of its first byte, seq)`.
type Unit = Option<(u16, u64, u64, u64)>;

/// Changes in units; addresses are given out by the test so that each is used once.
#[derive(Debug, Clone)]
enum Step {
    Put {
        at: u64,
        len: u64,
        log: u64,
        joined: bool,
    },
    Cut {
        at: u64,
        len: u64,
        to_end: bool,
    },
}

const UNITS: u64 = 96;

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        6 => (0..UNITS, 1..24u64, 0..3u64, any::<bool>()).prop_map(|(at, len, log, joined)| Step::Put { at, len, log, joined }),
        1 => (0..UNITS, 1..40u64, any::<bool>()).prop_map(|(at, len, to_end)| Step::Cut { at, len, to_end }),
    ];
    prop::collection::vec(prop::collection::vec(step, 1..12), 1..8)
}

/// Runs the batches on the index and on the model, over `UNITS` units of `unit` bytes from `base`.
fn agree(base: u64, unit: u64, batches: &[Vec<Step>]) {
    agree_in(&fixture(), base, unit, batches, 0);
}

/// The same in that index; it is flushed before the batches whose bits are set.
fn agree_in(f: &Fixture, base: u64, unit: u64, batches: &[Vec<Step>], flushes: u8) {
    let mut model: Vec<Unit> = vec![None; UNITS as usize];
    let (mut next_addr, mut last_end) = ([0u64; 3], 0);
    for (number, batch) in batches.iter().enumerate() {
        let seq = number as u64 / 2; // two batches share a commit, so that joins across batches happen
        let mut changes = Vec::new();
        let mut used: HashSet<(u16, u64, u64)> = sources(&model);
        for step in batch {
            match *step {
                Step::Put {
                    at,
                    len,
                    log,
                    joined,
                } => {
                    let at = if joined { last_end } else { at };
                    let end = (at + len).min(UNITS);
                    if at >= end {
                        continue;
                    }
                    last_end = end;
                    let addr = next_addr[log as usize];
                    next_addr[log as usize] += (end - at) * unit;
                    let member = (log % 2) as u16;
                    changes.push(Change::Put(Extent {
                        offset: base + at * unit,
                        len: (end - at) * unit,
                        member,
                        log,
                        addr,
                        seq,
                    }));
                    for u in at..end {
                        let source = (member, log, addr + (u - at) * unit);
                        model[u as usize] = Some((source.0, source.1, source.2, seq));
                        used.insert(source);
                    }
                }
                Step::Cut { at, len, to_end } => {
                    let end = if to_end { UNITS } else { (at + len).min(UNITS) };
                    let byte_end = if to_end { u64::MAX } else { base + end * unit };
                    changes.push(Change::Cut {
                        start: base + at * unit,
                        end: byte_end,
                    });
                    model[at as usize..end as usize].fill(None);
                }
            }
        }
        if flushes >> (number % 8) & 1 == 1 {
            f.index.engine().flush().unwrap();
        }
        let (displaced, _) = f.change(9, &changes);
        let mut freed = HashSet::new();
        for e in &displaced {
            for addr in (e.addr..e.addr + e.len).step_by(unit as usize) {
                assert!(
                    freed.insert((e.member, e.log, addr)),
                    "displaced twice: {e:?}"
                );
            }
        }
        let expected: HashSet<_> = used.difference(&sources(&model)).copied().collect();
        assert_eq!(freed, expected, "displaced by {changes:?}");
        check(f, base, unit, &model);
        assert_eq!(f.change(9, &[]).1, 0);
    }
}

fn sources(model: &[Unit]) -> HashSet<(u16, u64, u64)> {
    model.iter().flatten().map(|u| (u.0, u.1, u.2)).collect()
}

fn check(f: &Fixture, base: u64, unit: u64, model: &[Unit]) {
    let stored = f.all(9);
    for pair in stored.windows(2) {
        assert!(pair[0].end() <= pair[1].offset, "overlap: {pair:?}");
    }
    for e in &stored {
        assert!(
            e.len <= MAX_EXTENT && e.offset / SLICE == (e.end() - 1) / SLICE,
            "{e:?}"
        );
    }
    let parts = [(0, UNITS), (UNITS / 3, UNITS / 2), (7, 8)];
    let requests = parts.map(|(from, to)| (9, base + from * unit..base + to * unit));
    let together = f.index.get_many(&requests).unwrap();
    for (i, (from, to)) in parts.into_iter().enumerate() {
        let (start, end) = (base + from * unit, base + to * unit);
        let found = f.index.get(9, start..end, usize::MAX).unwrap();
        assert_eq!(together.get(i), found);
        let mut seen: Vec<Unit> = vec![None; UNITS as usize];
        let mut covered = 0;
        for e in &found {
            assert!(e.offset >= start && e.end() <= end);
            // A unit may be longer than an extent: its first byte speaks for it.
            let first = (e.offset - base).div_ceil(unit);
            for u in first..(e.end() - base).div_ceil(unit) {
                let addr = e.addr + (base + u * unit - e.offset);
                seen[u as usize] = Some((e.member, e.log, addr, e.seq));
            }
            covered += e.len;
        }
        let full = model[from as usize..to as usize].iter().flatten().count() as u64;
        assert_eq!(covered, full * unit);
        let range = from as usize..to as usize;
        assert_eq!(&seen[range.clone()], &model[range]);
        // Asking in steps of one gives the same; the first hundred steps will do.
        let (mut at, mut stepped) = (start, Vec::new());
        while let Some(e) = f.index.get(9, at..end, 1).unwrap().first() {
            at = e.end();
            stepped.push(*e);
            if stepped.len() == 100 {
                break;
            }
        }
        assert_eq!(stepped, found[..found.len().min(100)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("SOAK").is_some() { 2_000 } else { 80 }))]

    #[test]
    fn agrees_with_the_model_byte_by_byte_at_a_slice_end(batches in steps()) {
        agree(SLICE - UNITS / 2, 1, &batches);
    }

    #[test]
    fn agrees_with_the_model_from_memory_and_disk(batches in steps(), flushes: u8) {
        agree_in(&fixture_with(small()), SLICE - UNITS / 2, 1, &batches, flushes);
    }

    #[test]
    fn agrees_with_the_model_over_long_extents(batches in steps()) {
        agree(SLICE - 5 * MAX_EXTENT, MAX_EXTENT / 8, &batches);
    }

    #[test]
    fn agrees_with_the_model_over_many_slices(batches in steps()) {
        agree(3 * MAX_EXTENT / 2, SLICE / 4, &batches);
    }
}
