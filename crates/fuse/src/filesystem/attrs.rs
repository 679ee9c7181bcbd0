//! Changing attributes, with the rules for set-id bits that the kernel leaves to the file system.
use super::file_handle::{DIRECT, handle, has};
use crate::protocol::SetAttrRequest;
use forebay_server::delegate::Delegate;
use forebay_server::proto::Inode;
use forebay_server::{Attr, Caller, Fid, Kind, Result, SetAttr, SetTime, without_set_ids};
use rustix::io::Errno;

/// Root, who may keep set-id bits.
pub(super) const ROOT: Caller = Caller { uid: 0, gid: 0 };

/// As whom the delegate sees a change of content: it takes set-id bits off files that others than root change. Root may lack the
/// right to keep them too, and others may have it; only the kernel knows.
pub(super) fn privileged_unless(kills_set_ids: bool, caller: Caller) -> Caller {
    match kills_set_ids {
        true => Caller {
            uid: caller.uid.max(1),
            ..caller
        },
        false => ROOT,
    }
}

/// Changes what `change` names: the size first, then the rest. `timed`: a new size without a time does not change the time.
pub(super) fn change(
    delegate: &Delegate,
    fid: Fid,
    change: SetAttrRequest,
    timed: bool,
    caller: Caller,
) -> Result<Attr> {
    let (mut set, mut through) = (change.set, change.fh.map(handle));
    if let Some(size) = set.size.take() {
        let by = privileged_unless(change.kills_set_ids, caller);
        let attr = match timed && set.mtime.is_none() {
            true => {
                let calls = &delegate.write_back;
                calls.truncate(fid, size, through.take(), by)?;
                delegate.names.getattr(fid)?
            }
            false => {
                let cut = SetAttr {
                    size: Some(size),
                    mtime: set.mtime.take(),
                    ..SetAttr::default()
                };
                delegate.names.setattr(fid, &cut, through.take(), by)?
            }
        };
        if set == SetAttr::default() {
            return Ok(attr);
        }
    }
    // That a new owner takes the set-id bits off is the service's own rule.
    delegate.names.setattr(fid, &set, through, caller)
}

/// Takes the time of a file that the kernel hands over (see [`SetAttrRequest::hands_over_time`]), and answers the attributes. `None`: a
/// file that is not open for writing gets another time; a program may have asked for that.
pub(super) fn take_time(
    delegate: &Delegate,
    fid: Fid,
    change: &SetAttrRequest,
) -> Result<Option<Attr>> {
    let Some(SetTime::At(mtime)) = change.set.mtime else {
        return Ok(None);
    };
    if let Some(fh) = change.fh {
        // Of writes past its page cache the kernel knows no time: this node has it.
        let past_cache = match has(fh, DIRECT) {
            true => Some(delegate.names.getattr(fid)?).filter(|attr| attr.mtime > mtime),
            false => None,
        };
        let taken = match past_cache {
            Some(attr) => Ok(attr),
            None => delegate.write_back.set_kernel_mtime(handle(fh), mtime),
        };
        return taken.map(Some);
    }
    match delegate.names.getattr(fid) {
        // It was linked, renamed or removed, which is news of the time of change alone, and the service has its own of that.
        Ok(attr) => Ok((attr.mtime == mtime).then_some(attr)),
        // Removed for good. The kernel looks at nothing in the answer, but would tell a program of an error.
        Err(e) if e.errno() == Errno::STALE => {
            let gone = Inode::new(Kind::File, 0, 0, 0, mtime);
            Ok(Some(gone.attr(fid)))
        }
        Err(e) => Err(e),
    }
}

/// Takes the set-id bits off a file that someone without the right to keep them has changed.
pub(super) fn drop_set_ids(delegate: &Delegate, attr: &Attr) -> Result<()> {
    let Some(mode) = mode_left(attr) else {
        return Ok(());
    };
    let set = SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    };
    // The right to write gives the right to this, whoever owns the file.
    delegate.names.setattr(attr.fid, &set, None, ROOT).map(drop)
}

/// The mode a file has left after a change by another: no set-uid bit, and no set-gid bit where the group may run it.
/// `None` if that changes nothing.
fn mode_left(attr: &Attr) -> Option<u32> {
    if attr.kind == Kind::Dir {
        return None;
    }
    Some(without_set_ids(attr.mode)).filter(|mode| *mode != attr.mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_server::Time;

    #[test]
    fn set_ids_go_but_mandatory_locking_and_directories_keep_theirs() {
        let mut attr = Inode::new(Kind::File, 0o6755, 1, 1, Time::default()).attr(Fid(2));
        assert_eq!(mode_left(&attr), Some(0o755));
        attr.mode = 0o2644;
        assert_eq!(mode_left(&attr), None);
        attr.mode = 0o644;
        assert_eq!(mode_left(&attr), None);
        attr.mode = 0o2755;
        attr.kind = Kind::Dir;
        assert_eq!(mode_left(&attr), None);
    }
}
