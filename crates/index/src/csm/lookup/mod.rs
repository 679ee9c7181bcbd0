//! Looks up many ranges at once, in one forward pass over all sources of records (MemTables, trees, tables).
//!
//! | file | what |
//! |---|---|
//! | `plan` | which blocks of one source the requests need |
//! | `lazy_block` | one of them, decoded as far as needed |
//! | `source_cursor` | a forward cursor over one source's blocks |
//!
//! Requests come sorted by file and start, in pieces whose blocks fit in a bounded part of memory. For each piece the blocks are
//! planned, then fetched table by table (shared with the requests of other threads), then scanned.
//!
//! Extents do not overlap. So of the records of a source that start before a request, only the last can reach into it, and only if
//! no record starts exactly at the request's start. A lookup reads that record and those inside the request, and nothing else. In
//! the rare case that the record before is a delete, the request is answered by a scan.
pub(in crate::csm) mod lazy_block;
mod plan;
mod source_cursor;
#[cfg(test)]
mod tests;

use super::engine::View;
use super::record::{Key, Record};
use super::scan::Source;
use crate::extent::search_start;
use forebay_storage::Result;
use plan::Plan;
use source_cursor::SourceCursor;
use std::ops::Range;

/// Compressed blocks of one piece, bytes.
const PIECE_BYTES: usize = 4 << 20;

/// One request: the records of a file that may reach into a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeRequest {
    /// The least key that may reach the range.
    far: Key,
    /// The start of the range.
    at: Key,
    /// Its end, excluded.
    end: Key,
}

impl RangeRequest {
    /// For this range of the file.
    pub fn new(fid: u64, range: &Range<u64>) -> RangeRequest {
        let key = |offset| Key { fid, offset };
        RangeRequest {
            far: key(search_start(range.start)),
            at: key(range.start),
            end: key(range.end),
        }
    }
}

/// What a lookup says of a request.
pub enum LookupResult<'a> {
    /// Those of its records that are extents, by offset, perhaps with one before that does not reach it.
    Records(&'a [Record]),
    /// It needs a scan.
    Scan,
}

/// See the head of this file.
pub struct Lookup {
    sources: Vec<Source>,
    piece: usize,
}

impl Lookup {
    /// In one state of the index; the blocks of a piece take `piece` bytes at most, but for those of its last request.
    pub fn new(view: &View, piece: usize) -> Lookup {
        Lookup {
            sources: view.sources().collect(),
            piece: piece.min(PIECE_BYTES),
        }
    }

    /// Answers the requests, sorted by start, in order.
    ///
    /// # Errors
    /// Those of reading table files.
    pub fn answer(
        &self,
        requests: &[RangeRequest],
        mut answer: impl FnMut(usize, LookupResult<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut plans: Vec<Plan<'_>> = self.sources.iter().map(Plan::new).collect();
        let mut pass = LookupPass::default();
        let mut next = 0;
        while next < requests.len() {
            let (start, mut bytes) = (next, 0);
            pass.large.clear();
            plans.iter_mut().for_each(Plan::clear);
            while next < requests.len() && bytes < self.piece {
                let before = bytes;
                for plan in &mut plans {
                    bytes += plan.add(&requests[next], self.piece)?;
                }
                if bytes - before >= self.piece {
                    pass.large.push(next);
                }
                next += 1;
            }
            plans.iter_mut().try_for_each(Plan::fetch)?;
            let mut cursors: Vec<SourceCursor<'_>> =
                plans.iter().filter_map(Plan::cursor).collect();
            for (i, request) in requests.iter().enumerate().take(next).skip(start) {
                answer(i, pass.one(i, request, &mut cursors)?)?;
            }
        }
        Ok(())
    }
}

/// Buffers of the pass.
#[derive(Default)]
struct LookupPass {
    found: Vec<Record>,
    /// Requests of the piece whose blocks are too many.
    large: Vec<usize>,
}

impl LookupPass {
    fn one(
        &mut self,
        i: usize,
        request: &RangeRequest,
        cursors: &mut [SourceCursor<'_>],
    ) -> Result<LookupResult<'_>> {
        if self.large.contains(&i) {
            return Ok(LookupResult::Scan);
        }
        self.found.clear();
        let mut mixed = false;
        for cursor in &mut *cursors {
            let before = self.found.len();
            cursor.gather(request.at, request.end, &mut self.found)?;
            mixed |= before > 0 && self.found.len() > before;
        }
        if let [only] = &self.found[..]
            && only.key == request.at
            && only.len > 0
        {
            return Ok(LookupResult::Records(&self.found));
        }
        if mixed {
            // Those of newer sources come first, sorting keeps that, and the first of equals stays.
            self.found.sort_by_key(|record| record.key);
            self.found.dedup_by_key(|record| record.key);
        }
        match self.found.first() {
            Some(first) if first.key == request.at => {
                if first.len == 0 {
                    return Ok(LookupResult::Scan);
                }
            }
            _ => {
                let mut last: Option<(Key, usize)> = None;
                for (k, cursor) in cursors.iter().enumerate() {
                    // Of equals the first is the newest.
                    let key = cursor.before().filter(|key| *key >= request.far);
                    if let Some(key) = key.filter(|key| last.is_none_or(|(last, _)| *key > last)) {
                        last = Some((key, k));
                    }
                }
                if let Some((_, k)) = last {
                    let record = cursors[k].take_before()?;
                    if record.len == 0 {
                        return Ok(LookupResult::Scan);
                    }
                    self.found.insert(0, record);
                }
            }
        }
        self.found.retain(|record| record.len > 0);
        Ok(LookupResult::Records(&self.found))
    }
}
