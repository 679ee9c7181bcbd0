//! A watchdog that says where a round of a randomised test hangs.
use super::{detach_below, kill, left};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// Until dropped: fails a round that hangs, after printing where the servers and this test hang.
pub struct Watchdog {
    _alive: mpsc::Sender<()>,
}

impl Watchdog {
    /// For a round that has its stores and mounts in `dir`.
    pub fn start(seed: u64, limit: Duration, dir: PathBuf) -> Watchdog {
        let (alive, ended) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                give_up(seed, &dir);
                // With the servers gone every call returns, and the test fails by itself; if not, this is the end.
                let ended = ended.recv_timeout(Duration::from_secs(5));
                if ended == Err(mpsc::RecvTimeoutError::Timeout) {
                    std::process::exit(101);
                }
            }
        });
        Watchdog { _alive: alive }
    }
}

fn give_up(seed: u64, dir: &Path) {
    let stacks = forebay_node::processes::stacks;
    eprintln!(
        "seed {seed}: the round hangs; this test:\n{}",
        stacks(std::process::id())
    );
    let found = left::processes(dir);
    for (pid, what) in &found {
        eprintln!("{what} ({pid}):\n{}", stacks(*pid));
    }
    for store in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let log = std::fs::read_to_string(store.path().join("log")).unwrap_or_default();
        let end: Vec<&str> = log.lines().rev().take(30).collect();
        eprintln!(
            "{} says, last first:\n{}",
            store.path().display(),
            end.join("\n")
        );
    }
    for (pid, _) in found {
        kill(pid);
    }
    detach_below(dir);
}
