//! A thread that panics inside a store: whoever else uses the store, or waits for that thread, gets an error.

use crate::support::DIR;
use forebay_storage::fault::{Call, FaultIo, HookedIo};
use forebay_storage::{Batch, Durability, Error, Keyspace, Options, Store};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store on a disk on which, once armed, the next call that writes or creates panics (in a thread of this name, if given), the
/// disk, and what arms it.
fn store(thread: Option<&'static str>) -> (Store, FaultIo, Arc<AtomicBool>) {
    let (disk, armed) = (FaultIo::new(3), Arc::new(AtomicBool::new(false)));
    let trap = armed.clone();
    let io = HookedIo::new(disk.clone(), move |_, call| {
        let here = thread.is_none() || std::thread::current().name() == thread;
        if matches!(call, Call::Create | Call::Write { .. }) && here {
            assert!(!trap.swap(false, Ordering::SeqCst), "on purpose");
        }
        Ok(())
    });
    let options = Options {
        background: true,
        ..crate::support::options(Durability::Disk)
    };
    let store = Store::open(Arc::new(io), Path::new(DIR), options).unwrap();
    (store, disk, armed)
}

fn put(store: &Store, key: u32) -> Result<(), Error> {
    let mut batch = Batch::new();
    batch.put(Keyspace(1), key.to_be_bytes().to_vec(), vec![7; 40]);
    store.apply(batch)
}

#[test]
fn a_writer_that_panics_poisons_the_store_for_all_writers() {
    let (store, disk, armed) = store(None);
    put(&store, 0).unwrap();
    armed.store(true, Ordering::SeqCst);
    let panics = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..6u32)
            .map(|thread| {
                let store = &store;
                // Until the store is closed; so each thread ends, if nobody is left asleep.
                scope.spawn(move || {
                    (1..1_000_000)
                        .find_map(|i| put(store, thread << 24 | i).err())
                        .unwrap()
                })
            })
            .collect();
        let ends: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        for end in ends.iter().flatten() {
            assert!(matches!(end, Error::Poisoned { .. }), "{end}");
        }
        ends.iter().filter(|end| end.is_err()).count()
    });
    // The background may have been hit in a writer's place.
    assert!(panics <= 1);
    assert!(!armed.load(Ordering::SeqCst));
    // What was acknowledged is there when the store is opened again.
    let image = disk.kill();
    drop(store);
    let io = Arc::new(FaultIo::with_image(&image, 4));
    let again = Store::open(
        io,
        Path::new(DIR),
        crate::support::options(Durability::Disk),
    )
    .unwrap();
    assert!(
        again
            .get(Keyspace(1), &0u32.to_be_bytes())
            .unwrap()
            .is_some()
    );
    put(&again, 1).unwrap();
}

#[test]
fn nobody_waits_for_a_flush_thread_that_panicked() {
    let (store, _disk, armed) = store(Some("store-flush"));
    put(&store, 0).unwrap();
    armed.store(true, Ordering::SeqCst);
    let error = store.flush().unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    assert!(matches!(put(&store, 1), Err(Error::Poisoned { .. })));
}
