//! Changing attributes, with the rules for set-id bits that the kernel leaves to the file system.
use super::Filesystem;
use super::files::{self, privileged_unless};
use crate::protocol::{SetAttrRequest, TimeOrNow};
use forebay_server::{Attr, Caller, Fid, Kind, Result, SetAttr, SetTime, Time};

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_RUNS: u32 = 0o0010;

impl Filesystem {
    pub(super) fn set_attributes(
        &self,
        fid: Fid,
        change: SetAttrRequest,
        caller: Caller,
    ) -> Result<Attr> {
        let handle = change.fh.map(files::handle);
        if change.size.is_some() {
            let cut = SetAttr {
                size: change.size,
                ..SetAttr::default()
            };
            let by = privileged_unless(change.kills_set_ids, caller);
            let attr = self.delegate.names.setattr(fid, &cut, handle, by)?;
            let only_size = SetAttrRequest {
                size: None,
                fh: None,
                kills_set_ids: false,
                ..change
            };
            return match only_size.changes_nothing() {
                true => Ok(attr),
                false => self.set_attributes(fid, only_size, caller),
            };
        }
        let mut set = SetAttr {
            mode: change.mode.map(|m| m & 0o7777),
            uid: change.uid,
            gid: change.gid,
            size: None,
            atime: change.atime.map(set_time),
            mtime: change.mtime.map(set_time),
        };
        let chown = set.uid.is_some() || set.gid.is_some();
        if set.mode.is_none() && chown {
            let attr = self.delegate.names.getattr(fid)?;
            set.mode = without_set_ids(&attr);
        }
        self.delegate.names.setattr(fid, &set, handle, caller)
    }

    /// Takes the set-id bits off a file that someone without the right to keep them has changed.
    pub(super) fn drop_set_ids(&self, attr: &Attr) -> Result<()> {
        let Some(mode) = without_set_ids(attr) else {
            return Ok(());
        };
        let set = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        // The right to write gives the right to this, whoever owns the file.
        self.delegate
            .names
            .setattr(attr.fid, &set, None, Caller { uid: 0, gid: 0 })?;
        Ok(())
    }
}

/// The mode a file has left after a change by another: no set-uid bit, and no set-gid bit where the group may run it.
/// `None` if that changes nothing.
fn without_set_ids(attr: &Attr) -> Option<u32> {
    if attr.kind == Kind::Dir {
        return None;
    }
    let mut mode = attr.mode & !SET_UID;
    if mode & GROUP_RUNS != 0 {
        mode &= !SET_GID;
    }
    (mode != attr.mode).then_some(mode)
}

fn set_time(to: TimeOrNow) -> SetTime {
    match to {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::At(secs, nanos) => SetTime::At(Time { secs, nanos }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_server::{ExtentLayout, Lamination};

    #[test]
    fn set_ids_go_but_mandatory_locking_and_directories_keep_theirs() {
        let mut attr = Attr {
            fid: Fid(2),
            kind: Kind::File,
            mode: 0o6755,
            uid: 1,
            gid: 1,
            nlink: 1,
            rdev: 0,
            size: 0,
            bytes: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            generation: 0,
            lamination: Lamination::None,
            layout: ExtentLayout::Fresh,
        };
        assert_eq!(without_set_ids(&attr), Some(0o755));
        attr.mode = 0o2644;
        assert_eq!(without_set_ids(&attr), None);
        attr.mode = 0o644;
        assert_eq!(without_set_ids(&attr), None);
        attr.mode = 0o2755;
        attr.kind = Kind::Dir;
        assert_eq!(without_set_ids(&attr), None);
    }
}
