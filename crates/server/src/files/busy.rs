//! The commit lock of each file: one commit, removal or settling of a file at a time, at its owner.
//!
//! Held while other members are called. So no handler that such a call reaches may take it: `Stage`, `Publish`, `Drop`,
//! `Extents`, `Survey`, `Decision`, `View` and `Remove` never do. It comes before the inode's lock.
//!
//! Who has it may wait for members that do not answer, a deadline for each. Whoever waits for it gives up when one holder
//! has had it for longer than that; a long queue that moves on is no reason to.
use crate::{Error, Fid, Member, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, hash_map::Entry};
use std::time::{Duration, Instant};

/// Which files are busy, and since when. A lock a file, not a stripe: a commit that waits for a dead member must not stop other files.
#[derive(Default)]
pub(super) struct Busy {
    files: Mutex<HashMap<Fid, Instant>>,
    freed: Condvar,
}

/// The lock of one file, until dropped.
pub(super) struct BusyGuard<'a> {
    busy: &'a Busy,
    fid: Fid,
}

impl Busy {
    /// Waits until no one else has the file.
    ///
    /// # Errors
    /// `Deadline` of this member, `own`, when someone has had it for `limit`. Nothing was done then, but an attempt before
    /// this one may be what holds it.
    pub(super) fn lock(&self, fid: Fid, own: Member, limit: Duration) -> Result<BusyGuard<'_>> {
        let mut files = self.files.lock();
        loop {
            let since = match files.entry(fid) {
                Entry::Vacant(free) => {
                    free.insert(Instant::now());
                    return Ok(BusyGuard { busy: self, fid });
                }
                Entry::Occupied(held) => *held.get(),
            };
            let Some(until) = since.checked_add(limit) else {
                // A deadline too far for the clock is none.
                self.freed.wait(&mut files);
                continue;
            };
            let late = self.freed.wait_until(&mut files, until).timed_out();
            if late && files.get(&fid) == Some(&since) {
                tracing::warn!(
                    fid = fid.0,
                    "a commit or removal of this file has not ended in {limit:?}; is a member dead?"
                );
                return Err(Error::Fabric(forebay_fabric::Error::Deadline {
                    rank: own.into(),
                    after: limit,
                }));
            }
        }
    }
    /// `None` if someone has it.
    pub(super) fn try_lock(&self, fid: Fid) -> Option<BusyGuard<'_>> {
        match self.files.lock().entry(fid) {
            Entry::Vacant(free) => free.insert(Instant::now()),
            Entry::Occupied(_) => return None,
        };
        Some(BusyGuard { busy: self, fid })
    }
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.busy.files.lock().remove(&self.fid);
        self.busy.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn one_that_never_gives_the_file_back_is_not_waited_for_for_ever() {
        let busy = Busy::default();
        let held = busy.lock(Fid(1), 3, LONG).unwrap();
        let other = busy.lock(Fid(2), 3, LONG).unwrap();
        let limit = Duration::from_millis(5);
        let late = busy.lock(Fid(1), 3, limit).err().unwrap();
        assert_eq!(late.errno(), Errno::IO);
        assert!(matches!(
            late,
            Error::Fabric(forebay_fabric::Error::Deadline { rank: 3, .. })
        ));
        assert!(busy.try_lock(Fid(1)).is_none());
        drop(held);
        drop(busy.lock(Fid(1), 3, limit).unwrap());
        drop(other);
        assert!(busy.files.lock().is_empty());
    }

    #[test]
    fn all_get_it_in_the_end() {
        let (busy, inside) = (Busy::default(), Mutex::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _busy = busy.lock(Fid(1), 0, LONG).unwrap();
                        *inside.try_lock().unwrap() += 1;
                    }
                });
            }
        });
        assert_eq!(*inside.lock(), 800);
    }
}
