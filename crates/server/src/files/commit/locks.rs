//! The commit lock of each file: one commit, removal or publishing of a file at a time, at its owner.
//!
//! Held while other members are called. So no handler that such a call reaches may take it: `StageChanges`, `PublishStaged`,
//! `DropStaged`, `GetExtents`, `SurveyFiles`, `GetDecision`, `GetView` and `RemoveSlices` never do. It comes first of all locks
//! (see `files`).
//!
//! Its holder may wait for members that do not answer, for one deadline each. A waiter gives up when one holder has had the
//! lock for longer than that; a long queue of quick holders is no reason to give up.
use crate::{Error, Fid, Member, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, hash_map::Entry};
use std::time::{Duration, Instant};

/// Which files are locked, and since when. A lock a file, not a stripe: a commit that waits for a dead member must not stop other files.
pub(in super::super) struct CommitLocks {
    files: Mutex<HashMap<Fid, Instant>>,
    unlocked: Condvar,
    own: Member,
    limit: Duration,
}

/// The lock of one file, until dropped.
pub(in super::super) struct CommitLock<'a> {
    locks: &'a CommitLocks,
    fid: Fid,
}

impl CommitLocks {
    /// Of member `own`. `limit`: how long one holder may have a file.
    pub fn new(own: Member, limit: Duration) -> CommitLocks {
        CommitLocks {
            files: Mutex::default(),
            unlocked: Condvar::new(),
            own,
            limit,
        }
    }

    /// Waits until no one else has the file.
    ///
    /// # Errors
    /// `Deadline` of this member when someone has had it for the limit. Nothing was done then, but an attempt before
    /// this one may be what holds it.
    pub fn lock(&self, fid: Fid) -> Result<CommitLock<'_>> {
        let limit = self.limit;
        let mut files = self.files.lock();
        loop {
            let since = match files.entry(fid) {
                Entry::Vacant(free) => {
                    free.insert(Instant::now());
                    return Ok(CommitLock { locks: self, fid });
                }
                Entry::Occupied(held) => *held.get(),
            };
            let Some(until) = since.checked_add(limit) else {
                // A deadline too far for the clock is none.
                self.unlocked.wait(&mut files);
                continue;
            };
            let late = self.unlocked.wait_until(&mut files, until).timed_out();
            if late && files.get(&fid) == Some(&since) {
                tracing::warn!(
                    fid = fid.0,
                    "a commit or removal of this file has not ended in {limit:?}; is a member dead?"
                );
                return Err(Error::Fabric(forebay_fabric::Error::Deadline {
                    rank: self.own.into(),
                    after: limit,
                }));
            }
        }
    }
    /// `None` if someone has it.
    pub fn try_lock(&self, fid: Fid) -> Option<CommitLock<'_>> {
        match self.files.lock().entry(fid) {
            Entry::Vacant(free) => free.insert(Instant::now()),
            Entry::Occupied(_) => return None,
        };
        Some(CommitLock { locks: self, fid })
    }
}

impl Drop for CommitLock<'_> {
    fn drop(&mut self) {
        self.locks.files.lock().remove(&self.fid);
        self.locks.unlocked.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn one_that_never_gives_the_file_back_is_not_waited_for_for_ever() {
        let locks = CommitLocks::new(3, Duration::from_millis(5));
        let held = locks.lock(Fid(1)).unwrap();
        let other = locks.lock(Fid(2)).unwrap();
        let late = locks.lock(Fid(1)).err().unwrap();
        assert_eq!(late.errno(), Errno::IO);
        assert!(matches!(
            late,
            Error::Fabric(forebay_fabric::Error::Deadline { rank: 3, .. })
        ));
        assert!(locks.try_lock(Fid(1)).is_none());
        drop(held);
        drop(locks.lock(Fid(1)).unwrap());
        drop(other);
        assert!(locks.files.lock().is_empty());
    }

    #[test]
    fn all_get_it_in_the_end() {
        let (locks, inside) = (CommitLocks::new(0, LONG), Mutex::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _commit = locks.lock(Fid(1)).unwrap();
                        *inside.try_lock().unwrap() += 1;
                    }
                });
            }
        });
        assert_eq!(*inside.lock(), 800);
    }
}
