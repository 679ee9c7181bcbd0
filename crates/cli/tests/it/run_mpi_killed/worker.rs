//! One worker on one mount: writes, reads back through any mount, removes, lists; notes what was acknowledged.
//!
//! An operation needs the member of its mount, the members that hold its directory and its slice, and, to read, the member whose
//! log holds the bytes: the worker's own. If the victim is among them the operation may fail once the victim is killed: with
//! `EIO`, on the victim's own mount also as one without a server. No other operation may ever fail.
use super::DEADLINE;
use super::entry::{Entry, PendingMount};
use crate::common::mpi::{N, open_mpi};
use forebay_testkit::random::Random;
use forebay_testkit::random::seeded_bytes;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Operations that each worker counts after the kill.
pub const ENOUGH: u64 = 25;
/// What a busy machine may take beyond the deadline.
const SLACK: Duration = Duration::from_secs(4);

/// The directories as they are open: by mount, by owner.
pub struct Scene {
    pub dirs: Vec<Vec<File>>,
}

/// What workers and the test tell each other.
#[derive(Default)]
pub struct Signs {
    /// Operations that began before the kill.
    pub before: AtomicU64,
    /// And after it, `ENOUGH` of each worker.
    pub after: AtomicU64,
    pub killed: AtomicBool,
    pub stop: AtomicBool,
}

/// See the head of this file.
pub struct Worker {
    id: usize,
    mount: usize,
    /// The member it needs nothing of.
    avoid: Option<usize>,
    random: Random,
    entries: Vec<Entry>,
    /// Operations that failed.
    pub failed: u64,
    /// The longest time one of those took.
    pub longest: Duration,
}

enum Act {
    Write(Vec<u8>),
    Remove,
    Read(usize),
    List,
}

impl Worker {
    pub fn new(id: usize, seed: u64, avoid: Option<usize>) -> Worker {
        let mut random = Random::new(seed * 1000 + id as u64 + 1);
        let mut entries = Vec::new();
        for dir in 0..N {
            for file in 0..2 {
                let most = [200, 6000, 300_000][random.below(3) as usize];
                let len = 1 + random.below(most) as usize;
                entries.push(Entry::small(dir, format!("w{id}-{file}"), len));
            }
            for slice in 1..N {
                entries.push(Entry::slot(dir, format!("w{id}-large"), slice));
            }
        }
        entries.retain(|entry| !avoid.is_some_and(|victim| entry.members(N).contains(&victim)));
        Worker {
            id,
            mount: id % N,
            avoid,
            random,
            entries,
            failed: 0,
            longest: Duration::ZERO,
        }
    }

    /// It would avoid its own mount.
    pub fn is_pointless(&self) -> bool {
        self.avoid == Some(self.mount)
    }

