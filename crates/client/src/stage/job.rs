//! A whole run: the parts of the nodes in this process, then the end.
use super::finish;
use super::hash::Hash;
use super::journal::Journal;
use super::land::Lander;
use super::plain::Plain;
use super::queue::Queue;
use super::report::{Line, LineKind, Report, Step, Stop, Trouble, count};
use super::service::Service;
use super::task::Task;
use super::tree::Tree;
use super::walk::{Found, walk};
use super::{copy, land};
use crate::Client;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tasks that wait for a node's workers.
const QUEUE: usize = 1024;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From a directory into the service.
    In,
    /// From the service into a directory.
    Out,
}

/// One source and the name it gets in the target; in the service, paths start at its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// What is copied.
    pub from: PathBuf,
    /// What it becomes.
    pub to: PathBuf,
}

/// A test's look at a file whose temporary copy has just been written: the path of its target, and of the copy.
pub type Hook = Arc<dyn Fn(&Path, &Path) + Send + Sync>;

/// How.
#[derive(Clone)]
pub struct Options {
    /// Reads every copy again and compares checksums, before it gets its name.
    pub verify: bool,
    /// Everything is on disk at the end, and each file before it gets its name.
    pub sync: bool,
    /// Files in flight at each node.
    pub jobs: usize,
    /// Larger files are divided, bytes.
    pub large: u64,
    /// Into pieces of so many bytes.
    pub piece: u64,
    /// Files that are brought to disk together.
    pub batch_files: usize,
    /// And bytes of these.
    pub batch_bytes: u64,
    /// Paths of plain directories that a walk must not enter.
    pub avoid: Vec<PathBuf>,
    /// Another process leads: it counts and names what all walks find, and does the end.
    pub follows: bool,
    #[doc(hidden)]
    pub hook: Option<Hook>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            verify: false,
            sync: true,
            jobs: 4,
            large: 256 << 20,
            piece: 64 << 20,
            batch_files: 4096,
            batch_bytes: 1 << 30,
            avoid: Vec::new(),
            follows: false,
            hook: None,
        }
    }
}

/// A node whose part runs in this process.
pub struct Local {
    /// Its member.
    pub node: u16,
    /// Its view of the service.
    pub client: Client,
    /// Where its journals lie.
    pub journals: PathBuf,
}

/// One node at work.
pub(super) struct Side {
    pub node: u16,
    pub from: Arc<dyn Tree>,
    pub to: Arc<dyn Tree>,
    pub journal: Journal,
    pub lander: Lander,
}

/// A run. See [`super`].
pub struct Job {
    pub(super) number: u64,
    pub(super) pairs: Vec<Pair>,
    pub(super) options: Options,
    pub(super) nodes: u16,
    pub(super) sides: Vec<Side>,
    pub(super) report: Arc<Report>,
    /// What the walk tells: the report, unless another process leads.
    pub(super) seen: Arc<Report>,
    /// Large files, by key, of which a piece failed here; and by [`Task::finished`] those that an earlier run has finished.
    pub(super) broken: Mutex<BTreeSet<u64>>,
}

/// What the parts of this process leave for the end.
pub struct Parts {
    found: Found,
    /// What the leading process must know of the parts of every process.
    pub left: Left,
}

/// What the parts of a process leave that the end must know. Grows with large files that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Large files, by key, of which a piece failed; and, by another key of theirs, those that an earlier run has finished. Those of all processes together decide.
    pub broken: BTreeSet<u64>,
    /// Of what the walk saw, and which node each task is of.
    pub digest: u64,
    /// The first name that the walk of a process that does not lead could not look at.
    pub trouble: Option<String>,
    /// No earlier run has left anything.
    pub fresh: bool,
    /// Names that failed in other processes.
    pub failed: u64,
}

impl Parts {
    /// Adds what the parts of another process left, of which `failed` names failed.
    ///
    /// # Errors
    /// If its walk saw something else: then some of the tasks may have been nobody's, and there must be no end.
    pub fn join(&mut self, other: &Left, failed: u64) -> Result<(), String> {
        if self.left.digest != other.digest {
            return Err(match &other.trouble {
                Some(trouble) => trouble.clone(),
                None => {
                    String::from("it saw something else in the source than the node that was asked")
                }
            });
        }
        self.left.broken.extend(&other.broken);
        self.left.fresh &= other.fresh;
        self.left.failed += failed;
        Ok(())
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is copied.
    Done,
    /// Everything but what the report names.
    SomeFailed,
    /// It was stopped; the report says why. The same job goes on from here.
    Stopped,
}

/// The number of a job: the same for the same direction and pairs, whenever and wherever.
pub fn job_number(direction: Direction, pairs: &[Pair]) -> u64 {
    let start = Hash::new(3).number(u64::from(direction == Direction::In));
    let pair = |hash: Hash, pair: &Pair| {
        let from = hash.add(pair.from.as_os_str().as_bytes()).add(&[0]);
        from.add(pair.to.as_os_str().as_bytes()).add(&[0])
    };
    pairs.iter().fold(start, pair).end()
}

impl Job {
    /// A run of `pairs`, of which this process does the parts of `local`; `nodes` are there in all processes together.
    /// `description` is kept in the journals for people ([`super::left`]).
    ///
    /// # Errors
    /// If a journal cannot be opened.
    pub fn new(
        direction: Direction,
        pairs: Vec<Pair>,
        options: Options,
        nodes: u16,
        local: Vec<Local>,
        description: &str,
    ) -> io::Result<Job> {
        let number = job_number(direction, &pairs);
        let plain: Arc<dyn Tree> = Arc::new(Plain::new(options.avoid.clone()));
        let side = |local: Local| {
            let service: Arc<dyn Tree> = Arc::new(Service::new(&local.client));
            let (from, to) = match direction {
                Direction::In => (plain.clone(), service),
                Direction::Out => (service, plain.clone()),
            };
            Ok(Side {
                node: local.node,
                from,
                to,
                journal: Journal::open(&local.journals, number, description.as_bytes())?,
                lander: Lander::default(),
            })
        };
        let sides = local
            .into_iter()
            .map(side)
            .collect::<io::Result<Vec<_>>>()?;
        let report = Arc::<Report>::default();
        let seen = match options.follows {
            true => Arc::default(),
            false => report.clone(),
        };
        Ok(Job {
            number,
            pairs,
            options,
            nodes,
            sides,
            report,
            seen,
            broken: Mutex::default(),
        })
    }

