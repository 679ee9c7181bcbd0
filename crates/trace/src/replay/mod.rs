//! Replay: a trace's calls against a [`Target`], every byte read checked.
//!
//! 1. *Inputs*: each file is created with what it must hold before the first call (`inputs` says what).
//! 2. *Calls*: epoch by epoch (`plan` says why that gives each read one right answer), ranks in parallel inside one. A
//!    write's bytes follow from its file, offset and number in the trace ([`crate::content`]); a read is compared byte by
//!    byte with the [`crate::Model`]. Between calls ranks go on at once, or compute as [`Delays`] says.
//! 3. *Check*: everything that the trace wrote is read once more, through all nodes in turn, and sizes are compared.
//!
//! Memory: the trace, an index of its writes, one buffer of at most 64 MiB a thread; never a file's content.

mod check;
mod delays;
mod inputs;
mod path;
mod plan;
mod target;
#[cfg(test)]
mod tests;
mod worker;

pub use delays::Delays;
pub use path::PathTarget;
pub use target::Target;

use crate::content::Content;
use crate::{Error, Kind, Model, Op, Result, Trace};
use inputs::InitialContent;
use plan::{Epoch, Planner};
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use worker::Worker;

/// How writers publish at an epoch's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Commit {
    /// `fsync`, and go on with the same handle.
    #[default]
    Fsync,
    /// `close`, and open again when needed.
    Close,
}

/// Which node a rank runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Rank `r` on node `r % nodes`: neighbours never share a node.
    #[default]
    RoundRobin,
    /// The first ranks on the first node, and so on, as most schedulers do.
    Block,
}

impl Placement {
    /// The node of `rank`.
    pub fn node(self, rank: u32, ranks: u32, nodes: u32) -> u32 {
        let (rank, ranks, nodes) = (u64::from(rank), u64::from(ranks), u64::from(nodes));
        // Below `nodes`, so it fits.
        match self {
            Placement::RoundRobin => (rank % nodes) as u32,
            Placement::Block => (rank * nodes / ranks.max(rank + 1)) as u32,
        }
    }
}

/// The three parts of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Creating files with what they must hold before the first call.
    Inputs,
    /// The trace's calls.
    Calls,
    /// Reading everything once more.
    Check,
}

/// For progress bars. Comes from several threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A phase begins; so many bytes will be written and read.
    Begin {
        /// Which.
        phase: Phase,
        /// All its bytes.
        bytes: u64,
    },
    /// A call of the phase was made.
    Done {
        /// Its bytes.
        bytes: u64,
    },
}

/// Most threads of a replay with delays.
const MOST_THREADS: u32 = 1024;

/// Settings of a replay.
pub struct Options<'a> {
    /// Threads that make calls; rank `r` runs on thread `r % threads`. With delays each rank has its own, up to 1,024.
    pub threads: u32,
    /// Most files open at once; the least recently used are closed. At least one a thread.
    pub max_open: usize,
    /// How writers publish.
    pub commit: Commit,
    /// Where ranks run.
    pub placement: Placement,
    /// What ranks do between calls.
    pub delays: Delays,
    /// Whether to read everything once more at the end.
    pub check: bool,
    /// Is told how it goes.
    pub progress: &'a (dyn Fn(Event) + Sync),
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            threads: 4,
            max_open: 512,
            commit: Commit::default(),
            placement: Placement::default(),
            delays: Delays::default(),
            check: true,
            progress: &|_| {},
        }
    }
}

/// What a replay did. Bytes and times; a replay that returns one found every byte right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls made.
    pub calls: u64,
    /// Bytes written by them.
    pub written: u64,
    /// Bytes read by them, and found right.
    pub read: u64,
    /// Bytes written before the first call.
    pub inputs: u64,
    /// Bytes read after the last call, and found right.
    pub checked: u64,
    /// Epochs.
    pub epochs: u64,
    /// Files opened again because another rank had written them.
    pub reopens: u64,
    /// Time that ranks spent opening, reading and writing, all added up.
    pub io_time: Duration,
    /// Time that ranks computed instead, likewise.
    pub delays_time: Duration,
    /// Time of the inputs.
    pub inputs_time: Duration,
    /// Time of the calls, planning included.
    pub calls_time: Duration,
    /// Time of the check.
    pub check_time: Duration,
}

/// Replays `trace` on `target`. Files of the same names are overwritten.
///
/// # Errors
/// `Unfit` if the trace cannot be replayed; `Call` for a call that fails; `Mismatch` and `Length` for the first wrong
/// byte or length. The files are left as they are.
pub fn replay<T: Target>(trace: &Trace, target: &T, options: &Options<'_>) -> Result<Report> {
    let inputs = inputs::inputs(trace)?;
    let mut report = Report::default();
    let begun = Instant::now();
    report.inputs = write_inputs(trace, target, options, &inputs)?;
    report.inputs_time = begun.elapsed();

    let bytes = trace.ops.iter().map(|op| op.len).sum();
    (options.progress)(Event::Begin {
        phase: Phase::Calls,
        bytes,
    });
    let begun = Instant::now();
    let model = make_calls(trace, target, options, &inputs, &mut report)?;
    report.calls_time = begun.elapsed();

    if options.check {
        let begun = Instant::now();
        report.checked = check_all(trace, target, options, &model)?;
        report.check_time = begun.elapsed();
    }
    Ok(report)
}

