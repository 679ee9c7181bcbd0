//! Reads that a program of this node makes itself: it is told where a file's bytes lie in the member's segment files, and reads and
//! verifies them there (`forebay_data::direct_read`), now and later, as long as the file's change counter stands (`change_counters`).
//!
//! Invariant: all that one answer names is the file as of one generation, which was current when it was asked for (a longer read takes
//! several answers, as an ordinary one over the link takes several calls). What was moved or freed since, the reader finds out, and
//! makes an ordinary read.
use super::ChangeMark;
use super::Delegate;
use super::handles::Handle;
use super::intervals::ByteSource;
use super::open_file::FetchedExtents;
use crate::Result;
use forebay_data::StoredRun;
use serde::{Deserialize, Serialize};
use std::fs::File;

/// Reads, and bytes, that a program may report at once: more than it can read in between.
const MAX_REPORTED: u64 = 1 << 40;

/// Where the bytes of a read lie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectRead {
    /// Bytes that the read has: fewer than asked for only at the end of the file.
    pub len: u32,
    /// Their places in the read, in no order, and where they lie. What is in no run is a hole: zeros.
    pub runs: Vec<(u32, StoredRun)>,
    /// By which it can be told later whether an ordinary read would still return this. `None`: it cannot.
    pub mark: Option<ChangeMark>,
}

impl Delegate {
    /// Where the bytes of a read lie, if the program itself can make it: if all of them are raw in this member's segment files, in `most` runs
    /// at most.
    ///
    /// # Errors
    /// As [`read`](Delegate::read).
    pub fn locate_read(
        &self,
        handle: Handle,
        offset: u64,
        len: u32,
        most: usize,
    ) -> Result<Option<DirectRead>> {
        let _at = self.ctx.counters.begin();
        let open = self.ctx.table.get_readable(handle)?;
        if self.ctx.posix {
            self.ctx.refresh(&open.file)?;
        }
        let (mark, generation, range) = {
            let state = open.file.state.lock();
            let end = offset.saturating_add(u64::from(len)).min(state.size());
            let mark = self.read_mark(&state);
            (mark, state.attr.generation, offset.min(end)..end)
        };
        let len = (range.end - range.start) as u32;
        let mut runs = Vec::new();
        if !range.is_empty() {
            let mut asked = FetchedExtents::default();
            let planned =
                (self.reader).plan_step(&open.file, range.clone(), generation, most, &mut asked);
            // The file changes just now, or its pieces are small: an ordinary read sees to that.
            let Some(plan) = planned.ok().filter(|plan| plan.until == range.end) else {
                return Ok(None);
            };
            for (part, source) in plan.found {
                let ByteSource::Log { member, log, addr } = source else {
                    continue;
                };
                let end = addr.checked_add(part.end - part.start);
                let Some(end) = end.filter(|_| member == self.ctx.member()) else {
                    return Ok(None);
                };
                let left = most - runs.len();
                // An ordinary read of the damaged bytes tells of damage.
                let stored = self.ctx.node.data.locate(log, addr..end, left);
                let Some(stored) = stored.ok().flatten() else {
                    return Ok(None);
                };
                let mut at = (part.start - range.start) as u32;
                for run in stored {
                    let place = at;
                    at += run.len;
                    runs.push((place, run));
                }
            }
        }
        Ok(Some(DirectRead { len, runs, mark }))
    }

    /// A program has made so many reads itself, of so many bytes in all.
    pub fn count_direct_reads(&self, reads: u64, bytes: u64) {
        // It may say anything; sums of counters must not overflow.
        let (reads, bytes) = (reads.min(MAX_REPORTED), bytes.min(MAX_REPORTED));
        self.ctx.counters.count_reads(reads, bytes);
        self.ctx.node.data.note_direct_read();
    }

    /// A segment file of this member, for reading only.
    ///
    /// # Errors
    /// As the disk; also if it is removed.
    pub fn open_segment(&self, number: u32) -> Result<File> {
        self.ctx.node.data.open_segment(number)
    }
}
