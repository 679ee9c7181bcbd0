//! The commit lock of each file: one commit, removal or settling of a file at a time, at its owner.
//!
//! Held while other members are called. So no handler that such a call reaches may take it: `Stage`, `Publish`, `Drop`,
//! `Extents`, `Decision`, `View` and `Remove` never do. It comes before the inode's lock.
use crate::Fid;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;

/// Which files are busy. A lock a file, not a stripe: a commit that waits for a dead member must not stop other files.
#[derive(Default)]
pub(super) struct Busy {
    files: Mutex<HashSet<Fid>>,
    freed: Condvar,
}

/// The lock of one file, until dropped.
pub(super) struct BusyGuard<'a> {
    busy: &'a Busy,
    fid: Fid,
}

impl Busy {
    /// Waits until no one else has the file.
    pub(super) fn lock(&self, fid: Fid) -> BusyGuard<'_> {
        let mut files = self.files.lock();
        while !files.insert(fid) {
            self.freed.wait(&mut files);
        }
        BusyGuard { busy: self, fid }
    }
    /// `None` if someone has it.
    pub(super) fn try_lock(&self, fid: Fid) -> Option<BusyGuard<'_>> {
        let free = self.files.lock().insert(fid);
        free.then_some(BusyGuard { busy: self, fid })
    }
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.busy.files.lock().remove(&self.fid);
        self.busy.freed.notify_all();
    }
}