    /// Works until told to stop.
    pub fn work(&mut self, scene: &Scene, victim: usize, signs: &Signs) {
        let mut counted = 0;
        while !signs.stop.load(Ordering::SeqCst) {
            let after = signs.killed.load(Ordering::SeqCst);
            let at = self.random.below(self.entries.len() as u64) as usize;
            let act = self.act(at);
            let begun = Instant::now();
            let result = self.perform(scene, at, &act);
            let (took, needs) = (begun.elapsed(), self.needs(at, &act));
            if let Err(e) = result {
                let may =
                    signs.killed.load(Ordering::SeqCst) && (needs.contains(&victim) || !open_mpi());
                let what = format!(
                    "worker {}: {} on {:?} needs {needs:?}",
                    self.id,
                    act.name(),
                    self.entries[at].name
                );
                assert!(may, "{what}, and not {victim}: {e}");
                assert!(
                    self.is_right(&e, needs.contains(&victim) && needs[0] == victim),
                    "{what}: {e}"
                );
                assert!(took < DEADLINE + SLACK, "{what}: {e} after {took:?}");
                self.failed += 1;
                self.longest = self.longest.max(took);
                self.give_up(at, act);
            } else {
                self.note(at, act);
            }
            if !after {
                signs.before.fetch_add(1, Ordering::SeqCst);
            } else if counted < ENOUGH {
                counted += 1;
                signs.after.fetch_add(1, Ordering::SeqCst);
            } else {
                // The others need the machine more.
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// `EIO`; through a mount whose server is dead also what the kernel says then.
    fn is_right(&self, error: &io::Error, without_server: bool) -> bool {
        let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::NODEV];
        let is = |errno: &Errno| error.raw_os_error() == Some(errno.raw_os_error());
        is(&Errno::IO) || ((without_server || !open_mpi()) && gone.iter().any(is))
    }

    fn act(&mut self, at: usize) -> Act {
        let entry = &self.entries[at];
        let choice = self.random.below(10);
        if entry.pending.is_some() || choice < 3 {
            // Any mount but the avoided one.
            let mount = (0..N).cycle().skip(self.random.below(N as u64) as usize);
            let mount = mount.into_iter().find(|m| Some(*m) != self.avoid);
            return Act::Read(mount.unwrap_or(self.mount));
        }
        match choice {
            3 => Act::List,
            4 if entry.slice == 0 && entry.content.is_some() => Act::Remove,
            _ => {
                let seed = self.random.below(u64::MAX);
                Act::Write(seeded_bytes(seed, entry.len))
            }
        }
    }

    /// The members that the operation needs, that of the mount first.
    fn needs(&self, at: usize, act: &Act) -> Vec<usize> {
        let [dir, slice] = self.entries[at].members(N);
        match act {
            Act::List => vec![self.mount, dir],
            Act::Read(mount) => vec![*mount, dir, slice, self.mount],
            Act::Write(_) | Act::Remove => vec![self.mount, dir, slice],
        }
    }

    fn perform(&self, scene: &Scene, at: usize, act: &Act) -> io::Result<()> {
        let entry = &self.entries[at];
        let dir = &scene.dirs[self.mount][entry.dir];
        match act {
            Act::Write(bytes) => entry.write(dir, bytes),
            Act::Remove => entry.remove(dir),
            Act::List => self.list(dir, entry.dir),
            Act::Read(mount) => {
                let found = entry.read(&scene.dirs[*mount][entry.dir])?;
                if let Err(why) = entry.check(&found) {
                    panic!("worker {}, through mount {mount}: {why}", self.id);
                }
                Ok(())
            }
        }
    }

    /// All its files that are certain are in the list if they are there, and else not.
    fn list(&self, dir: &File, owner: usize) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        let own = self
            .entries
            .iter()
            .filter(|e| e.dir == owner && e.slice == 0);
        for entry in own.filter(|e| e.pending.is_none()) {
            let times = names.iter().filter(|name| **name == entry.name).count();
            let expected = usize::from(entry.content.is_some());
            assert_eq!(
                times, expected,
                "worker {}: {} in the list of directory {owner}",
                self.id, entry.name
            );
        }
        Ok(())
    }

    /// It was acknowledged.
    fn note(&mut self, at: usize, act: Act) {
        match act {
            Act::Write(bytes) => self.entries[at].content = Some(bytes),
            Act::Remove => self.entries[at].content = None,
            Act::Read(_) | Act::List => {}
        }
    }

    /// It was not: nobody knows whether it happened. Nor can another slot of that file be committed without this one.
    fn give_up(&mut self, at: usize, act: Act) {
        let pending = match act {
            Act::Write(bytes) => PendingMount::Write(bytes),
            Act::Remove => PendingMount::Remove,
            Act::Read(_) | Act::List => return,
        };
        let (dir, name) = (self.entries[at].dir, self.entries[at].name.clone());
        let same = |e: &&mut Entry| e.dir == dir && e.name == name;
        for entry in self.entries.iter_mut().filter(same) {
            // Of the other slots nothing is uncertain.
            entry.pending = entry.content.clone().map(PendingMount::Write);
        }
        self.entries[at].pending = Some(pending);
    }

    /// After a restart, through this mount.
    pub fn verify(&self, scene: &Scene, mount: usize, seed: u64) {
        for entry in &self.entries {
            let dir = &scene.dirs[mount][entry.dir];
            let found = entry.read(dir).unwrap_or_else(|e| {
                panic!(
                    "seed {seed}, worker {}, mount {mount}: {} in directory {}: {e}",
                    self.id, entry.name, entry.dir
                )
            });
            if let Err(why) = entry.check(&found) {
                panic!(
                    "seed {seed}, worker {}, through mount {mount}: {why}",
                    self.id
                );
            }
        }
    }
}

impl Act {
    fn name(&self) -> &'static str {
        match self {
            Act::Write(_) => "writing",
            Act::Remove => "removing",
            Act::Read(_) => "reading",
            Act::List => "listing",
        }
    }
}
