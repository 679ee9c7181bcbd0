//! SIGKILL under load: whatever a program was told is done, is there after the restart, with the right bytes.
//!
//! Each round starts a service of four nodes, or of one, and eight workers, spread over the mounts. A worker does one operation after another in its
//! own directories and in its own slots of one shared file, and notes each as done once the call has returned. After a
//! seeded number of operations the service is killed. The one operation of each worker that had not returned may be
//! done or not; everything else must be exactly as noted, seen through another node than the worker's, if there is one.
//!
//! 3 rounds; with `SOAK=1` 200, which go on where they stopped if `SOAK_DIR` is set. `FOREBAY_SEED=n` runs round n alone.
mod history;
mod worker;

use crate::common::rounds::Watchdog;
use crate::common::{Place, detach_below, forebay, has_fuse, kill};
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use worker::Worker;

const WORKERS: usize = 8;
/// Longest time a round may take.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn everything_acknowledged_survives_sigkill() {
    if !has_fuse() {
        return;
    }
    seeds::for_each_seed("kill9", (3, 200), |seed| round(seed, 4, false));
}

#[test]
fn everything_that_a_service_of_one_node_acknowledged_survives_sigkill() {
    if !has_fuse() {
        return;
    }
    seeds::for_each_seed("kill9 of one node", (3, 200), |seed| round(seed, 1, false));
}

#[test]
fn everything_that_is_acknowledged_while_the_store_settles_without_a_pause_survives_sigkill() {
    if !has_fuse() {
        return;
    }
    seeds::for_each_seed("kill9 while settling", (3, 200), |seed| {
        round(seed, 1 + seed as usize % 2, true)
    });
}

/// `settles`: much is written several times, and whatever was written is settled at once.
fn round(seed: u64, nodes: usize, settles: bool) {
    let place = Place::new();
    let watchdog = Watchdog::start(seed, LIMIT, place.path(""));
    let mut random = Random::new(seed);
    let mount = |node: usize| match nodes {
        1 => place.path("m"),
        _ => place.path("m").join((node % nodes).to_string()),
    };
    let nodes_text = nodes.to_string();
    let mut args = vec!["--nodes", &nodes_text];
    if settles {
        args.extend(["--settle", "auto", "--settle-backlog", "4KiB"]);
    }
    let start = || place.mount_well(&args);
    start();
    let worker = |id| Worker::new(id, seed, settles);
    let mut workers: Vec<Worker> = (0..WORKERS).map(worker).collect();
    // Two lives a round: the second one works on what the first has left.
    for life in 0..2 {
        let pid = place.pid();
        let (done, killed) = (AtomicU64::new(0), AtomicBool::new(false));
        let target = 10 + random.below(400);
        std::thread::scope(|scope| {
            for (id, worker) in workers.iter_mut().enumerate() {
                let (root, done, killed) = (mount(id), &done, &killed);
                scope.spawn(move || worker.work(&root, done, killed));
            }
            let end = Instant::now() + LIMIT;
            while done.load(Ordering::Relaxed) < target {
                assert!(
                    Instant::now() < end,
                    "seed {seed}: the workers do not get on"
                );
                std::thread::sleep(Duration::from_micros(200));
            }
            killed.store(true, Ordering::SeqCst);
            kill(pid);
        });
        detach_below(&place.path("m"));
        start();
        for (id, worker) in workers.iter_mut().enumerate() {
            // Through another node than the one that wrote.
            worker.verify(&mount(id + 1 + life), seed);
        }
    }
    place.umount_well();
    let (code, out, err) = forebay(&["fsck", &place.store()]);
    assert_eq!(code, 0, "seed {seed}: fsck: {out}{err}");
    drop(watchdog);
}
