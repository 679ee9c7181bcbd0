//! One I/O call fails. The store says so, refuses writes from then on (unless the disk was just full), goes on reading
//! what it has, and after reopening holds everything that it acknowledged. Where only descriptors are missing, nothing is refused
//! for longer than they are.

use crate::support::*;
use forebay_storage::fault::{Call, FaultIo, HeldSync, HookedIo};
use forebay_storage::{Batch, Durability, Error, Keyspace, Options, Store};
use forebay_testkit::seeds;
use rustix::io::Errno;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn fail_everywhere(kind: ErrorKind, durability: Durability, stride: u64) {
    for seed in 0..seeds::count(2, 40) {
        let steps = history(seed, 60);
        let calls = {
            let io = FaultIo::new(seed);
            run(&open(&io, &options(durability)).unwrap(), &steps);
            io.calls()
        };
        for call in (1 + seed % stride..calls).step_by(stride as usize) {
            let what = format!("{kind:?} {durability:?} seed {seed} call {call}");
            let io = FaultIo::new(seed + call);
            io.fail_after(call, kind);
            let Ok(store) = open(&io, &options(durability)) else {
                // Opening failed: it must succeed the next time.
                let store =
                    open(&io, &options(durability)).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(contents(&store).unwrap().is_empty(), "{what}");
                continue;
            };
            let mut model = Model::new();
            let mut maybe = None;
            let mut refused = false;
            for step in &steps {
                let done = match step {
                    Step::Apply(batch) => {
                        let done = store.apply(batch.clone());
                        match &done {
                            Ok(()) => {
                                assert!(!refused, "{what}: accepted after poison");
                                apply(&mut model, batch);
                            }
                            Err(Error::NoSpace { .. } | Error::Poisoned { .. }) => {}
                            Err(_) => {
                                let mut next = model.clone();
                                apply(&mut next, batch);
                                maybe = Some(next);
                            }
                        }
                        done
                    }
                    Step::Flush => store.flush(),
                    Step::Sync => store.sync(),
                    Step::Compact => store.compact(),
                };
                refused |= matches!(done, Err(Error::Poisoned { .. }));
                if kind == ErrorKind::StorageFull && matches!(done, Err(Error::Poisoned { .. })) {
                    // A disk without room poisons only where the call has nothing to do with room.
                    let call = io.failed_call();
                    assert!(
                        matches!(call, Some("sync" | "sync_dir")),
                        "{what}: {call:?}"
                    );
                }
            }
            let held = contents(&store).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(held, model, "{what}: reads go on");
            let _ = store.close();
            let image = io.kill();
            drop(store);
            let store = open(&FaultIo::with_image(&image, 1), &options(durability))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            let held = contents(&store).unwrap();
            assert!(
                held == model || Some(&held) == maybe.as_ref(),
                "{what}: after reopening"
            );
            assert!(store.check().is_empty(), "{what}");
        }
    }
}

#[test]
fn an_error_poisons_and_loses_nothing_at_disk() {
    fail_everywhere(ErrorKind::Other, Durability::Disk, seeds::count(5, 1));
}

#[test]
fn an_error_poisons_and_loses_nothing_at_process() {
    fail_everywhere(ErrorKind::Other, Durability::Process, seeds::count(3, 1));
}

#[test]
fn a_moment_without_room_loses_nothing() {
    fail_everywhere(ErrorKind::StorageFull, Durability::Disk, seeds::count(5, 1));
    fail_everywhere(
        ErrorKind::StorageFull,
        Durability::Process,
        seeds::count(3, 1),
    );
}

/// A disk on whose calls that need a descriptor the chosen ones find none.
fn without_descriptors(
    disk: &FaultIo,
    refused: std::ops::Range<u64>,
) -> (HookedIo, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let io = HookedIo::new(disk.clone(), move |_, call| match call {
        Call::Open | Call::Create | Call::List | Call::SyncDir
            if refused.contains(&counted.fetch_add(1, Relaxed)) =>
        {
            Err(Errno::MFILE.into())
        }
        _ => Ok(()),
    });
    (io, calls)
}

#[test]
fn running_out_of_descriptors_poisons_nothing_and_loses_nothing() {
    let open = |io: &HookedIo, options: &Options| {
        Store::open(Arc::new(io.clone()), DIR.as_ref(), options.clone())
    };
    for durability in [Durability::Disk, Durability::Process, Durability::None] {
        let options = options(durability);
        for seed in 0..seeds::count(2, 40) {
            let steps = history(seed, 60);
            let (io, calls) = without_descriptors(&FaultIo::new(seed), 0..0);
            run(&open(&io, &options).unwrap(), &steps);
            let total = calls.load(Relaxed);
            assert!(total > 20, "seed {seed}: only {total} calls");
            for at in (seed % 3..total).step_by(seeds::count(5, 1) as usize) {
                let what = format!("{durability:?} seed {seed} calls from {at}");
                let disk = FaultIo::new(seed + at);
                let (io, calls) = without_descriptors(&disk, at..at + 1 + at % 7);
                let Ok(store) = open(&io, &options) else {
                    continue;
                };
                let mut model = Model::new();
                for step in &steps {
                    let done = match step {
                        Step::Apply(batch) => store
                            .apply(batch.clone())
                            .inspect(|()| apply(&mut model, batch)),
                        Step::Flush => store.flush(),
                        Step::Sync => store.sync(),
                        Step::Compact => store.compact(),
                    };
                    match done {
                        Ok(()) => {}
                        Err(e) => assert!(matches!(e, Error::NoDescriptors { .. }), "{what}: {e}"),
                    }
                }
                // Whoever took them gives them back.
                calls.store(u64::MAX / 2, Relaxed);
                let mut last = Batch::new();
                last.put(Keyspace(15), "last", "there");
                store
                    .apply(last.clone())
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                apply(&mut model, &last);
                store.compact().unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(contents(&store).unwrap() == model, "{what}");
                store.close().unwrap_or_else(|e| panic!("{what}: {e}"));
                let image = if durability == Durability::Disk {
                    disk.crash()
                } else {
                    disk.kill()
                };
                drop(store);
                let store = crate::support::open(&FaultIo::with_image(&image, 1), &options)
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(
                    contents(&store).unwrap() == model,
                    "{what}: after reopening"
                );
                assert!(store.check().is_empty(), "{what}");
            }
        }
    }
}

#[test]
fn a_sync_that_waits_behind_one_that_fails_fails_too() {
    let is_log = |path: &std::path::Path| path.extension().is_some_and(|e| e == "log");
    let (disk, held) = HeldSync::of(FaultIo::new(1), is_log);
    let place = std::path::Path::new("/store");
    let store = Store::open(Arc::new(disk), place, options(Durability::Process)).unwrap();
    let mut batch = Batch::new();
    batch.put(Keyspace(1), "key", "value");
    store.apply(batch).unwrap();
    held.arm();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| store.sync());
        held.wait_reached();
        let others = [(); 3].map(|()| scope.spawn(|| store.sync()));
        // Long enough for all to wait, if they do.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(others.iter().all(|other| !other.is_finished()));
        held.fail();
        assert!(first.join().unwrap().is_err());
        for other in others {
            let error = other.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        }
    });
    assert!(store.sync().is_err());
}
