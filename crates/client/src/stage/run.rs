//! A whole run: the parts of the nodes in this process, then the end.
use super::copy::copy_task;
use super::endpoint::CopyEndpoint;
use super::error::StageError;
use super::finalize;
use super::finish::{PartSummary, finish};
use super::journal::Journal;
use super::local_fs::LocalEndpoint;
use super::options::{Direction, PathPair, StageOptions, job_number};
use super::report::{LineKind, StageReport, StopReason};
use super::service::ServiceEndpoint;
use super::task::CopyTask;
use super::walk::{WalkResult, walk};
use super::worker::{NodeWorker, RunContext};
use crate::Client;
use crossbeam_channel::{Receiver, bounded};
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Tasks that wait for a node's threads: a walk cannot run far ahead.
const QUEUED_TASKS: usize = 1024;
/// Lines of the report that are looked through for the first name that the walk could not look at.
const SEARCHED_LINES: usize = 100;

/// A node whose part runs in this process.
pub struct LocalNode {
    /// Its member.
    pub node: u16,
    /// Its view of the service.
    pub client: Client,
    /// Where its journals lie.
    pub journals: PathBuf,
}

/// A run. See [`super`].
pub struct StageRun {
    context: Arc<RunContext>,
    workers: Vec<NodeWorker>,
}

/// What the parts of this process leave for the end.
pub struct PartResult {
    found: WalkResult,
    /// What the leading process must know of the parts of every process.
    pub summary: PartSummary,
}

