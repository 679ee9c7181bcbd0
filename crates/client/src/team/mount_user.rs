//! The user of a process that asks through a mount, and what the modes of files permit it.
//!
//! The kernel checks permissions before most requests, but not for an `ioctl`; so the root of a team's call checks them.
//!
//! # Invariants
//! - What is refused here, the kernel would refuse a process of this user. Root may do everything.
use crate::path::{EnterCheck, PathWalk, walk_by};
use forebay_server::{Attr, Caller, Delegate, Fid, Result};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One that may not do everything.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct MountUser {
    uid: u32,
    gid: u32,
    /// The others that it is in.
    groups: Vec<u32>,
}

/// Bits of a mode, as for others: to write.
pub(super) const WRITE: u32 = 2;
/// To look a name up in a directory.
const SEARCH: u32 = 1;

impl MountUser {
    /// `None` for root.
    pub fn new(caller: Caller, groups: Vec<u32>) -> Option<MountUser> {
        let Caller { uid, gid } = caller;
        (uid != 0).then_some(MountUser { uid, gid, groups })
    }

    /// Only the first class that the user is in counts, as in Linux.
    fn may(&self, attr: &Attr, bits: u32) -> bool {
        let of_group = self.gid == attr.gid || self.groups.contains(&attr.gid);
        let given = match (self.uid == attr.uid, of_group) {
            (true, _) => attr.mode >> 6,
            (false, true) => attr.mode >> 3,
            (false, false) => attr.mode,
        };
        given & bits == bits
    }
}

/// Whether all of these may.
///
/// # Errors
/// `EACCES`.
pub(super) fn permit(users: &[MountUser], attr: &Attr, bits: u32) -> Result<()> {
    match users.iter().all(|user| user.may(attr, bits)) {
        true => Ok(()),
        false => Err(Errno::ACCESS.into()),
    }
}

/// Whether all of these may make a name in a directory.
///
/// # Errors
/// `EACCES`; those of a look at the directory.
pub(super) fn permit_entry(users: &[MountUser], delegate: &Delegate, parent: Fid) -> Result<()> {
    match users.is_empty() {
        true => Ok(()),
        false => permit(users, &delegate.names.getattr(parent)?, WRITE | SEARCH),
    }
}

/// A walk that all of these may go.
///
/// # Errors
/// `EACCES`; those of the walk.
pub(super) fn walk(
    users: &[MountUser],
    delegate: &Delegate,
    path: &Path,
    follow: bool,
) -> Result<PathWalk> {
    let enter = |attr: &Attr| permit(users, attr, SEARCH);
    let enter: EnterCheck<'_> = &enter;
    walk_by(delegate, path, follow, (!users.is_empty()).then_some(enter))
}
