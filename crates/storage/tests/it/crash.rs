//! The process or the power stops at every k-th I/O call. After reopening, the store holds the state after some
//! batch of the history: none acknowledged is missing as far as the durability promises, none is there in part,
//! nothing else is there, and no damage is found.

use crate::support::*;
use forebay_storage::fault::{FaultIo, Image};
use forebay_storage::{Durability, PossibleLoss};
use forebay_testkit::seeds;

/// Reopens the image, compares with the states from `least` to `most` batches, writes on, and reopens once more.
fn verify(
    image: &Image,
    seed: u64,
    durability: Durability,
    states: &[Model],
    least: usize,
    most: usize,
    what: &str,
) {
    let options = options(durability);
    let io = FaultIo::with_image(image, seed);
    let store = open(&io, &options).unwrap_or_else(|e| panic!("{what}: {e}"));
    let held = contents(&store).unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = (least..=most).rev().find(|n| states[*n] == held);
    let found = found.unwrap_or_else(|| {
        let other = states.iter().position(|s| *s == held);
        panic!("{what}: holds the state after {other:?} batches, wanted {least}..={most}")
    });
    // The sector before may differ from the one that was written in a single bit: then the record is put right, and told.
    let told = store.opened().damage.iter();
    let put_right = told.filter(|d| matches!(d.lost, PossibleLoss::Corrected { .. }));
    let (put_right, damage) = (put_right.count(), store.check());
    assert!(damage.len() <= put_right, "{what}: {damage:?}");
    // It goes on working, and what it says then is durable.
    let more = history(seed ^ 77, 12);
    let mut model = states[found].clone();
    for step in &more {
        if let Step::Apply(batch) = step {
            store
                .apply(batch.clone())
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            apply(&mut model, batch);
        }
    }
    store.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
    let image = io.crash();
    drop(store);
    let store = open(&FaultIo::with_image(&image, seed + 1), &options)
        .unwrap_or_else(|e| panic!("{what}, again: {e}"));
    assert_eq!(
        contents(&store).unwrap_or_else(|e| panic!("{what}, again: {e}")),
        model,
        "{what}, again"
    );
}

/// The history of a seed stops at this call, by a killed process or lost power.
fn crash_at(
    durability: Durability,
    (seed, steps, states): (u64, &[Step], &[Model]),
    call: u64,
    power: bool,
) {
    let io = FaultIo::new(seed * 1000 + call);
    io.stop_after(call);
    let (run, image) = match open(&io, &options(durability)) {
        Ok(store) => {
            let run = run(&store, steps);
            let _ = store.close();
            (run, if power { io.crash() } else { io.kill() })
        }
        Err(_) => (Run::default(), if power { io.crash() } else { io.kill() }),
    };
    // The batch under way when it stopped may be there, whole.
    let most = (run.acknowledged + 1).min(states.len() - 1);
    let least = match (durability, power) {
        (Durability::Disk, _) | (Durability::Process, false) => run.acknowledged,
        (Durability::Process, true) | (Durability::None, _) => run.synced,
    };
    let what = format!("{durability:?} seed {seed} call {call} power {power} {run:?}");
    verify(&image, seed + call, durability, states, least, most, &what);
}

fn crash_everywhere(durability: Durability, seeds: u64, stride: u64) {
    for seed in 0..seeds {
        let steps = history(seed, 60);
        let states = states(&steps);
        let calls = {
            let io = FaultIo::new(seed);
            let store = open(&io, &options(durability)).unwrap();
            run(&store, &steps);
            store.close().unwrap();
            assert_eq!(contents(&store).unwrap(), states[states.len() - 1]);
            io.calls()
        };
        assert!(calls > 100, "the history does too little I/O to crash in");
        for call in (1 + seed % stride..calls).step_by(stride as usize) {
            for power in [true, false] {
                crash_at(durability, (seed, &steps, &states), call, power);
            }
        }
    }
}

#[test]
fn disk_loses_nothing_acknowledged() {
    crash_everywhere(Durability::Disk, seeds::count(3, 60), seeds::count(7, 1));
}

#[test]
fn process_loses_nothing_when_killed_and_only_an_end_when_the_power_fails() {
    crash_everywhere(Durability::Process, seeds::count(3, 60), seeds::count(5, 1));
}

#[test]
fn a_record_whose_lost_end_is_one_bit_from_what_was_there_is_put_right() {
    let steps = history(23, 60);
    crash_at(Durability::Process, (23, &steps, &states(&steps)), 67, true);
}

#[test]
fn none_keeps_what_was_flushed() {
    crash_everywhere(Durability::None, seeds::count(3, 60), seeds::count(5, 1));
}

#[test]
fn with_background_threads_too() {
    for seed in 0..seeds::count(20, 500) {
        let steps = history(seed, 80);
        let states = states(&steps);
        for durability in [Durability::Disk, Durability::Process] {
            let io = FaultIo::new(seed);
            io.stop_after(40 + seed * 13);
            let options = forebay_storage::Options {
                background: true,
                ..options(durability)
            };
            let (run, image) = match open(&io, &options) {
                Ok(store) => {
                    let run = run(&store, &steps);
                    (run, io.crash())
                }
                Err(_) => (Run::default(), io.crash()),
            };
            let most = (run.acknowledged + 1).min(states.len() - 1);
            let least = if durability == Durability::Disk {
                run.acknowledged
            } else {
                run.synced
            };
            verify(
                &image,
                seed,
                durability,
                &states,
                least,
                most,
                &format!("{durability:?} seed {seed} {run:?}"),
            );
        }
    }
}

#[test]
fn a_crash_while_a_store_is_opened_after_a_crash_is_no_damage() {
    for seed in 0..seeds::count(12, 300) {
        let steps = history(seed, 60);
        let states = states(&steps);
        for durability in [Durability::Process, Durability::Disk] {
            let io = FaultIo::new(seed);
            io.stop_after(60 + seed * 29 % 230);
            if let Ok(store) = open(&io, &options(durability)) {
                run(&store, &steps);
            }
            let image = io.crash();
            for call in 1..60 {
                let what = format!("{durability:?} seed {seed} call {call}");
                let io = FaultIo::with_image(&image, seed * 100 + call);
                io.stop_after(call);
                let done = open(&io, &options(durability)).is_ok();
                let io = FaultIo::with_image(&io.crash(), call);
                let store =
                    open(&io, &options(durability)).unwrap_or_else(|e| panic!("{what}: {e}"));
                let held = contents(&store).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(states.contains(&held), "{what}");
                if done {
                    break;
                }
            }
        }
    }
}
