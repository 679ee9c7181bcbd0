//! In which order calls run, so that every read has one right answer.
//!
//! A trace's calls overlap in time, and other nodes see a write only after its writer commits. So the trace's order
//! (by start) is taken as the order that counts, and calls are put into *epochs*:
//! - a call is never in an earlier epoch than the call of its rank before it;
//! - of two calls of different ranks on a common byte, one of them a write, the later is in a later epoch.
//!
//! Each call is in the first epoch that these rules allow. Inside an epoch ranks run side by side: no byte is written by
//! one and touched by another. At its end every rank that wrote commits; a rank that touches a file which another one
//! wrote in an earlier epoch opens it again first. So a read returns what all calls before it in the trace left, and
//! that is what the model says. Files are independent, but ranks keep their order over all files.
//!
//! The trace is cut into windows of so many calls and pieces; epochs do not span windows. This bounds memory.

use super::inputs::InitialContent;
use crate::{Kind, Model, Op, OriginPiece, Ranges, Trace};
use std::collections::HashMap;
use std::ops::Range;

/// Most calls in a window.
const WINDOW_OPS: usize = 1 << 18;
/// A window ends when its reads have this many pieces to check.
const WINDOW_PIECES: usize = 1 << 20;

/// A call, ready to run.
#[derive(Debug)]
pub(super) struct Task {
    pub op: Op,
    /// Number of the call from 1: what its content derives from.
    pub sequence: u64,
    /// What a read must return.
    pub pieces: Vec<OriginPiece>,
    /// The handle used must have been opened after this epoch; 0: any.
    pub opened_after: u64,
    /// What the rank did between its call before and this one: computing. Nanoseconds of the trace.
    pub pause: u64,
}

/// The calls of one epoch, in trace order.
pub(super) struct Epoch {
    /// From 1, over the whole replay.
    pub number: u64,
    pub tasks: Vec<Task>,
}

/// Makes epochs out of a trace, window by window.
pub(super) struct Planner<'a> {
    trace: &'a Trace,
    next: usize,
    /// When each rank's last call ended.
    ends: HashMap<u32, u64>,
    model: Model,
    writers: Vec<LastWriters>,
    epochs: u64,
    window_ops: usize,
}

impl<'a> Planner<'a> {
    pub fn new(trace: &'a Trace, inputs: &[InitialContent]) -> Planner<'a> {
        let mut model = Model::new(trace.files.len());
        for (file, input) in (0..).zip(inputs) {
            model.extend(file, input.size);
            for range in &input.content {
                model.write(file, range.clone(), 0);
            }
        }
        let writers = vec![LastWriters::default(); trace.files.len()];
        Planner {
            trace,
            next: 0,
            ends: HashMap::new(),
            model,
            writers,
            epochs: 0,
            window_ops: WINDOW_OPS,
        }
    }

    #[cfg(test)]
    pub fn with_window(mut self, ops: usize) -> Planner<'a> {
        self.window_ops = ops;
        self
    }

    /// What the files hold after the calls planned so far.
    pub fn into_model(self) -> Model {
        self.model
    }

    /// The epochs of the next window; none at the trace's end.
    pub fn window(&mut self) -> Vec<Epoch> {
        let first = self.epochs + 1;
        let mut epochs: Vec<Epoch> = Vec::new();
        let mut levels = EpochLevels::new(self.trace);
        let (mut ops, mut pieces) = (0, 0);
        while let Some(op) = self.trace.ops.get(self.next) {
            if ops >= self.window_ops || pieces >= WINDOW_PIECES {
                break;
            }
            let task = self.task(*op);
            (ops, pieces) = (ops + 1, pieces + task.pieces.len());
            let level = levels.place(op);
            while epochs.len() <= level {
                let number = first + epochs.len() as u64;
                epochs.push(Epoch {
                    number,
                    tasks: Vec::new(),
                });
            }
            epochs[level].tasks.push(task);
        }
        self.epochs += epochs.len() as u64;
        for epoch in &mut epochs {
            self.mark_reopens(epoch);
        }
        epochs
    }

