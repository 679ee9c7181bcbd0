//! Attributes: mode, owner, times.
use super::local::LocalNamespace;
use crate::inodes::without_set_ids;
use crate::{Attr, Caller, Fid, Kind, Lamination, Result, SetAttr, SetTime, Time};
use forebay_storage::Batch;
use rustix::io::Errno;

impl LocalNamespace {
    /// `caller` is not needed for the rules that are left to a server: the kernel has checked who may do this, and cleared
    /// the set-group-id bit where a `chmod` by someone outside the group must.
    pub fn setattr(&self, fid: Fid, set: &SetAttr, _caller: Caller) -> Result<Attr> {
        if set.size.is_some() {
            return Err(Errno::INVAL.into());
        }
        for time in [set.atime, set.mtime].into_iter().flatten() {
            if matches!(
                time,
                SetTime::At(Time {
                    nanos: 1_000_000_000..,
                    ..
                })
            ) {
                return Err(Errno::INVAL.into());
            }
        }
        let _lock = self.inodes.lock(fid);
        let mut inode = self.inodes.get(fid)?;
        if *set == SetAttr::default() {
            return Ok(inode.attr(fid));
        }
        let now = self.now();
        let at = |time| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        if set.uid.is_some() || set.gid.is_some() {
            inode.uid = set.uid.unwrap_or(inode.uid);
            inode.gid = set.gid.unwrap_or(inode.gid);
            if inode.kind != Kind::Dir {
                inode.mode = without_set_ids(inode.mode);
            }
        }
        let mut laminated = false;
        if let Some(mode) = set.mode {
            inode.mode = mode & 0o7777;
            if inode.kind == Kind::File {
                match inode.lamination {
                    // With writers open, the last close laminates.
                    Lamination::None if inode.read_only_mode() && !self.files.writers(fid) => {
                        inode.lamination = Lamination::ByMode;
                        laminated = true;
                    }
                    Lamination::ByMode if !inode.read_only_mode() => {
                        inode.lamination = Lamination::None;
                        inode.seq += 1;
                    }
                    _ => {}
                }
            }
        }
        inode.atime = set.atime.map_or(inode.atime, at);
        inode.mtime = set.mtime.map_or(inode.mtime, at);
        inode.ctime = now;
        let mut batch = Batch::new();
        self.inodes.put(&mut batch, fid, &inode);
        self.apply(batch)?;
        if laminated {
            self.files.laminated(fid, &inode);
        }
        Ok(inode.attr(fid))
    }
}
