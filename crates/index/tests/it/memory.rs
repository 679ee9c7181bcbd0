//! The memory of the index stays within its settings, whatever is put and in which order.
use forebay_index::RECORD;
use forebay_index::{Change, Extent, ExtentIndex};
use forebay_index::{Settings, Stats};
use forebay_storage::{Batch, Engine, Options, OsIo, Store};
use std::sync::Arc;

const BATCH: u64 = 500;

/// Bytes of a record in a MemTable.
const LOOSE: u64 = (RECORD as u64).next_multiple_of(8);

fn settings() -> Settings {
    Settings {
        memtable_bytes: 64 << 10,
        buffer_bytes: 32 << 10,
        cache_bytes: 64 << 10,
        coverage_bytes: 64 << 10,
        ..Settings::default()
    }
}

fn within(stats: &Stats) {
    let s = settings();
    let memtable = s.memtable_bytes as u64 + BATCH * LOOSE;
    // One being filled, and two that wait or are being compressed.
    assert!(stats.memtable_bytes <= 3 * memtable, "{stats:?}");
    // A MemTable is compressed if there is room for some of it, and is never larger than it was.
    assert!(
        stats.buffer_bytes <= s.buffer_bytes as u64 + memtable,
        "{stats:?}"
    );
    // The cache takes what these leave free, metadata regions included, and no more.
    let kept = stats.cache_bytes + stats.region_bytes;
    let whole = 3 * memtable + s.buffer_bytes as u64 + memtable + s.cache_bytes as u64;
    assert!(
        stats.memtable_bytes + stats.buffer_bytes + kept <= whole,
        "{stats:?}"
    );
    assert!(stats.coverage_bytes <= s.coverage_bytes as u64, "{stats:?}");
}

/// Puts pieces in the order of `place`, a few files in turn, and looks at memory after each batch.
fn fill(background: bool, batches: u64, place: impl Fn(u64) -> u64) -> Stats {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        background,
        ..Options::default()
    };
    let store = Arc::new(Store::open(Arc::new(OsIo), &dir.path().join("store"), options).unwrap());
    let settings = Settings {
        background,
        ..settings()
    };
    let index = ExtentIndex::open(&store, settings).unwrap();
    for b in 0..batches {
        let put = |k| {
            let i = b * BATCH + k;
            Change::Put(Extent {
                offset: place(i) * 1000,
                len: 900,
                member: 1,
                log: b % 7,
                addr: place(i) * 5000 + i,
                seq: b,
            })
        };
        let changes: Vec<Change> = (0..BATCH).map(put).collect();
        let mut batch = Batch::new();
        index.change(&mut batch, b % 3, &changes).unwrap();
        store.apply(batch).unwrap();
        within(&index.engine().stats());
        if b % 16 == 0 {
            // Readers hold memory too: of the cache.
            index.get(b % 3, 0..1 << 20, 100).unwrap();
            within(&index.engine().stats());
        }
    }
    index.engine().flush().unwrap();
    let stats = index.engine().stats();
    within(&stats);
    assert!(stats.table_records <= stats.puts);
    store.close().unwrap();
    stats
}

/// Puts this batch of pieces that no rule describes.
fn put_scattered(store: &Store, index: &ExtentIndex, b: u64) {
    let put = |k: u64| {
        let i = b * BATCH + k;
        let mixed = (i ^ i << 21).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Change::Put(Extent {
            offset: i * 1000,
            len: 1 + (mixed >> 33) % 900,
            member: 1,
            log: mixed >> 60,
            addr: mixed >> 20,
            seq: 1,
        })
    };
    let changes: Vec<Change> = (0..BATCH).map(put).collect();
    let mut batch = Batch::new();
    index.change(&mut batch, 7, &changes).unwrap();
    store.apply(batch).unwrap();
}

#[test]
fn the_cache_has_what_nothing_else_needs_and_gives_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(Arc::new(OsIo), dir.path(), Options::default()).unwrap();
    let store = Arc::new(store);
    // Tables are kept or not as wholes.
    let settings = Settings {
        table_blocks: 16,
        ..settings()
    };
    let share = settings.cache_bytes as u64;
    let index = ExtentIndex::open(&store, settings).unwrap();
    for b in 0..26 {
        put_scattered(&store, &index, b);
    }
    // Nothing is left to be merged: what is kept goes with its tables.
    index.engine().compact().unwrap();
    index.get(7, 0..u64::MAX >> 1, usize::MAX).unwrap();
    let stats = index.engine().stats();
    within(&stats);
    assert!(
        stats.cache_bytes + stats.region_bytes > 2 * share,
        "{stats:?}"
    );
    for b in 26..60 {
        put_scattered(&store, &index, b);
        within(&index.engine().stats());
    }
}

/// A permutation of 2^18 places.
fn anywhere(i: u64) -> u64 {
    (i * 158_891 + 7) % (1 << 18)
}

#[test]
fn in_order_with_and_without_a_thread() {
    for background in [false, true] {
        let stats = fill(background, 150, |i| i);
        assert!(stats.flushes > 1, "{stats:?}");
        assert_eq!(stats.coverage_misses, 0, "{stats:?}");
    }
}

#[test]
fn in_random_order_with_and_without_a_thread() {
    for background in [false, true] {
        let stats = fill(background, 60, anywhere);
        assert!(stats.flushes > 1, "{stats:?}");
    }
}

#[test]
fn over_and_over_the_same_places() {
    let stats = fill(true, 60, |i| i % 7000);
    assert!(stats.flushes > 0 && stats.coverage_misses > 0, "{stats:?}");
}
