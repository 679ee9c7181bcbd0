//! The content that files must have before the first call, so that every read of the trace finds what it found.
//!
//! A trace says how many bytes each read got, so all of them were in the file. Bytes that no earlier call of the trace
//! wrote were there before. Two cases:
//! - A file whose first call is a read is an *input*: the bytes that are read before they are written get the content
//!   of write number 0 (`content`); between them are holes.
//! - Any other file is an *output* (say, one that HDF5 extended without writing): it gets its size, and those bytes read
//!   as zeros.
//!
//! Either way the file starts so long that no read passes its end, in whatever order ranks run.

use crate::{Error, Kind, NO_OFFSET, Op, Ranges, Result, Trace};
use std::ops::Range;

/// What one file holds before the first call.
#[derive(Debug, Default, Clone)]
pub(super) struct InitialContent {
    /// Its size in bytes.
    pub size: u64,
    /// Ranges with content; the rest are holes.
    pub content: Vec<Range<u64>>,
}

#[derive(Default)]
struct FileHistory {
    is_input: Option<bool>,
    written: Ranges<()>,
    needed: Ranges<()>,
}

/// The inputs of every file of `trace`.
///
/// # Errors
/// `Unfit` for a call that cannot be replayed.
pub(super) fn inputs(trace: &Trace) -> Result<Vec<InitialContent>> {
    let mut files: Vec<FileHistory> = trace.files.iter().map(|_| FileHistory::default()).collect();
    for (index, op) in trace.ops.iter().enumerate() {
        if let Some(reason) = why_not_replayable(trace, op) {
            return Err(Error::Unfit {
                trace: trace.name.clone(),
                op: index,
                reason,
            });
        }
        if op.len == 0 {
            continue;
        }
        let (file, range) = (&mut files[op.file as usize], op.offset..op.stop());
        file.is_input.get_or_insert(op.kind == Kind::Read);
        if op.kind == Kind::Write {
            file.written.set(range, ());
            continue;
        }
        for (part, written) in file.written.cover(range) {
            if written.is_none() {
                file.needed.set(part, ());
            }
        }
    }
    Ok(files.into_iter().map(FileHistory::into_input).collect())
}

impl FileHistory {
    fn into_input(self) -> InitialContent {
        let content = match self.is_input {
            Some(true) => self.needed.iter().map(|(range, ())| range).collect(),
            _ => Vec::new(),
        };
        InitialContent {
            size: self.needed.end(),
            content,
        }
    }
}

fn why_not_replayable(trace: &Trace, op: &Op) -> Option<String> {
    if op.rank >= trace.ranks || op.file as usize >= trace.files.len() {
        return Some(format!(
            "it names rank {} and file {}, which the trace does not have",
            op.rank, op.file
        ));
    }
    if op.len == 0 {
        return None;
    }
    if op.offset == NO_OFFSET {
        return Some("its offset is not known; replay the trace of another layer (POSIX)".into());
    }
    (op.stop() > i64::MAX as u64).then(|| "it ends beyond the largest file offset".into())
}
