//! Attributes: mode, owner, times.
use super::local::LocalNamespace;
use crate::inodes::without_set_ids;
use crate::{Attr, Caller, Fid, Kind, Lamination, Result, SetAttr, SetTime, Time};
use forebay_storage::Batch;
use rustix::io::Errno;
use std::time::Duration;

/// What changes nothing but the time of the last change is not written if that is so new: the clocks of other file systems tick as
/// slowly. Who unpacks an archive sets an owner that is the same mostly.
const CTIME_TICK: Duration = Duration::from_millis(4);

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
        let before = inode.clone();
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
        if inode == before && is_within_tick(before.ctime, now) {
            return Ok(inode.attr(fid));
        }
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

/// Whether `now` is not before `time`, and less than a tick after it.
fn is_within_tick(time: Time, now: Time) -> bool {
    let nanos = |t: Time| i128::from(t.secs) * 1_000_000_000 + i128::from(t.nanos);
    (0..CTIME_TICK.as_nanos() as i128).contains(&(nanos(now) - nanos(time)))
}
