//! A full disk refuses puts, takes deletes, and takes puts again once the deletes have freed space.

use crate::support::*;
use forebay_storage::fault::{Call, FaultIo, HookedIo};
use forebay_storage::{Batch, Durability, Io, Keyspace, Options, Store};
use forebay_testkit::seeds;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KS: Keyspace = Keyspace(0);

fn put(key: &str, bytes: usize) -> Batch {
    let mut batch = Batch::new();
    batch.put(KS, key.to_string(), vec![7; bytes]);
    batch
}

fn delete(key: &str) -> Batch {
    let mut batch = Batch::new();
    batch.delete(KS, key.to_string());
    batch
}

fn insist(store: &Store, batch: &Batch, background: bool) -> bool {
    (0..20).any(|_| {
        if background {
            std::thread::sleep(Duration::from_millis(5));
        }
        store.apply(batch.clone()).is_ok()
    })
}

/// The file system of `disk`: all of it, or without allocating and punching.
fn system(disk: &FaultIo, allocates: bool) -> Arc<dyn Io> {
    if allocates {
        return Arc::new(disk.clone());
    }
    let lacks = |_: &std::path::Path, call: Call<'_>| match call {
        Call::Allocate { .. } | Call::Punch { .. } => Err(Errno::OPNOTSUPP.into()),
        _ => Ok(()),
    };
    Arc::new(HookedIo::new(disk.clone(), lacks))
}