    fn task(&mut self, op: Op) -> Task {
        self.next += 1;
        let sequence = self.next as u64;
        let mut pieces = Vec::new();
        if op.len > 0 {
            let range = op.offset..op.stop();
            match op.kind {
                Kind::Write => self.model.write(op.file, range, sequence),
                Kind::Read => pieces = self.model.read(op.file, range),
            }
        }
        // The first call waits as long as the job did before it.
        let begin = self.trace.ops.first().map_or(0, |first| first.start);
        let before = self.ends.insert(op.rank, op.end).unwrap_or(begin);
        Task {
            op,
            sequence,
            pieces,
            opened_after: 0,
            pause: op.start.saturating_sub(before),
        }
    }

    fn mark_reopens(&mut self, epoch: &mut Epoch) {
        for task in &mut epoch.tasks {
            task.opened_after = self.writers[task.op.file as usize].before(task.op.rank);
        }
        for Task { op, .. } in &epoch.tasks {
            if op.kind == Kind::Write && op.len > 0 {
                self.writers[op.file as usize].add(epoch.number, op.rank);
            }
        }
    }
}

/// The last epoch in which a file was written, by whom, and the last one in which another rank wrote it. 0: never.
#[derive(Default, Clone)]
struct LastWriters {
    last: (u64, u32),
    other: u64,
}

impl LastWriters {
    fn add(&mut self, epoch: u64, rank: u32) {
        if self.last.1 != rank {
            self.other = self.last.0;
        }
        self.last = (epoch, rank);
    }

    /// The last epoch in which a rank other than `rank` wrote.
    fn before(&self, rank: u32) -> u64 {
        if self.last.1 == rank {
            self.other
        } else {
            self.last.0
        }
    }
}

/// The epochs of a window, as levels from 0: who touched which bytes at which level.
struct EpochLevels {
    files: Vec<Ranges<LastTouch>>,
    ranks: Vec<usize>,
}

/// Who touched a byte last. The write covers older reads: whatever follows it follows them.
#[derive(Default, Clone, PartialEq)]
struct LastTouch {
    write: Option<(usize, u32)>,
    /// The highest level of a read since, and the highest of a read by any other rank.
    reads: [Option<(usize, u32)>; 2],
}

impl LastTouch {
    fn add_read(&mut self, level: usize, rank: u32) {
        let new = Some((level, rank));
        match self.reads {
            [Some((top, r)), _] if r == rank => self.reads[0] = Some((top.max(level), rank)),
            [top, _] if top.is_none_or(|(top, _)| level >= top) => self.reads = [new, top],
            [_, second] => {
                if second.is_none_or(|(l, _)| level > l) {
                    self.reads[1] = new;
                }
            }
        }
    }

    /// The first level at which `rank` may make a call of this kind here.
    fn free_at(&self, rank: u32, kind: Kind) -> usize {
        let reads = if kind == Kind::Write {
            self.reads
        } else {
            [None; 2]
        };
        let others = [self.write, reads[0], reads[1]];
        let others = others.into_iter().flatten().filter(|(_, r)| *r != rank);
        others.map(|(level, _)| level + 1).max().unwrap_or(0)
    }
}

impl EpochLevels {
    fn new(trace: &Trace) -> EpochLevels {
        let files = trace.files.iter().map(|_| Ranges::default()).collect();
        EpochLevels {
            files,
            ranks: vec![0; trace.ranks as usize],
        }
    }

    fn place(&mut self, op: &Op) -> usize {
        let mut level = self.ranks[op.rank as usize];
        if op.len > 0 {
            let (file, range) = (&mut self.files[op.file as usize], op.offset..op.stop());
            let free = file
                .get(range.clone())
                .map(|(_, touch)| touch.free_at(op.rank, op.kind));
            level = level.max(free.max().unwrap_or(0));
            touch(file, range, op, level);
        }
        self.ranks[op.rank as usize] = level;
        level
    }
}

fn touch(file: &mut Ranges<LastTouch>, range: Range<u64>, op: &Op, level: usize) {
    if op.kind == Kind::Write {
        let write = Some((level, op.rank));
        file.set(
            range,
            LastTouch {
                write,
                reads: [None; 2],
            },
        );
        return;
    }
    for (part, before) in file.cover(range) {
        let mut touch = before.unwrap_or_default();
        touch.add_read(level, op.rank);
        file.set(part, touch);
    }
}