/// Creates all files. Each by one rank, in turn; the content is there for everyone when this returns.
fn write_inputs<T: Target>(
    trace: &Trace,
    target: &T,
    options: &Options<'_>,
    inputs: &[InitialContent],
) -> Result<u64> {
    const MAX_CALL_BYTES: u64 = 4 << 20;
    let ranges = || inputs.iter().flat_map(|i| &i.content);
    let bytes = ranges().map(|r| r.end - r.start).sum();
    (options.progress)(Event::Begin {
        phase: Phase::Inputs,
        bytes,
    });
    let mut buffer = Vec::new();
    for (file, (name, input)) in (0u32..).zip(trace.files.iter().zip(inputs)) {
        let rank = file % trace.ranks.max(1);
        let node = options.placement.node(rank, trace.ranks, target.nodes());
        let op = |offset, len| Op::untimed(rank, Kind::Write, file, offset, len);
        let error = |what, source| worker::call_error(what, trace, &op(0, 0), source);
        let mut handle = target.create(node, name).map_err(|e| error("create", e))?;
        if input.size > 0 {
            let sized = target.set_len(&mut handle, input.size);
            sized.map_err(|e| worker::call_error("truncate", trace, &op(input.size, 0), e))?;
        }
        let content = Content::new(file, 0);
        for range in &input.content {
            for start in range.clone().step_by(MAX_CALL_BYTES as usize) {
                let buf = worker::room(&mut buffer, MAX_CALL_BYTES.min(range.end - start) as usize);
                content.fill(start, buf);
                let len = buf.len() as u64;
                let written = target.write(&mut handle, start, buf);
                written.map_err(|e| worker::call_error("write", trace, &op(start, len), e))?;
                (options.progress)(Event::Done { bytes: len });
            }
        }
        target.fsync(&mut handle).map_err(|e| error("fsync", e))?;
        target.close(handle).map_err(|e| error("close", e))?;
    }
    Ok(bytes)
}

/// A thread's ends of its channels: epochs to it, outcomes from it.
type WorkerChannels = (Sender<Epoch>, Receiver<Result<()>>);

fn make_calls<T: Target>(
    trace: &Trace,
    target: &T,
    options: &Options<'_>,
    inputs: &[InitialContent],
    report: &mut Report,
) -> Result<Model> {
    let wanted = match options.delays {
        Delays::None => options.threads,
        // Ranks that share a thread would wait for each other's computing.
        Delays::Recorded { .. } | Delays::Fixed(_) => MOST_THREADS,
    };
    let threads = wanted.clamp(1, trace.ranks.max(1));
    let most_open = (options.max_open / threads as usize).max(1);
    std::thread::scope(|scope| {
        let (mut lines, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let (jobs, inbox) = channel::<Epoch>();
            let (results, outcome) = channel();
            lines.push((jobs, outcome));
            ends.push(scope.spawn(move || {
                let mut worker = Worker::new(target, trace, options, most_open);
                for epoch in inbox {
                    // The other side is gone after another thread's failure.
                    if results.send(worker.run(&epoch)).is_err() {
                        break;
                    }
                }
                worker.finish().map(|()| worker.report)
            }));
        }
        let planned = run_plan(Planner::new(trace, inputs), &lines, report);
        drop(lines);
        let mut closed = Ok(());
        for end in ends {
            match end.join() {
                Ok(Ok(part)) => report.add(&part),
                Ok(Err(error)) => closed = Err(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let model = planned?;
        closed.map(|()| model)
    })
}

fn run_plan(
    mut planner: Planner<'_>,
    lines: &[WorkerChannels],
    report: &mut Report,
) -> Result<Model> {
    loop {
        let window = planner.window();
        if window.is_empty() {
            return Ok(planner.into_model());
        }
        for epoch in window {
            report.epochs += 1;
            run_epoch(epoch, lines)?;
        }
    }
}

/// Deals the epoch's calls out, and waits until all are made and committed.
fn run_epoch(epoch: Epoch, lines: &[WorkerChannels]) -> Result<()> {
    let mut shares: Vec<Vec<plan::Task>> = lines.iter().map(|_| Vec::new()).collect();
    for task in epoch.tasks {
        shares[task.op.rank as usize % lines.len()].push(task);
    }
    let mut waited_for = Vec::new();
    for ((jobs, outcome), tasks) in lines.iter().zip(shares) {
        // Fails only if the thread panicked; joining it tells.
        if !tasks.is_empty()
            && jobs
                .send(Epoch {
                    number: epoch.number,
                    tasks,
                })
                .is_ok()
        {
            waited_for.push(outcome);
        }
    }
    let mut first = Ok(());
    for outcome in waited_for {
        let outcome = outcome.recv().unwrap_or(Ok(()));
        first = first.and(outcome);
    }
    first
}

fn check_all<T: Target>(
    trace: &Trace,
    target: &T,
    options: &Options<'_>,
    model: &Model,
) -> Result<u64> {
    let written = |op: &&Op| op.kind == Kind::Write && op.len > 0;
    let files: BTreeSet<u32> = trace.ops.iter().filter(written).map(|op| op.file).collect();
    let files = Vec::from_iter(files);
    (options.progress)(Event::Begin {
        phase: Phase::Check,
        bytes: check::bytes(model, &files),
    });
    let threads = options.threads.max(target.nodes());
    let files = &files;
    std::thread::scope(|scope| {
        let start = |thread| {
            scope.spawn(move || check::check(target, trace, model, files, options, thread, threads))
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        let mut bytes = Ok(0);
        for thread in running {
            match thread.join() {
                Ok(done) => bytes = bytes.and_then(|sum| Ok::<u64, Error>(sum + done?)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        bytes
    })
}

impl Report {
    fn add(&mut self, part: &Report) {
        self.calls += part.calls;
        self.written += part.written;
        self.read += part.read;
        self.reopens += part.reopens;
        self.io_time += part.io_time;
        self.delays_time += part.delays_time;
    }
}
