//! The trace model: one read or write of one rank, and a whole trace of them. Calls of every kind are in `recording`.

use serde::{Deserialize, Serialize};

/// Stands for an offset that the log does not tell (MPI-IO calls in old Darshan logs).
pub const NO_OFFSET: u64 = u64::MAX;

/// Read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Bytes went from the file to the rank.
    Read,
    /// Bytes went from the rank to the file.
    Write,
}

/// One call of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// The process that called.
    pub rank: u32,
    /// What it did.
    pub kind: Kind,
    /// Index into [`Trace::files`].
    pub file: u32,
    /// First byte; [`NO_OFFSET`] if not known.
    pub offset: u64,
    /// Bytes read or written; may be 0.
    pub len: u64,
    /// Start, nanoseconds since the job's start.
    pub start: u64,
    /// End, likewise.
    pub end: u64,
}

impl Op {
    /// A call that is in no trace, and so at no time.
    pub(crate) fn untimed(rank: u32, kind: Kind, file: u32, offset: u64, len: u64) -> Op {
        Op {
            rank,
            kind,
            file,
            offset,
            len,
            start: 0,
            end: 0,
        }
    }

    /// The offset after the last byte.
    pub fn stop(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// The calls of a job in order of their start (calls of one rank in its order).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// What to call it in reports.
    pub name: String,
    /// Number of ranks; every op's rank is below.
    pub ranks: u32,
    /// File names by file id: plain names, all different.
    pub files: Vec<String>,
    /// The calls.
    pub ops: Vec<Op>,
}

impl Trace {
    /// A name for file `id` that is safe as a path component and unlike any other id's.
    pub(crate) fn file_name(id: u32, base: &str) -> String {
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let clean: String = base
            .chars()
            .map(|c| if safe(c) { c } else { '_' })
            .take(80)
            .collect();
        if clean.is_empty() {
            format!("{id:05}")
        } else {
            format!("{id:05}-{clean}")
        }
    }
}
