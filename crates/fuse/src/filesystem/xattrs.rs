//! Extended attributes: the stored ones; `security.capability` and others that the kernel asks for and a mount does not have; and
//! the computed `user.forebay.laminated` and `user.forebay.extents`.
use crate::protocol::XattrAnswer;
use forebay_server::delegate::Delegate;
use forebay_server::{Caller, Fid, Lamination, Result};
use rustix::io::Errno;
use std::time::Duration;

/// Shows `none`, `soft` or `hard`; set to `1` by the owner it laminates. Not listed, so that copying a file does not
/// laminate the copy.
const LAMINATED: &[u8] = b"user.forebay.laminated";
/// Where the committed bytes of a file are, as JSON. Not listed, and it cannot be set.
const EXTENTS: &[u8] = b"user.forebay.extents";
/// File capabilities mean nothing on a mount that is always `nosuid`. The kernel asks for this one before writes, so it is
/// answered here.
const CAPABILITY: &[u8] = b"security.capability";

/// The kernel tells of the end of a handle a moment after its close has returned, so a file that was just closed still counts
/// as open. Laminating waits about as long as this before it says `EBUSY`. It asks again meanwhile: the handle may be another
/// node's, and the owner of the file, who hears of the last close, tells nobody.
const LAMINATE_CLOSE_WAIT: Duration = Duration::from_millis(300);

fn sized(value: Vec<u8>, size: u32) -> Result<XattrAnswer> {
    match size {
        0 => Ok(XattrAnswer::Size(value.len() as u32)),
        size if value.len() > size as usize => Err(Errno::RANGE.into()),
        _ => Ok(XattrAnswer::Value(value)),
    }
}

/// Access control lists are not kept; saying so is better than keeping a list nobody obeys.
fn unsupported(name: &[u8]) -> bool {
    name.starts_with(b"system.")
}

pub(super) fn get(delegate: &Delegate, fid: Fid, name: &[u8], size: u32) -> Result<XattrAnswer> {
    let value = match name {
        CAPABILITY => return Err(Errno::NODATA.into()),
        LAMINATED => match delegate.names.getattr(fid)?.lamination {
            Lamination::None => "none".into(),
            Lamination::ByMode => "soft".into(),
            Lamination::Permanent => "hard".into(),
        },
        EXTENTS => serde_json::to_vec(&delegate.locator.describe(fid)?).map_err(|_| Errno::IO)?,
        name if unsupported(name) => return Err(Errno::OPNOTSUPP.into()),
        name => delegate.names.getxattr(fid, name)?,
    };
    sized(value, size)
}

pub(super) fn set(
    delegate: &Delegate,
    fid: Fid,
    name: &[u8],
    value: &[u8],
    flags: i32,
    caller: Caller,
) -> Result<()> {
    if name == CAPABILITY || name == EXTENTS || unsupported(name) {
        return Err(Errno::OPNOTSUPP.into());
    }
    if name == LAMINATED {
        if value != b"1" {
            return Err(Errno::INVAL.into());
        }
        if caller.uid != 0 && caller.uid != delegate.names.getattr(fid)?.uid {
            return Err(Errno::PERM.into());
        }
        return laminate(delegate, fid);
    }
    let create = flags & libc::XATTR_CREATE != 0;
    let replace = flags & libc::XATTR_REPLACE != 0;
    delegate.names.setxattr(fid, name, value, create, replace)
}

fn laminate(delegate: &Delegate, fid: Fid) -> Result<()> {
    let mut pause = Duration::from_millis(1);
    loop {
        match delegate.names.laminate(fid) {
            Err(e) if e.errno() == Errno::BUSY && pause < LAMINATE_CLOSE_WAIT => {
                std::thread::sleep(pause);
                pause *= 2;
            }
            done => return done,
        }
    }
}

pub(super) fn list(delegate: &Delegate, fid: Fid, size: u32) -> Result<XattrAnswer> {
    let mut list = Vec::new();
    for name in delegate.names.listxattr(fid)? {
        list.extend_from_slice(&name);
        list.push(0);
    }
    sized(list, size)
}

pub(super) fn remove(delegate: &Delegate, fid: Fid, name: &[u8]) -> Result<()> {
    match name {
        // For ever is for ever.
        LAMINATED => Err(Errno::PERM.into()),
        CAPABILITY | EXTENTS => Err(Errno::NODATA.into()),
        name if unsupported(name) => Err(Errno::OPNOTSUPP.into()),
        name => delegate.names.removexattr(fid, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_answers_to_a_size() {
        assert_eq!(sized(b"abc".to_vec(), 0).unwrap(), XattrAnswer::Size(3));
        assert_eq!(
            sized(b"abc".to_vec(), 3).unwrap(),
            XattrAnswer::Value(b"abc".to_vec())
        );
        assert_eq!(sized(b"abc".to_vec(), 2).unwrap_err().errno(), Errno::RANGE);
    }
}
