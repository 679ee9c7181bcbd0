//! Reads that a program of this node makes itself: it is told where a file's bytes lie in the member's segment files, and reads and
//! verifies them there (`forebay_data::direct_read`), now and later, as long as the file's change counter stands (`change_counters`).
//!
//! Invariant: all that one answer names is the file as of one generation, which was current when it was asked for (a longer read takes
//! several answers, as an ordinary one over the link takes several calls). What was moved or freed since, the reader finds out, and
//! makes an ordinary read.
use super::ChangeMark;
use super::Delegate;
use super::calls::MAX_AHEAD_PIECES;
use super::handles::Handle;
use super::intervals::{ByteSource, ReadPlan};
use super::open_file::FetchedExtents;
use super::runs::runs;
use crate::Result;
use forebay_data::StoredRun;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::ops::Range;

/// Reads, and bytes, that a program may report at once: more than it can read in between.
const MAX_REPORTED: u64 = 1 << 40;

/// Where the bytes of one or several ranges of a file lie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectRead {
    /// Bytes of all ranges: fewer than asked for only at the end of the file.
    pub len: u32,
    /// Their places in the concatenated ranges, in no order, and where they lie. What is in no run is a hole: zeros.
    pub runs: Vec<(u32, StoredRun)>,
    /// By which it can be told later whether an ordinary read would still return this. `None`: it cannot.
    pub mark: Option<ChangeMark>,
}

impl Delegate {
    /// Locates the bytes of `ranges` (sorted, none overlapping the next), concatenated, so that the program itself can read them. `None`
    /// unless all are raw in this member's segment files, in at most `most` runs, and fewer than 4 GiB.
    ///
    /// # Errors
    /// As [`read`](Delegate::read).
    pub fn locate_ranges(
        &self,
        handle: Handle,
        ranges: &[Range<u64>],
        most: usize,
    ) -> Result<Option<DirectRead>> {
        let _at = self.ctx.counters.begin();
        let open = self.ctx.table.get_readable(handle)?;
        if self.ctx.posix {
            self.ctx.refresh(&open.file)?;
        }
        let (mark, generation, size) = {
            let state = open.file.state.lock();
            (self.read_mark(&state), state.attr.generation, state.size())
        };
        let mut asked = FetchedExtents::default();
        let (mut pieces, mut len) = (Vec::new(), 0);
        for range in ranges {
            let range = range.start..range.end.min(size);
            if range.is_empty() {
                break;
            }
            let left = MAX_AHEAD_PIECES.saturating_sub(pieces.len()).max(1);
            let planned =
                (self.reader).plan_step(&open.file, range.clone(), generation, left, &mut asked);
            // The file changes just now, or its pieces are many: an ordinary read sees to that.
            let is_whole = |plan: &ReadPlan| plan.until == range.end && plan.found.len() <= left;
            let Some(plan) = planned.ok().filter(is_whole) else {
                return Ok(None);
            };
            pieces.extend(plan.placed(range.start, len));
            len += range.end - range.start;
            asked.pieces.clear();
        }
        let Ok(total) = u32::try_from(len) else {
            return Ok(None);
        };
        let runs = self.locate_pieces(&pieces, total, most);
        Ok(runs.map(|runs| DirectRead {
            len: total,
            runs,
            mark,
        }))
    }

    /// Where these pieces of something of `len` bytes lie. `None`: not all can be read directly, or are in more than `most` runs.
    fn locate_pieces(
        &self,
        pieces: &[(Range<u64>, ByteSource)],
        len: u32,
        most: usize,
    ) -> Option<Vec<(u32, StoredRun)>> {
        let mut located = Vec::new();
        for run in runs(pieces, &(0..len.into())) {
            if run.member != self.ctx.member() {
                return None;
            }
            for (place, log, addr) in run.places() {
                let end = addr.checked_add(place.len() as u64)?;
                let left = most - located.len();
                // An ordinary read of the damaged bytes tells of damage.
                let stored = self.ctx.node.data.locate(log, addr..end, left);
                let mut at = place.start as u32;
                for run in stored.ok().flatten()? {
                    let place = at;
                    at += run.len;
                    located.push((place, run));
                }
            }
        }
        Some(located)
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
