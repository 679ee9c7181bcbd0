//! One I/O call fails. The store says so, refuses writes from then on (unless the disk was just full), goes on reading
//! what it has, and after reopening holds everything that it acknowledged.
#![allow(clippy::unwrap_used)]
mod support;

use forebay_storage::fault::FaultIo;
use forebay_storage::{Durability, Error};
use std::io::ErrorKind;
use support::*;

fn fail_everywhere(kind: ErrorKind, durability: Durability, stride: u64) {
    for seed in 0..soak(2, 40) {
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
    fail_everywhere(ErrorKind::Other, Durability::Disk, soak(5, 1));
}

#[test]
fn an_error_poisons_and_loses_nothing_at_process() {
    fail_everywhere(ErrorKind::Other, Durability::Process, soak(3, 1));
}

#[test]
fn a_moment_without_room_loses_nothing() {
    fail_everywhere(ErrorKind::StorageFull, Durability::Disk, soak(5, 1));
    fail_everywhere(ErrorKind::StorageFull, Durability::Process, soak(3, 1));
}
