//! The sequences of this member's files, and which of them may hold bytes that an fsync has brought to disk (*synced* files):
//! those that were fsynced in this run, or had content before it.
//!
//! # Invariants
//! 1. Sequences of one file only grow, also over restarts. The counter jumps ahead at every start, so that a sequence that a
//!    machine crash took back is not issued again.
//! 2. What an earlier run left counts as synced. A new file, as a checkpoint that many nodes write, does not: its commits
//!    need not care what a power cut leaves of it.
use crate::{Fid, Result};
use forebay_data::Counter;
use forebay_storage::Store;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// With more files than that, all count as synced.
const MAX_TRACKED_FILES: usize = 1 << 16;

/// See the head of this file.
pub(super) struct FileSequences {
    counter: Counter,
    pub synced: SyncedFiles,
}

impl FileSequences {
    pub fn open(store: Arc<Store>) -> Result<FileSequences> {
        Ok(FileSequences {
            counter: Counter::open(store, b"seq", 1)?,
            synced: SyncedFiles::default(),
        })
    }

    /// The next sequence of a file whose last one is `last`. The caller has the inode's lock.
    pub fn next(&self, fid: Fid, last: u64) -> Result<u64> {
        let next = self.counter.next()?;
        self.synced.issued(fid, last, next);
        Ok(next.max(last + 1))
    }
}

/// The files of which an fsync may have brought something to disk.
#[derive(Default)]
pub(super) struct SyncedFiles {
    /// The first sequence of this run.
    first: OnceLock<u64>,
    synced: Mutex<HashSet<Fid>>,
}

impl SyncedFiles {
    /// A commit of the file gets a sequence of this run; the last one of the file had `last`. If that was before this run, what
    /// the file holds stays synced: its next commits are of this run.
    fn issued(&self, fid: Fid, last: u64, seq: u64) {
        let first = *self.first.get_or_init(|| seq);
        if (1..first).contains(&last) {
            self.mark_synced(fid);
        }
    }

    /// What the file holds now is synced.
    pub fn mark_synced(&self, fid: Fid) {
        let mut synced = self.synced.lock();
        if synced.len() < MAX_TRACKED_FILES {
            synced.insert(fid);
        }
    }

    /// Whether a file whose last commit had this sequence may hold synced bytes.
    pub fn may_have_synced(&self, fid: Fid, seq: u64) -> bool {
        let before = self.first.get().is_none_or(|first| seq < *first);
        let synced = self.synced.lock();
        before && seq > 0 || synced.len() >= MAX_TRACKED_FILES || synced.contains(&fid)
    }

    /// The file is gone.
    pub fn forget(&self, fid: Fid) {
        self.synced.lock().remove(&fid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_run_left_stays_synced_when_a_commit_follows() {
        let synced = SyncedFiles::default();
        let (old, new) = (Fid(1), Fid(2));
        assert!(synced.may_have_synced(old, 7));
        synced.issued(new, 0, 100);
        synced.issued(old, 7, 101);
        assert!(synced.may_have_synced(old, 101));
        assert!(!synced.may_have_synced(new, 100));
        synced.issued(new, 100, 102);
        assert!(!synced.may_have_synced(new, 102));
        synced.mark_synced(new);
        assert!(synced.may_have_synced(new, 102));
        synced.forget(old);
        assert!(!synced.may_have_synced(old, 101));
    }
}
