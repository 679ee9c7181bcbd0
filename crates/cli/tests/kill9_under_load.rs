//! SIGKILL under load: whatever a program was told is done, is there after the restart, with the right bytes.
//!
//! Each round starts a service of four nodes and eight workers, two a mount. A worker does one operation after another in its
//! own directories and in its own slots of one shared file, and notes each as done once the call has returned. After a
//! seeded number of operations the service is killed. The one operation of each worker that had not returned may be
//! done or not; everything else must be exactly as noted, seen through another node than the worker's.
//!
//! 3 rounds; with `SOAK=1` 200, which go on where they stopped if `SOAK_DIR` is set. `SEED=n` runs round n alone.
#![allow(clippy::unwrap_used)] // A test fails by panicking.
mod common;
#[path = "kill9/history.rs"]
mod history;
#[path = "kill9/worker.rs"]
mod worker;

use common::{Place, detach_below, forebay, fuse, kill};
use history::Random;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use worker::Worker;

const NODES: usize = 4;
const WORKERS: usize = 8;
/// Longest time a round may take.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn everything_acknowledged_survives_sigkill() {
    if !fuse() {
        return;
    }
    if let Some(seed) = std::env::var("SEED").ok().and_then(|s| s.parse().ok()) {
        return round(seed);
    }
    let soak = std::env::var_os("SOAK").is_some_and(|v| v == "1");
    let rounds = if soak { 200 } else { 3 };
    let progress = std::env::var_os("SOAK_DIR")
        .filter(|_| soak)
        .map(|dir| PathBuf::from(dir).join("kill9.next"));
    let done = progress
        .as_deref()
        .and_then(|p| std::fs::read_to_string(p).ok());
    let first: u64 = done.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    for seed in first..rounds {
        round(seed);
        if let Some(path) = &progress {
            std::fs::write(path, (seed + 1).to_string()).unwrap();
        }
    }
}

fn round(seed: u64) {
    let place = Place::new();
    let watchdog = Watchdog::start(seed, place.path(""));
    let mut random = Random::new(seed);
    let mount = |node: usize| place.path("m").join((node % NODES).to_string());
    place.mount_well(&["--nodes", "4"]);
    let pid = place.pid();
    watchdog.watch(pid);
    let mut workers: Vec<Worker> = (0..WORKERS).map(|id| Worker::new(id, seed)).collect();
    // Two lives a round: the second one works on what the first has left.
    for life in 0..2 {
        let pid = if life == 0 { pid } else { place.pid() };
        watchdog.watch(pid);
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
        place.mount_well(&["--nodes", "4"]);
        watchdog.watch(place.pid());
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

/// Fails a round that hangs, after printing where the server and this test hang.
struct Watchdog {
    alive: mpsc::Sender<u32>,
}

impl Watchdog {
    fn start(seed: u64, dir: PathBuf) -> Watchdog {
        let (alive, news) = mpsc::channel::<u32>();
        std::thread::spawn(move || {
            let end = Instant::now() + LIMIT;
            let mut server = None;
            loop {
                match news.recv_timeout(end.saturating_duration_since(Instant::now())) {
                    Ok(pid) => server = Some(pid),
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                    Err(mpsc::RecvTimeoutError::Timeout) => break,
                }
            }
            give_up(seed, server, &dir);
        });
        Watchdog { alive }
    }

    fn watch(&self, pid: u32) {
        self.alive.send(pid).unwrap();
    }
}

fn give_up(seed: u64, server: Option<u32>, dir: &Path) {
    eprintln!(
        "seed {seed}: the round hangs; this test:\n{}",
        forebay_cli::processes::stacks(std::process::id())
    );
    if let Some(pid) = server {
        eprintln!("the server {pid}:\n{}", forebay_cli::processes::stacks(pid));
        let log = std::fs::read_to_string(dir.join("s/log")).unwrap_or_default();
        eprintln!(
            "its log ends with:\n{}",
            log.lines().rev().take(30).collect::<Vec<_>>().join("\n")
        );
        kill(pid);
    }
    detach_below(dir);
    // With the server gone every call returns, and the test fails by itself; if not, this is the end.
    std::thread::sleep(Duration::from_secs(5));
    std::process::exit(101);
}
