//! The rank of each thread, with what `/proc` says of its process when it is first seen.

use crate::recording::Process;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fs;

/// Where launchers write a process's rank: OpenMPI, MPICH and Intel MPI, PMIx, Slurm.
const RANK_VARIABLES: [&str; 5] = [
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
];

/// See the head of this file.
pub(super) struct ThreadRanks {
    threads: bool,
    host: String,
    ranks: RwLock<HashMap<u32, u32>>,
    met: Mutex<KnownRanks>,
}

#[derive(Default)]
struct KnownRanks {
    /// By process, or thread where these are told apart.
    ranks: HashMap<u32, u32>,
    new: Vec<(u32, Process)>,
}

impl ThreadRanks {
    pub fn new(threads: bool, host: &str) -> ThreadRanks {
        ThreadRanks {
            threads,
            host: host.to_owned(),
            ranks: RwLock::default(),
            met: Mutex::default(),
        }
    }

    /// The rank of a thread: numbers from 0 in the order they are first seen.
    pub fn rank(&self, thread: u32) -> u32 {
        let ranks = self.ranks.read();
        if let Some(rank) = ranks.get(&thread) {
            return *rank;
        }
        drop(ranks);
        let mut process = read_proc(thread);
        process.host.clone_from(&self.host);
        if self.threads {
            process.thread = thread;
        }
        let key = if self.threads { thread } else { process.pid };
        let mut met = self.met.lock();
        let next = met.ranks.len() as u32;
        let rank = *met.ranks.entry(key).or_insert(next);
        if rank == next {
            met.new.push((rank, process));
        }
        let mut ranks = self.ranks.write();
        ranks.insert(thread, rank);
        rank
    }

    /// Who is new since the last time.
    pub fn take_new(&self) -> Vec<(u32, Process)> {
        let mut met = self.met.lock();
        std::mem::take(&mut met.new)
    }
}

/// What `/proc` says of a thread; little of one that has gone, or lives in another process namespace.
fn read_proc(thread: u32) -> Process {
    let read = |name: &str| fs::read(format!("/proc/{thread}/{name}")).unwrap_or_default();
    let status = read("status");
    let status = String::from_utf8_lossy(&status);
    let field = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
    };
    let pid = field("Tgid").and_then(|t| t.parse().ok()).unwrap_or(thread);
    Process {
        pid,
        thread: 0,
        world: world(&read("environ")),
        host: String::new(),
        program: field("Name").unwrap_or("?").to_owned(),
    }
}

/// The rank in an environment of `NAME=VALUE`, each ended by a zero.
fn world(environment: &[u8]) -> Option<u32> {
    let value = |name: &str| {
        let mut all = environment.split(|b| *b == 0);
        let value = all.find_map(|entry| {
            entry
                .strip_prefix(name.as_bytes())
                .and_then(|rest| rest.strip_prefix(b"="))
        })?;
        std::str::from_utf8(value).ok()?.parse().ok()
    };
    RANK_VARIABLES.into_iter().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launchers_rank_is_found_whoever_the_launcher_is() {
        assert_eq!(world(b"PATH=/bin\0PMI_RANK=7\0X=1\0"), Some(7));
        assert_eq!(
            world(b"SLURM_PROCID=0\0OMPI_COMM_WORLD_RANK=3\0"),
            Some(3),
            "mpirun inside one Slurm task"
        );
        assert_eq!(world(b"XPMI_RANK=7\0PMI_RANKS=4\0"), None);
    }

    #[test]
    fn threads_of_a_process_are_one_rank_or_each_its_own() {
        let own = || rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let here = own();
        // It must live while it is looked at.
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let (end, ended) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                tell.send(own()).unwrap();
                let _ = ended.recv();
            });
            let there = told.recv().unwrap();
            let together = ThreadRanks::new(false, "h");
            assert_eq!((together.rank(here), together.rank(there)), (0, 0));
            let apart = ThreadRanks::new(true, "h");
            assert_eq!(
                (apart.rank(here), apart.rank(there), apart.rank(here)),
                (0, 1, 0)
            );
            let new = apart.take_new();
            assert_eq!(
                (new.len(), new[1].1.thread, new[1].1.pid),
                (2, there, std::process::id())
            );
            assert!(apart.take_new().is_empty());
            drop(end);
        });
    }
}
