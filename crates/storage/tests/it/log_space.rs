//! What the log takes on the disk once nobody writes: a store that is closed, or idle, has its batches in table files.

use crate::support::*;
use forebay_storage::fault::{FaultIo, Image};
use forebay_storage::{Batch, Durability, Keyspace, LogEnd, Options, PossibleLoss, Store};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn logs(image: &Image) -> Vec<PathBuf> {
    let files = image.files().map(|(path, _)| path.to_path_buf());
    files
        .filter(|p| p.to_string_lossy().contains("wal-"))
        .collect()
}

#[test]
fn a_closed_store_has_no_log_and_says_so_when_it_is_opened() {
    for durability in [Durability::Process, Durability::Disk, Durability::None] {
        let (io, options) = (FaultIo::new(1), options(durability));
        let store = open(&io, &options).unwrap();
        assert_eq!(store.opened().end, LogEnd::New);
        let steps = history(9, 50);
        run(&store, &steps);
        let model = states(&steps).pop().unwrap();
        store.close().unwrap();
        drop(store);
        assert!(logs(&io.image()).is_empty(), "{durability:?}");
        // A power cut may bring the files' names back.
        let image = io.crash();
        let io = FaultIo::with_image(&image, 2);
        let store = open(&io, &options).unwrap();
        assert_eq!(store.opened().end, LogEnd::Clean, "{durability:?}");
        assert_eq!(contents(&store).unwrap(), model);
        // Opened and killed is no clean end, whatever was written.
        drop(store);
        let store = open(&FaultIo::with_image(&io.kill(), 3), &options).unwrap();
        let end = store.opened().end;
        assert!(matches!(end, LogEnd::Unclean { .. }), "{end:?}");
        assert_eq!(contents(&store).unwrap(), model);
    }
}

#[test]
fn a_log_that_is_cut_or_gone_after_a_clean_stop_is_told() {
    // No room for a table: the newest batches are in the log when it is closed.
    let options = Options {
        memtable_bytes: 1 << 20,
        table_reserve_bytes: 0,
        ..options(Durability::Process)
    };
    let io = FaultIo::new(1);
    let store = open(&io, &options).unwrap();
    for i in 0..40u8 {
        let mut batch = Batch::new();
        batch.put(Keyspace(0), vec![i], vec![i; 700]);
        store.apply(batch).unwrap();
    }
    io.set_capacity(0);
    store.close().unwrap();
    drop(store);
    let image = io.kill();
    let files = image.files();
    let files = files.filter(|(p, _)| p.to_string_lossy().contains("wal-"));
    let (log, length) = files
        .map(|(path, bytes)| (path.to_path_buf(), bytes.len()))
        .max_by_key(|(_, length)| *length)
        .expect("a log is left");
    let opened = open(&FaultIo::with_image(&image, 1), &options).unwrap();
    assert_eq!(opened.opened().end, LogEnd::Clean);
    drop(opened);
    for cut in (0..length - 64).step_by(1300).map(Some).chain([None]) {
        let mut bad = image.clone();
        match cut {
            Some(cut) => bad.bytes_mut(&log).unwrap().truncate(cut),
            None => assert!(bad.remove(&log)),
        }
        let error = open(&FaultIo::with_image(&bad, 1), &options).err();
        let error = error.expect("refused").to_string();
        assert!(error.contains("wal-"), "{cut:?}: {error}");
        assert!(error.contains("fsck --repair"), "{cut:?}: {error}");
        let io = Arc::new(FaultIo::with_image(&bad, 1));
        let store = Store::salvage(io, Path::new(DIR), options.clone()).unwrap();
        let held = store.scan(Keyspace(0), Bound::Unbounded, Bound::Unbounded);
        let held = held.filter(|e| e.is_ok()).count() as u64;
        let lost = &store.opened().damage;
        let behind = PossibleLoss::Batches {
            first: held + 1,
            last: Some(40),
        };
        let lost = lost.iter().any(|d| d.lost == behind);
        assert!(lost, "{cut:?}: {held} held, {:?}", store.opened().damage);
    }
}

#[test]
fn an_idle_store_brings_its_log_to_tables_and_what_was_deleted_goes() {
    let options = Options {
        memtable_bytes: 1 << 20,
        wal_bytes: 64 << 10,
        idle: Duration::from_millis(20),
        background: true,
        ..options(Durability::Process)
    };
    let store = open(&FaultIo::new(1), &options).unwrap();
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let apply = |value: Option<Vec<u8>>| {
        for i in 0..30u8 {
            let mut batch = Batch::new();
            match &value {
                Some(value) => batch.put(Keyspace(0), vec![i], value.clone()),
                None => batch.delete(Keyspace(0), vec![i]),
            }
            store.apply(batch).unwrap();
        }
    };
    apply(Some(vec![1; 1000]));
    wait("the log goes", &|| store.stats().wal_bytes == 0);
    assert!(store.stats().table_bytes > 30_000);
    for _ in 0..3 {
        apply(None);
    }
    wait("what is deleted goes", &|| {
        store.stats().wal_bytes == 0 && store.stats().table_bytes == 0
    });
    store.close().unwrap();
}
