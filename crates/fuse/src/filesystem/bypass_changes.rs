//! Changes of files around the mount that its kernel has not been told of yet (`bypass`).
use super::in_flight_inodes::InFlightInodes;
use forebay_server::Fid;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// See the head of this file. Shared by threads.
#[derive(Default)]
pub(crate) struct BypassChanges {
    /// Files that a reply on its way to the kernel may contain.
    pub(super) in_flight: Arc<InFlightInodes>,
    /// Files whose refresh is put off until no handle of the mount writes to them.
    put_off: Mutex<HashSet<Fid>>,
}

impl BypassChanges {
    /// Puts off the refresh of a file to the last close of a handle that writes to it.
    pub fn defer_refresh(&self, fid: Fid) {
        self.put_off.lock().insert(fid);
    }

    /// Whether the file was put off; afterwards it is not.
    pub fn take_deferred(&self, fid: Fid) -> bool {
        self.put_off.lock().remove(&fid)
    }
}
