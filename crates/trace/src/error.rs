//! Errors of a trace or its replay, each naming the place and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// This crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the operating system said of `path`.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
        |source| Error::Io {
            path: path.to_owned(),
            source,
        }
    }

    /// There is too much of something.
    pub(crate) fn limit(path: &Path, what: impl Into<String>) -> Error {
        Error::Limit {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The trace file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// A line of a CSV trace is not as it should be.
    #[error("{}: line {line}, field {column} ({field}): found {found:?}, expected {expected}; mend or remove the line", path.display())]
    Line {
        /// The trace file.
        path: PathBuf,
        /// Line number from 1.
        line: u64,
        /// Field number from 1.
        column: usize,
        /// The field's name in the header.
        field: &'static str,
        /// What is there, at most 40 characters.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
    /// A file in Forebay's own format is damaged, cut short, or of another version.
    #[error("{}: at byte {offset}: {reason}", path.display())]
    Format {
        /// The trace file.
        path: PathBuf,
        /// Where in it, bytes.
        offset: u64,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A trace has more of something than any trace: it may be another kind of file, or one that never ends.
    #[error("{}: {what}", path.display())]
    Limit {
        /// The trace file.
        path: PathBuf,
        /// What there is too much of, and the limit.
        what: String,
    },
    /// A workload's description makes no sense.
    #[error("workload {spec:?}: {reason}")]
    Spec {
        /// The description.
        spec: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The trace cannot be replayed.
    #[error("trace {trace:?}, call {op}: {reason}")]
    Unfit {
        /// The trace's name.
        trace: String,
        /// Index of the call from 0.
        op: usize,
        /// Why, and what to do.
        reason: String,
    },
    /// A call of the replay failed.
    #[error("rank {rank}: {what} {file:?} at offset {offset}, {len} bytes: {source}")]
    Call {
        /// Which call.
        what: &'static str,
        /// The rank that called.
        rank: u32,
        /// The file's name.
        file: String,
        /// First byte of the call.
        offset: u64,
        /// Its length.
        len: u64,
        /// What the target said.
        #[source]
        source: io::Error,
    },
    /// The target gave a byte that the model does not.
    #[error(
        "wrong byte: rank {rank} read {file:?} at offset {offset}: found {found:#04x}, expected {expected:#04x} ({from}); \
         the read was {read_offset}+{read_len}"
    )]
    Mismatch {
        /// The file's name.
        file: String,
        /// The first wrong byte.
        offset: u64,
        /// The rank that read.
        rank: u32,
        /// What the model says.
        expected: u8,
        /// What the target gave.
        found: u8,
        /// Where the expected byte comes from.
        from: String,
        /// First byte of the read.
        read_offset: u64,
        /// Its length.
        read_len: u64,
    },
    /// A file is not as long as the model says, or a read ended early.
    #[error("wrong length: rank {rank}, {file:?}: {what} is {found}, expected {expected}")]
    Length {
        /// The file's name.
        file: String,
        /// The rank that looked.
        rank: u32,
        /// The file's size, or the bytes of which read.
        what: String,
        /// What the target gave.
        found: u64,
        /// What the model says.
        expected: u64,
    },
}