fn fill_delete_fill(durability: Durability, background: bool, allocates: bool) {
    let what = format!("{durability:?} background {background} allocates {allocates}");
    let options = Options {
        memtable_bytes: 60_000,
        wal_reserve_bytes: 65_536,
        table_reserve_bytes: 131_072,
        level0_tables: 3,
        level1_bytes: 200_000,
        block_bytes: 1000,
        background,
        ..options(durability)
    };
    let io = FaultIo::new(3);
    io.set_capacity(1 << 20);
    let open_again = || Store::open(system(&io, allocates), DIR.as_ref(), options.clone());
    let mut store = open_again().unwrap();
    for round in 0..3 {
        let mut keys = Vec::new();
        let refused = loop {
            let key = format!("{round}-{}", keys.len());
            match store.apply(put(&key, 700)) {
                Ok(()) => keys.push(key),
                // Space may just be being reclaimed.
                Err(_) if insist(&store, &put(&key, 700), background) => keys.push(key),
                Err(e) => break e,
            }
            assert!(keys.len() < 5000, "{what}: the disk never fills");
        };
        assert!(refused.is_no_space(), "{what}: {refused}");
        assert!(
            keys.len() > 300,
            "{what}: full after {} puts in round {round}",
            keys.len()
        );
        for key in &keys {
            assert_eq!(
                store.get(KS, key.as_bytes()).unwrap().map(|v| v.len()),
                Some(700),
                "{what}"
            );
        }
        // The store opens on a full disk, too.
        if round == 1 {
            drop(store);
            store = open_again().unwrap();
        }
        for key in &keys {
            store
                .apply(delete(key))
                .unwrap_or_else(|e| panic!("{what}: delete {key} in round {round}: {e}"));
            assert_eq!(store.get(KS, key.as_bytes()).unwrap(), None);
        }
        let end = Instant::now() + Duration::from_secs(60);
        let mut again = 0;
        while let Err(e) = store.apply(put("again", 700)) {
            assert!(e.is_no_space(), "{what}: {e}");
            again += 1;
            let patient = if background {
                Instant::now() < end
            } else {
                again < 2000
            };
            assert!(patient, "{what}: no space given back, {} used", io.used());
            if background {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        store.apply(delete("again")).unwrap();
        // What is left of the deleted data goes with the next compactions, or at once when asked.
        while let Err(e) = store.compact() {
            assert!(e.is_no_space() && Instant::now() < end, "{what}: {e}");
        }
        // A thread in the background may still be removing what that made superfluous.
        while io.used() >= 600_000 {
            assert!(
                background && Instant::now() < end,
                "{what}: {} bytes still used",
                io.used()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    store.close().unwrap();
    let image = io.crash();
    drop(store);
    let store = open(&FaultIo::with_image(&image, 1), &options).unwrap();
    assert!(contents(&store).unwrap().is_empty(), "{what}");
    assert!(store.check().is_empty(), "{what}");
}

#[test]
fn deletes_work_and_give_space_back_at_process() {
    fill_delete_fill(Durability::Process, false, true);
}

#[test]
fn deletes_work_and_give_space_back_at_disk() {
    fill_delete_fill(Durability::Disk, false, true);
}

/// A thread that sleeps must not hold a view: the tables of that view would stay on the disk until it wakes.
#[test]
fn deletes_give_space_back_with_threads() {
    fill_delete_fill(Durability::Process, true, true);
    fill_delete_fill(Durability::Disk, true, true);
}

#[test]
fn deletes_work_and_give_space_back_where_nothing_can_be_allocated() {
    fill_delete_fill(Durability::Process, false, false);
    fill_delete_fill(Durability::Disk, false, false);
}

/// Without a log nothing is freed by a flush, so deletes alone need not empty the disk; but nothing is lost, deletes
/// are taken, and it goes on once the disk has room.
#[test]
fn without_log_deletes_are_taken_and_room_helps() {
    let options = Options {
        memtable_bytes: 60_000,
        wal_reserve_bytes: 65_536,
        table_reserve_bytes: 131_072,
        ..options(Durability::None)
    };
    let io = FaultIo::new(3);
    io.set_capacity(1 << 20);
    let store = open(&io, &options).unwrap();
    let mut model = Model::new();
    for i in 0.. {
        assert!(i < 5000, "the disk never fills");
        let batch = put(&format!("k{i}"), 700);
        match store.apply(batch.clone()) {
            Ok(()) => apply(&mut model, &batch),
            Err(e) => {
                assert!(e.is_no_space(), "{e}");
                break;
            }
        }
    }
    for i in 0..50 {
        let batch = delete(&format!("k{i}"));
        store.apply(batch.clone()).unwrap();
        apply(&mut model, &batch);
    }
    assert_eq!(contents(&store).unwrap(), model);
    io.set_capacity(2 << 20);
    let batch = put("again", 700);
    store.apply(batch.clone()).unwrap();
    apply(&mut model, &batch);
    store.close().unwrap();
    let image = io.crash();
    drop(store);
    assert_eq!(
        contents(&open(&FaultIo::with_image(&image, 1), &options).unwrap()).unwrap(),
        model
    );
}

/// What is logged in the reserve survives a crash like anything else.
#[test]
fn the_reserve_is_replayed() {
    for seed in 0..seeds::count(10, 1000) {
        // No spare room: nothing is reclaimed, so the reserve stays in use.
        let options = Options {
            memtable_bytes: 1 << 20,
            table_reserve_bytes: 0,
            ..options(Durability::Disk)
        };
        let io = FaultIo::new(seed);
        io.set_capacity(400_000);
        let store = open(&io, &options).unwrap();
        let mut keys = 0;
        while store.apply(put(&format!("k{keys}"), 900)).is_ok() {
            keys += 1;
        }
        let mut model: Model = (0..keys)
            .map(|i| ((0, format!("k{i}").into_bytes()), vec![7; 900]))
            .collect();
        io.set_capacity(io.used());
        let mut reclaiming = Batch::reclaiming();
        reclaiming.put(KS, "k1", "smaller");
        store.apply(reclaiming.clone()).unwrap();
        apply(&mut model, &reclaiming);
        for i in 0..60 {
            let batch = delete(&format!("k{i}"));
            store.apply(batch.clone()).unwrap();
            apply(&mut model, &batch);
        }
        let image = io.crash();
        drop(store);
        let store = open(&FaultIo::with_image(&image, seed), &options).unwrap();
        assert_eq!(contents(&store).unwrap(), model, "seed {seed}");
    }
}
