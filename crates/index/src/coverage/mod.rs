//! What is stored, in memory: so that a put that overlaps nothing, as nearly all do, need not read what is stored around it.
//!
//! | file | what |
//! |---|---|
//! | `page` | the stored bytes of 1 MiB of a file |
//! | `bits` | the same as one bit for each unit of any length |
//! | `slice` | those of 64 MiB; slices that are alike share what is known |
//! | `file` | those of a file, as far as they are known |
//! | `streams` | whether a new extent may continue a stored one |
//!
//! It learns of a file when it is changed again, or much: one look tells whether anything is stored of it. What is stored already is not
//! known then, and is read page by page where puts keep meeting it. From then on it is told of every batch that is applied, under the lock
//! under which a reader of pages takes its view; so a batch that was made and never applied leaves no trace.
//!
//! # Invariants
//! - What it calls free is free: no stored byte, no extent to join with. What it does not call so may be free all the same: after a
//!   removal, or when memory ran out.
//! - Its memory is within the budget, but for what a file costs of which nothing is known.
mod bits;
mod file;
mod page;
mod slice;
mod streams;
#[cfg(test)]
mod tests;

pub use page::PAGE;

use crate::Extent;
use crate::csm::{Record, Run};
use file::{At, Fate, FileCover};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Reads of unknown pages that are worth one read of a whole page.
const WORTH: i64 = 8;
/// What a page with more extents than one wants to read counts.
const DENSE: i64 = 64;

/// A file is followed from its second change on, or from one of so many pieces: most small files are written once.
const MANY: usize = 8;
/// Files that are remembered to have been changed once.
const SEEN: usize = 1024;

/// What is known of the pieces of a change.
pub enum Look {
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
                seen: vec![None; SEEN].into(),
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
    pub fn look<'a>(
        &self,
        fid: u64,
        pieces: impl Iterator<Item = (u64, u64, Option<&'a Extent>)>,
    ) -> Look {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.now += 1;
        let Some(file) = state.files.get_mut(&fid) else {
            let pieces = pieces.count();
            let seen = &mut state.seen[fid as usize % SEEN];
            if pieces < MANY && seen.replace(fid) != Some(fid) {
                return Look::Known(vec![false; pieces], Vec::new());
            }
            return Look::Nothing;
        };
        file.used = state.now;
        let mut unknown: Vec<u64> = Vec::new();
        let known = &*file;
        let mut at = At::default();
        let fates =
            pieces.map(
                |(start, end, source)| match known.fate(start, end, source, &mut at) {
                    Fate::Free => true,
                    Fate::Stored => false,
                    Fate::Unknown(page) => {
                        unknown.push(page);
                        false
                    }
                },
            );
        let free: Vec<bool> = fates.collect();
        file.misses += unknown.len() as i64;
        unknown.dedup();
        unknown.truncate((file.misses / WORTH).max(0) as usize);
        file.misses -= WORTH * unknown.len() as i64;
        Look::Known(free, unknown)
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
            state.grown(0, bytes, self.budget);
        }
        let version = state.files.get(&fid).map_or(0, |file| file.version);
        (version, with())
    }

    /// At this version the file had nothing stored.
    pub fn learn_empty(&self, fid: u64, version: u64) {
        let mut state = self.state.lock();
        if let Some(file) = state.files.get_mut(&fid).filter(|f| f.version == version) {
            file.set_empty();
        }
    }

    /// What stood at this version in a page that was unknown: extents that start in it or reach into it, by offset, and the start of
    /// the next one behind it. `None`: too much to read.
    pub fn learn(
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
            Some((extents, next)) => file.learn(page, extents, next, state.now),
            None => file.misses -= DENSE,
        }
        let after = file.bytes();
        state.grown(before, after, self.budget);
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
        self.grown(before, after, budget);
    }

    /// Counts memory, and takes some back if it is too much.
    fn grown(&mut self, before: usize, after: usize, budget: usize) {
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
