//! An in-memory map of which bytes of files are stored. A put that overlaps nothing stored, as nearly all do, then needs no
//! read.
//!
//! | file | what |
//! |---|---|
//! | `page` | the stored bytes of 1 MiB of a file |
//! | `bits` | the same as one bit for each unit of any length |
//! | `slice` | the pages of 64 MiB; slices of equal content share it |
//! | `file` | the slices of a file, as far as they are known |
//! | `streams` | whether a new extent may continue a stored one |
//!
//! The coverage of a file is tracked from its second change on, or from the first if that has many pieces. If the file has no
//! extents then, its coverage is complete; else a page is loaded from the index once puts have met it often enough. From then on
//! the coverage changes when a batch is applied, not when it is made: a batch that is never applied changes nothing here. Applying
//! a batch takes the lock under which a page that is loaded takes its view of the index, so no loaded page misses a batch.
//!
//! # Invariants
//! - What is called free is free: no stored byte, and no extent to join with. The converse does not hold: after a removal, or
//!   when memory ran out, a free range may be called stored.
//! - Memory is within the budget, except for the fixed cost of files of which nothing is known.
mod bits;
mod file;
mod page;
mod slice;
mod streams;
#[cfg(test)]
mod tests;

pub use bits::PAGE;

use crate::Extent;
use crate::csm::{Record, Run};
use file::{CoverCursor, FileCover, Occupancy};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Reads of unknown pages that are worth one read of a whole page.
const PAGE_READ_WORTH: i64 = 8;
/// What a page with more extents than one wants to read counts.
const DENSE_PAGE_MISSES: i64 = 64;

/// Coverage of a file is tracked from its second change on, or from one of this many pieces: most small files are written
/// once.
const FOLLOWED_PIECES: usize = 8;
/// Files that are remembered to have been changed once.
const SEEN_FILES: usize = 1024;

/// What is known of the pieces of a change.
pub enum KnownPieces {
    /// Nothing: the file has to be begun with.
    Nothing,
    /// Whether each is free; and pages that are worth reading first.
    Known(Vec<bool>, Vec<u64>),
}

/// Counters and sizes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoverageStats {
    /// Memory, bytes.
    pub bytes: u64,
    /// Pieces that were known to be free.
    pub hits: u64,
    /// Pieces for which stored records were looked at.
    pub misses: u64,
    /// Pages read.
    pub loads: u64,
}

struct State {
    files: HashMap<u64, FileCover>,
    /// Files that were looked at and are not followed, each at its place.
    seen: Box<[Option<u64>]>,
    stats: CoverageStats,
    /// Counts looks: which file was used last.
    now: u64,
    /// Counts changes of all files, so that a version of a file never comes back.
    versions: u64,
}

/// See the head of this file.
pub struct Coverage {
    state: Mutex<State>,
    budget: usize,
}

impl Coverage {
    /// Of no file; at most `budget` bytes of memory.
    pub fn new(budget: usize) -> Coverage {
        Coverage {
            state: Mutex::new(State {
                files: HashMap::new(),
                seen: vec![None; SEEN_FILES].into(),
                stats: CoverageStats::default(),
                now: 0,
                versions: 0,
            }),
            budget,
        }
    }

    /// Counters and sizes.
    pub fn stats(&self) -> CoverageStats {
        self.state.lock().stats
    }

    /// Memory, counted anew.
    #[cfg(test)]
    fn counted(&self) -> u64 {
        let state = self.state.lock();
        state.files.values().map(|f| f.counted() as u64).sum()
    }

    /// What is known of these pieces of `fid`: start, end, and the extent that is to stand there, if not a hole.
    pub fn known_pieces<'a>(
        &self,
        fid: u64,
        pieces: impl Iterator<Item = (u64, u64, Option<&'a Extent>)>,
    ) -> KnownPieces {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.now += 1;
        let Some(file) = state.files.get_mut(&fid) else {
            let pieces = pieces.count();
            let seen = &mut state.seen[fid as usize % SEEN_FILES];
            if pieces < FOLLOWED_PIECES && seen.replace(fid) != Some(fid) {
                return KnownPieces::Known(vec![false; pieces], Vec::new());
            }
            return KnownPieces::Nothing;
        };
        file.used = state.now;
        let mut unknown: Vec<u64> = Vec::new();
        let known = &*file;
        let mut at = CoverCursor::default();
        let fates =
            pieces.map(
                |(start, end, source)| match known.occupancy(start, end, source, &mut at) {
                    Occupancy::Free => true,
                    Occupancy::Stored => false,
                    Occupancy::Unknown(page) => {
                        unknown.push(page);
                        false
                    }
                },
            );
        let free: Vec<bool> = fates.collect();
        file.misses += unknown.len() as i64;
        unknown.dedup();
        unknown.truncate((file.misses / PAGE_READ_WORTH).max(0) as usize);
        file.misses -= PAGE_READ_WORTH * unknown.len() as i64;
        KnownPieces::Known(free, unknown)
    }