    /// What it tells; also to cancel it.
    pub fn report(&self) -> Arc<Report> {
        self.report.clone()
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// All of it, where all nodes are in this process.
    pub fn run(&self) -> Outcome {
        let parts = self.parts();
        self.finish(parts)
    }

    /// The parts of this process's nodes: every task of theirs, copied and renamed (pieces of large files: written).
    pub fn parts(&self) -> Parts {
        let queues: Vec<Queue<Task>> = self.sides.iter().map(|_| Queue::new(QUEUE)).collect();
        let found = std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for (side, queue) in self.sides.iter().zip(&queues) {
                for _ in 0..self.options.jobs.max(1) {
                    workers.push(scope.spawn(|| self.work(side, queue)));
                }
            }
            let walker = scope.spawn(|| {
                let found = walk(self, |node, task| {
                    match self.sides.iter().position(|side| side.node == node) {
                        Some(n) => queues[n].push(task),
                        None => !self.stopped(),
                    }
                });
                queues.iter().for_each(Queue::close);
                found
            });
            let found = walker.join();
            // A walk that panicked has not closed them.
            queues.iter().for_each(Queue::close);
            let panicked = workers.into_iter().filter_map(|w| w.join().err()).count();
            if panicked > 0 || found.is_err() {
                self.report.fatal(String::from(
                    "a thread of the run panicked; see the server's log, and report this",
                ));
            }
            found.unwrap_or_default()
        });
        if let (true, Some(Stop::Fatal(text))) = (self.options.follows, self.seen.stop()) {
            self.report.fatal(text);
        }
        for side in &self.sides {
            land::rest(self, side);
            // The names given here may be known to this machine alone.
            if self.options.follows
                && self.options.sync
                && let Err(e) = side.to.sync_names()
            {
                let path = self.pairs.first().map(|p| p.to.clone()).unwrap_or_default();
                let done = Err::<(), _>(e).to("bring names to disk in", &path);
                done.unwrap_or_else(|trouble| self.report.failed(&trouble));
            }
        }
        let is_failed = |line: &Line| line.kind == LineKind::Failed;
        let trouble = match self.options.follows {
            true => self.seen.lines(0, 100).into_iter().find(is_failed),
            false => None,
        };
        Parts {
            left: Left {
                broken: self.broken.lock().clone(),
                digest: found.digest,
                trouble: trouble.map(|line| line.text),
                fresh: self.sides.iter().all(|side| side.journal.is_fresh()),
                failed: 0,
            },
            found,
        }
    }

    fn work(&self, side: &Side, queue: &Queue<Task>) {
        while let Some(task) = queue.pop() {
            if self.report.stopped() {
                queue.close();
                continue;
            }
            if let Err(trouble) = copy::one(self, side, &task) {
                self.broke(&task, &trouble);
            }
        }
    }

    /// A task failed. Of a large file's pieces the first that fails is told.
    pub(super) fn broke(&self, task: &Task, trouble: &Trouble) {
        if task.piece.is_none() || self.broken.lock().insert(task.key) {
            self.report.failed(trouble);
        }
    }

    /// The end, once the parts of all processes are done: by one process only, with what all of them left as broken.
    pub fn finish(&self, parts: Parts) -> Outcome {
        let report = &self.report;
        if !report.stopped()
            && let Err(trouble) = finish::finish(self, &parts.found, &parts.left)
            && !matches!(trouble, Trouble::Stopped)
        {
            report.failed(&trouble);
        }
        if report.stopped() {
            return Outcome::Stopped;
        }
        if report.counts().failed + parts.left.failed > 0 {
            return Outcome::SomeFailed;
        }
        for side in &self.sides {
            // One that stays costs nothing but room: what it tells is true.
            let _ = side.journal.remove();
        }
        Outcome::Done
    }

    pub(super) fn found(&self, files: u64, bytes: u64) {
        count(&self.seen.counters.found_files, files);
        count(&self.seen.counters.found_bytes, bytes);
    }

    /// Whether it is to end.
    pub(super) fn stopped(&self) -> bool {
        self.report.stopped() || self.seen.stopped()
    }
}
