//! A recording: every operation that went through a mount, not only reads and writes.
//!
//! [`Recording::trace`] takes the successful reads and writes out of it, which is what replay and statistics of content need.

use crate::{Action, Kind, Op, Trace};
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Who: index into [`Recording::processes`], if there are any.
    pub rank: u32,
    /// What.
    pub action: Action,
    /// On which file or directory: index into [`Recording::files`].
    pub file: u32,
    /// See [`Action`]; [`NO_OFFSET`](crate::NO_OFFSET) if not known.
    pub offset: u64,
    /// See [`Action`].
    pub len: u64,
    /// Start, nanoseconds since the recording's start.
    pub start: u64,
    /// End, likewise.
    pub end: u64,
    /// 0, or the error number the call failed with.
    pub error: u32,
}

impl From<&Op> for Call {
    fn from(op: &Op) -> Call {
        Call {
            rank: op.rank,
            action: op.kind.into(),
            file: op.file,
            offset: op.offset,
            len: op.len,
            start: op.start,
            end: op.end,
            error: 0,
        }
    }
}

impl Call {
    /// As a read or write, if it is one and was done. A copy inside the file system is one of each.
    pub fn data(&self) -> Option<Op> {
        let kind = match self.action {
            Action::Read | Action::Copy => Kind::Read,
            Action::Write | Action::CopyTo => Kind::Write,
            _ => return None,
        };
        (self.error == 0).then_some(Op {
            rank: self.rank,
            kind,
            file: self.file,
            offset: self.offset,
            len: self.len,
            start: self.start,
            end: self.end,
        })
    }
}

/// A file or directory that calls were made on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceFile {
    /// Its path relative to the mount, the last it was met under; empty if not known.
    pub path: String,
    /// Its inode number; 0 if not known.
    pub inode: u64,
}

impl TraceFile {
    /// One of which only the path is known.
    pub fn named(path: impl Into<String>) -> TraceFile {
        TraceFile {
            path: path.into(),
            inode: 0,
        }
    }
}

/// Who made calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Process number on its machine; 0 if not known.
    pub pid: u32,
    /// Thread number, where threads are told apart; else 0.
    pub thread: u32,
    /// Its rank, if an MPI or Slurm launcher gave it one.
    pub world: Option<u32>,
    /// Its machine.
    pub host: String,
    /// Its program's name.
    pub program: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}", self.program, self.pid)?;
        if self.thread != 0 && self.thread != self.pid {
            write!(f, ", thread {}", self.thread)?;
        }
        write!(f, " on {})", self.host)
    }
}

/// What is missing at the end of a file that was cut off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TruncatedEnd {
    /// Where the whole part ends, bytes.
    pub at: u64,
    /// Bytes after it that are of no use.
    pub bytes: u64,
    /// Calls that were read.
    pub calls: u64,
}

impl fmt::Display for TruncatedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "it was cut off: {} calls are whole, up to byte {}; the {} bytes behind it and all later calls are lost",
            self.calls, self.at, self.bytes
        )
    }
}

/// The operations of a job, in order of their start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    /// What to call it in reports.
    pub name: String,
    /// When it began, nanoseconds since 1970; 0 if not known.
    pub begun: u64,
    /// Number of ranks; every call's rank is below.
    pub ranks: u32,
    /// Who they were, by rank; those that are not known are missing.
    pub processes: BTreeMap<u32, Process>,
    /// What calls were made on, by file number.
    pub files: Vec<TraceFile>,
    /// The calls.
    pub calls: Vec<Call>,
    /// What is missing at its end.
    pub loss: Option<TruncatedEnd>,
}

impl Recording {
    /// The successful reads and writes, with file names that are plain and all different. What was called otherwise only (a
    /// directory, a file that was but opened) is left out, and the files after it move up.
    pub fn trace(&self) -> Trace {
        let mut kept = vec![true; self.files.len()];
        for call in &self.calls {
            kept[call.file as usize] = false;
        }
        let mut ops: Vec<Op> = self.calls.iter().filter_map(Call::data).collect();
        for op in &ops {
            kept[op.file as usize] = true;
        }
        let mut numbers = Vec::with_capacity(kept.len());
        let mut paths = Vec::new();
        for (file, kept) in self.files.iter().zip(kept) {
            numbers.push(paths.len() as u32);
            if kept {
                paths.push(file.path.as_str());
            }
        }
        for op in &mut ops {
            op.file = numbers[op.file as usize];
        }
        Trace {
            name: self.name.clone(),
            ranks: self.ranks,
            files: plain_names(&paths),
            ops,
        }
    }

    /// A name for a rank in tables and tooltips.
    pub fn rank_name(&self, rank: u32) -> String {
        match self.processes.get(&rank) {
            Some(process) => format!("rank {rank}: {process}"),
            None => format!("rank {rank}"),
        }
    }

    /// How often each action was called and how often it failed, in order of their numbers.
    pub fn actions(&self) -> Vec<(Action, u64, u64)> {
        let mut counts = [(0u64, 0u64); Action::ALL.len()];
        for call in &self.calls {
            let count = &mut counts[usize::from(call.action.code())];
            count.0 += 1;
            count.1 += u64::from(call.error != 0);
        }
        let counted = Action::ALL.into_iter().zip(counts);
        counted
            .filter(|(_, (calls, _))| *calls > 0)
            .map(|(action, (calls, failed))| (action, calls, failed))
            .collect()
    }
}

/// The names as they are if they are plain and all different, else each with its number before it.
fn plain_names(names: &[&str]) -> Vec<String> {
    let plain = |name: &&str| {
        !name.is_empty()
            && name.len() < 200
            && !name.contains(['/', '\0', '\n'])
            && !matches!(*name, "." | "..")
    };
    let distinct: HashSet<&&str> = names.iter().collect();
    if distinct.len() == names.len() && names.iter().all(plain) {
        return names.iter().map(|name| (*name).to_owned()).collect();
    }
    let numbered = |(id, name): (u32, &&str)| Trace::file_name(id, name);
    (0..).zip(names).map(numbered).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_has_what_was_read_and_written_under_plain_names() {
        let call = |action, error| Call {
            rank: 1,
            action,
            file: 1,
            offset: 7,
            len: 3,
            start: 1,
            end: 2,
            error,
        };
        let mut recording = Recording {
            ranks: 2,
            files: [".", "a/b", "c"].map(TraceFile::named).to_vec(),
            calls: vec![
                Call {
                    file: 0,
                    ..call(Action::Open, 0)
                },
                call(Action::Write, 0),
                call(Action::Read, 5),
                call(Action::Read, 0),
            ],
            ..Recording::default()
        };
        let trace = recording.trace();
        let kinds: Vec<Kind> = trace.ops.iter().map(|op| op.kind).collect();
        assert_eq!(kinds, [Kind::Write, Kind::Read]);
        assert!(trace.ops.iter().all(|op| op.file == 0));
        assert_eq!(trace.files, ["00000-a_b", "00001-c"]);
        assert_eq!(
            recording.actions(),
            [
                (Action::Read, 2, 1),
                (Action::Write, 1, 0),
                (Action::Open, 1, 0)
            ]
        );
        recording.files[1].path = "b".into();
        assert_eq!(recording.trace().files, ["b", "c"]);
    }
}