    /// Counts what a change made of the answer.
    pub fn count(&self, hits: usize, misses: usize) {
        let mut state = self.state.lock();
        state.stats.hits += hits as u64;
        state.stats.misses += misses as u64;
    }

    /// Begins to follow `fid`, and does something under the lock: what is applied after that is known. Returns the file's version.
    pub fn begin<T>(&self, fid: u64, with: impl FnOnce() -> T) -> (u64, T) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if !state.files.contains_key(&fid) {
            state.versions += 1;
            let file = FileCover::new(state.now, state.versions);
            let bytes = file.bytes();
            state.files.insert(fid, file);
            state.count_memory(0, bytes, self.budget);
        }
        let version = state.files.get(&fid).map_or(0, |file| file.version);
        (version, with())
    }

    /// At this version the file had nothing stored.
    pub fn start_empty(&self, fid: u64, version: u64) {
        let mut state = self.state.lock();
        if let Some(file) = state.files.get_mut(&fid).filter(|f| f.version == version) {
            file.set_empty();
        }
    }

    /// What stood at this version in a page that was unknown: extents that start in it or reach into it, by offset, and the start of
    /// the next one after it. `None`: too much to read.
    pub fn load_page(
        &self,
        fid: u64,
        version: u64,
        page: u64,
        found: Option<(&[Extent], Option<u64>)>,
    ) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.stats.loads += 1;
        let Some(file) = state.files.get_mut(&fid).filter(|f| f.version == version) else {
            return;
        };
        let before = file.bytes();
        match found {
            Some((extents, next)) => file.load_page(page, extents, next, state.now),
            None => file.misses -= DENSE_PAGE_MISSES,
        }
        let after = file.bytes();
        state.count_memory(before, after, self.budget);
    }

    /// These records are stored, run by run; `with` makes them visible.
    pub fn apply<T>(&self, runs: &[Run], with: impl FnOnce() -> T) -> T {
        let mut state = self.state.lock();
        for run in runs {
            for same in run.chunk_by(|a, b| a.key.fid == b.key.fid) {
                state.store(same, self.budget);
            }
        }
        with()
    }
}

impl State {
    /// Records of one file are stored.
    fn store(&mut self, records: &[Record], budget: usize) {
        let Some(file) = records.first().and_then(|r| self.files.get_mut(&r.key.fid)) else {
            return;
        };
        let before = file.bytes();
        self.versions += 1;
        file.version = self.versions;
        for same in records.chunk_by(|a, b| (a.len == 0) == (b.len == 0)) {
            match same {
                [first, ..] if first.len > 0 => file.add(same, Record::stored, self.now),
                _ => same.iter().for_each(|gone| file.remove(gone.key.offset)),
            }
        }
        let after = file.bytes();
        self.count_memory(before, after, budget);
    }

    /// Counts memory, and takes some back if it is too much.
    fn count_memory(&mut self, before: usize, after: usize, budget: usize) {
        self.stats.bytes = self.stats.bytes + after as u64 - before as u64;
        if self.stats.bytes > budget as u64 && after > before {
            // Not by much: what is forgotten may have to be read again.
            self.shrink(budget as u64 / 16 * 15);
        }
    }

    /// Forgets files, those not used for longest first; of the last one its slices in the same way.
    fn shrink(&mut self, budget: u64) {
        let mut files: Vec<(u64, u64)> = self.files.iter().map(|(fid, f)| (f.used, *fid)).collect();
        files.sort_unstable();
        let last = files.pop();
        for (_, fid) in files {
            if self.stats.bytes <= budget {
                return;
            }
            let gone = self.files.remove(&fid);
            self.stats.bytes -= gone.map_or(0, |file| file.bytes() as u64);
        }
        let Some(file) = last.and_then(|(_, fid)| self.files.get_mut(&fid)) else {
            return;
        };
        let mut slices: Vec<(u64, u64)> = file.uses().collect();
        slices.sort_unstable();
        slices.pop();
        for (_, slice) in slices {
            if file.bytes() as u64 <= budget {
                break;
            }
            file.forget(slice);
        }
        if file.bytes() as u64 > budget {
            file.forget_all();
        }
        self.stats.bytes = file.bytes() as u64;
    }
}