impl PartResult {
    /// Adds what the parts of another process left, of which `failed` names failed.
    ///
    /// # Errors
    /// If its walk saw something else: then some tasks may have been assigned to no process, and the run must not be finished.
    pub fn join(&mut self, other: &PartSummary, failed: u64) -> Result<(), String> {
        if self.summary.digest != other.digest {
            return Err(match &other.walk_failure {
                Some(failure) => failure.clone(),
                None => {
                    String::from("it saw something else in the source than the node that was asked")
                }
            });
        }
        self.summary.broken.extend(&other.broken);
        self.summary.fresh &= other.fresh;
        self.summary.failed += failed;
        Ok(())
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageOutcome {
    /// Everything is copied.
    Done,
    /// Everything but what the report names.
    SomeFailed,
    /// It was stopped; the report says why. The same job goes on from here.
    Stopped,
}

impl StageRun {
    /// A run of `pairs`, of which this process does the parts of `local`; `nodes` are there in all processes together.
    /// `description` is kept in the journals for people ([`super::unfinished`]).
    ///
    /// # Errors
    /// If a journal cannot be opened; `EOPNOTSUPP` for a client that is not in the process of its server.
    pub fn new(
        direction: Direction,
        pairs: Vec<PathPair>,
        options: StageOptions,
        nodes: u16,
        local: Vec<LocalNode>,
        description: &str,
    ) -> io::Result<StageRun> {
        let number = job_number(direction, &pairs);
        let report = Arc::<StageReport>::default();
        let walk_report = match options.follows {
            true => Arc::default(),
            false => report.clone(),
        };
        let plain: Arc<dyn CopyEndpoint> = Arc::new(LocalEndpoint::new(options.avoid.clone()));
        let context = Arc::new(RunContext {
            number,
            pairs,
            options,
            nodes,
            report,
            walk_report,
            broken: Mutex::default(),
        });
        let worker = |local: LocalNode| {
            let service: Arc<dyn CopyEndpoint> = Arc::new(ServiceEndpoint::new(&local.client)?);
            let (from, to) = match direction {
                Direction::In => (plain.clone(), service),
                Direction::Out => (service, plain.clone()),
            };
            Ok(NodeWorker {
                run: context.clone(),
                node: local.node,
                from,
                to,
                journal: Journal::open(&local.journals, number, description.as_bytes())?,
                batch: Mutex::default(),
            })
        };
        let workers = local.into_iter().map(worker).collect::<io::Result<_>>()?;
        Ok(StageRun { context, workers })
    }

    /// What it tells; also to cancel it.
    pub fn report(&self) -> Arc<StageReport> {
        self.context.report.clone()
    }

    /// All of it, where all nodes are in this process.
    pub fn run(&self) -> StageOutcome {
        let parts = self.parts();
        self.finish(parts)
    }

    /// The parts of this process's nodes: every task of theirs, copied and renamed (pieces of large files: written).
    pub fn parts(&self) -> PartResult {
        let run = &*self.context;
        let found = self.walk_and_copy();
        if let (true, Some(StopReason::Fatal(text))) = (run.options.follows, run.walk_report.stop())
        {
            run.report.fatal(text);
        }
        for worker in &self.workers {
            finalize::finalize_rest(worker);
            // The names given here may be known to this machine alone.
            if run.options.follows
                && run.options.sync
                && let Err(error) = worker.sync_names()
            {
                run.report.failed(&error);
            }
        }
        let walk_failure = match run.options.follows {
            true => {
                let lines = run.walk_report.lines(0, SEARCHED_LINES);
                let failed = lines.into_iter().find(|l| l.kind == LineKind::Failed);
                failed.map(|line| line.text)
            }
            false => None,
        };
        PartResult {
            summary: PartSummary {
                broken: run.broken.lock().clone(),
                digest: found.digest,
                walk_failure,
                fresh: self.workers.iter().all(|w| w.journal.is_fresh()),
                failed: 0,
            },
            found,
        }
    }

    /// One thread walks, and several of each node copy what it finds for that node.
    fn walk_and_copy(&self) -> WalkResult {
        let run = &*self.context;
        std::thread::scope(|scope| {
            let (mut queues, mut threads) = (Vec::new(), Vec::new());
            for worker in &self.workers {
                let (queue, tasks) = bounded(QUEUED_TASKS);
                queues.push((worker.node, queue));
                for _ in 0..run.options.jobs.max(1) {
                    let tasks = tasks.clone();
                    threads.push(scope.spawn(move || copy_tasks(worker, &tasks)));
                }
            }
            // The queues end with the walk.
            let walker = scope.spawn(move || match self.workers.first() {
                Some(worker) => walk(worker, |node, task| {
                    let queue = queues.iter().find(|(of, _)| *of == node);
                    !run.stopped() && queue.is_none_or(|(_, queue)| queue.send(task).is_ok())
                }),
                None => WalkResult::default(),
            });
            let found = walker.join();
            let panicked = threads.into_iter().filter_map(|t| t.join().err()).count();
            if panicked > 0 || found.is_err() {
                run.report.fatal(String::from(
                    "a thread of the run panicked; see the server's log, and report this",
                ));
            }
            found.unwrap_or_default()
        })
    }

    /// The end, once the parts of all processes are done: by one process only, with what all of them left as broken.
    pub fn finish(&self, parts: PartResult) -> StageOutcome {
        let report = &self.context.report;
        if let (false, Some(worker)) = (report.stopped(), self.workers.first())
            && let Err(error) = finish(worker, &parts.found, &parts.summary)
            && !matches!(error, StageError::Stopped)
        {
            report.failed(&error);
        }
        if report.stopped() {
            return StageOutcome::Stopped;
        }
        if report.counts().failed + parts.summary.failed > 0 {
            return StageOutcome::SomeFailed;
        }
        for worker in &self.workers {
            // One that stays costs nothing but room: what it tells is true.
            let _ = worker.journal.remove();
        }
        StageOutcome::Done
    }
}

/// Does tasks until there are no more; once the run is stopped, they are only taken.
fn copy_tasks(worker: &NodeWorker, tasks: &Receiver<CopyTask>) {
    let run = &worker.run;
    for task in tasks {
        if run.report.stopped() {
            continue;
        }
        match copy_task(worker, &task) {
            Ok(Some(written)) => finalize::add(worker, written),
            Ok(None) => {}
            Err(error) => run.task_failed(&task, &error),
        }
    }
}
