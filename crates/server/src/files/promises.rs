//! Which files an fsync may have promised something of: those that had one in this run, or had content before it.
//!
//! A new file, as a checkpoint that many nodes write, is none of them: its commits need not care what a power cut leaves of it.
use crate::Fid;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::OnceLock;

/// With more files than that, all count as promised.
const MOST: usize = 1 << 16;

/// See the head of this file.
#[derive(Default)]
pub(super) struct Promises {
    /// The first sequence of this run.
    first: OnceLock<u64>,
    synced: Mutex<HashSet<Fid>>,
}

impl Promises {
    /// A commit of the file gets a sequence of this run; the last one of the file had `last`. If that was before this run, what
    /// the file holds stays promised: its next commits are of this run.
    pub fn issued(&self, fid: Fid, last: u64, seq: u64) {
        let first = *self.first.get_or_init(|| seq);
        if (1..first).contains(&last) {
            self.promise(fid);
        }
    }

    /// What the file holds now is promised.
    pub fn promise(&self, fid: Fid) {
        let mut synced = self.synced.lock();
        if synced.len() < MOST {
            synced.insert(fid);
        }
    }

    /// Whether something may be promised of a file whose last commit had this sequence.
    pub fn may_be(&self, fid: Fid, seq: u64) -> bool {
        let before = self.first.get().is_none_or(|first| seq < *first);
        let synced = self.synced.lock();
        before && seq > 0 || synced.len() >= MOST || synced.contains(&fid)
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
    fn what_an_earlier_run_left_stays_promised_when_a_commit_follows() {
        let promises = Promises::default();
        let (old, new) = (Fid(1), Fid(2));
        assert!(promises.may_be(old, 7));
        promises.issued(new, 0, 100);
        promises.issued(old, 7, 101);
        assert!(promises.may_be(old, 101));
        assert!(!promises.may_be(new, 100));
        promises.issued(new, 100, 102);
        assert!(!promises.may_be(new, 102));
        promises.promise(new);
        assert!(promises.may_be(new, 102));
        promises.forget(old);
        assert!(!promises.may_be(old, 101));
    }
}
