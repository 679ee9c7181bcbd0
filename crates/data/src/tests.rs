//! White-box tests: decoded spans of reclaimed bytes, and the live bytes that are counted for each segment.
use crate::{LogStore, LogStoreOptions, container, span};
use forebay_proto::{Error, Fid, LogId};
use forebay_storage::fault::FaultIo;
use forebay_storage::{Options, Store};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn open(disk: &FaultIo, buffer_bytes: u64) -> LogStore {
    let (io, records) = (Arc::new(disk.clone()), Path::new("/m/kv"));
    let options = Options {
        memtable_bytes: 16 << 10,
        ..Options::default()
    };
    let records = Arc::new(Store::open(io.clone(), records, options).unwrap());
    let options = LogStoreOptions {
        member: 3,
        quota: None,
        buffer_bytes,
        sync_each_flush: false,
        reserve: Arc::default(),
        settle: None,
        codec_when: Default::default(),
        background: false,
    };
    LogStore::open(io, Path::new("/m/data"), records, options).unwrap()
}

/// Bytes that say where they are.
fn pattern(log: LogId, addr: u64, len: usize) -> Vec<u8> {
    let byte = |a: u64| (a.wrapping_mul(0x9E37_79B9).wrapping_add(log * 77) >> 11) as u8;
    (addr..addr + len as u64).map(byte).collect()
}

/// A log with so many bytes in segments.
fn written(store: &LogStore, len: usize) -> LogId {
    let log = store.create_log(Fid(1), Default::default()).unwrap();
    store.append(log, &pattern(log, 0, len)).unwrap();
    store.flush(log, false).unwrap();
    log
}

fn assert_read(store: &LogStore, log: LogId, addr: u64, len: usize) {
    let mut buf = vec![0; len];
    store.read(log, addr, &mut buf).unwrap();
    assert!(buf == pattern(log, addr, len));
}

#[test]
fn a_cached_span_of_reclaimed_bytes_answers_gone_and_never_zeros() {
    let store = open(&FaultIo::new(1), 4 << 20);
    let log = written(&store, 1 << 20);
    assert_read(&store, log, 0, 1 << 20);
    // A reader that found the span before it was freed, and reads after its bytes are gone from the disk.
    let cache = &store.writer.spans.cache;
    let span = cache.get(log, 0).unwrap();
    store.free(&[(log, 0..512 << 10)]).unwrap();
    let segment = span.raw().unwrap().segment;
    let file = store.writer.segments.file(segment).unwrap().unwrap();
    file.punch(4096, 256 << 10).unwrap();
    cache.keep(cache.epoch(log), span);
    for len in [4096, 1 << 20] {
        let read = store.read(log, 0, &mut vec![0; len]);
        assert!(
            matches!(read, Err(Error::Gone { member: 3, .. })),
            "{read:?}"
        );
    }
    assert_read(&store, log, 512 << 10, 4096);
}

/// Every segment counts as live what its spans hold, nothing else.
fn assert_counted(store: &LogStore) {
    let mut held = HashMap::<u32, u64>::new();
    for span in span::all(&store.store) {
        if let Some(raw) = span.unwrap().raw() {
            *held.entry(raw.segment).or_default() += raw.stored_len();
        }
    }
    for container in container::all(&store.store) {
        let container = container.unwrap();
        let counts = container::load_counts(&store.store, &container).unwrap();
        *held.entry(container.segment).or_default() += container.named_len(&counts);
    }
    for number in 0..100 {
        if let Some(usage) = store.writer.segments.usage(number) {
            let held = held.remove(&number).unwrap_or(0);
            assert_eq!(usage.live, held, "segment {number}");
        }
    }
    assert!(held.is_empty());
}

#[test]
fn moves_that_a_full_disk_cuts_off_count_nowhere() {
    const KEPT: usize = 70_000;
    for pages in (0..80).step_by(7) {
        let disk = FaultIo::new(4);
        let store = open(&disk, 64 << 10);
        let logs: Vec<LogId> = (0..6)
            .map(|_| {
                let log = written(&store, 1 << 20);
                store.free(&[(log, KEPT as u64..1 << 20)]).unwrap();
                store.writer.segments.seal_all();
                log
            })
            .collect();
        store.clean(false).unwrap();
        assert_counted(&store);
        let targets = store.writer.reclaimer.mostly_dead();
        assert_eq!(targets.len(), 6);
        disk.set_capacity(disk.used() + pages * 4096);
        let cleaned = store.clean(true);
        assert!(pages > 20 || cleaned.is_err(), "{pages} pages");
        assert_counted(&store);
        disk.set_capacity(u64::MAX);
        // The store notices in the background that there is room again.
        let cleaned = (0..12_000).any(|_| {
            store.clean(true).is_ok() || {
                std::thread::sleep(Duration::from_millis(5));
                false
            }
        });
        assert!(cleaned, "{pages} pages");
        assert_counted(&store);
        let left = |s: &&u32| store.writer.segments.usage(**s).is_some();
        assert_eq!(targets.iter().filter(left).count(), 0, "{pages} pages");
        for log in logs {
            assert_read(&store, log, 0, KEPT);
        }
    }
}
