//! From the service's nouns to the kernel's: attributes, times, errors; and the guard around every handler.
use crate::protocol::{Errno, FileAttr, FileType, INodeNo, ReplyStatfs, Request};
use forebay_server::{Attr, Caller, Error, Fid, Kind, Result, SpaceTotals, Time};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The unit of free space that is shown, bytes.
const BLOCK_SIZE: u64 = 4096;
/// The longest name, bytes.
const MAX_NAME_LEN: u32 = 255;

/// The inode of the directory of teams, which is no file of the service: nothing in it can be changed. It is numbered as of a
/// member that no service has.
pub(crate) const OWN: INodeNo = INodeNo(u64::MAX - 1);

/// Runs a handler. A failure of the service itself is logged, because `EIO` says too little; a panic costs this one
/// request, not the mount.
pub(crate) fn attempt<T>(
    operation: &'static str,
    ino: INodeNo,
    handler: impl FnOnce() -> Result<T>,
) -> Result<T, Errno> {
    if ino == OWN {
        return Err(match operation.ends_with("xattr") {
            true => Errno::EOPNOTSUPP,
            false => Errno::EPERM,
        });
    }
    match catch_unwind(AssertUnwindSafe(handler)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Error::Posix(e))) => Err(Errno::from_i32(e.raw_os_error())),
        Ok(Err(e)) => {
            tracing::error!(operation, inode = ino.0, error = %e, "a request failed");
            Err(Errno::from_i32(e.errno().raw_os_error()))
        }
        Err(panic) => {
            let what = panic
                .downcast_ref::<&str>()
                .map(|s| (*s).to_string())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            tracing::error!(
                operation,
                inode = ino.0,
                panic = what,
                "a request met a bug in Forebay: please report it"
            );
            Err(Errno::EIO)
        }
    }
}

impl Request {
    /// Who asks.
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            uid: self.uid,
            gid: self.gid,
        }
    }

    /// The file or directory that it is about.
    pub(crate) fn fid(&self) -> Fid {
        fid(self.ino)
    }
}

/// The file behind an inode number: they are the same number.
pub(crate) fn fid(ino: INodeNo) -> Fid {
    Fid(ino.0)
}

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    let time = |time: Time| (time.secs, time.nanos);
    FileAttr {
        ino: INodeNo(attr.fid.0),
        size: attr.size,
        blocks: attr.bytes.div_ceil(512),
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        kind: file_type(attr.kind),
        perm: attr.mode & 0o7777,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: 4096,
    }
}

/// What the kernel is told about a name that does not exist: inode 0.
pub(crate) fn negative() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: (0, 0),
        mtime: (0, 0),
        ctime: (0, 0),
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
    }
}

/// What `statfs` shows.
pub(crate) fn room(reply: ReplyStatfs, s: SpaceTotals) {
    let (blocks, free) = (s.total / BLOCK_SIZE, s.free / BLOCK_SIZE);
    // Files need no room of their own kind: as many as there are free blocks may follow.
    let files = s.files.saturating_add(free);
    reply.statfs(blocks, free, files, free, BLOCK_SIZE as u32, MAX_NAME_LEN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_failed_request() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let answer = attempt("test", INodeNo(1), || -> Result<()> { panic!("boom") });
        std::panic::set_hook(hook);
        assert_eq!(answer.unwrap_err().code(), libc::EIO);
    }

    #[test]
    fn outcomes_keep_their_number() {
        let answer = attempt("test", INodeNo(1), || -> Result<()> {
            Err(rustix::io::Errno::NOTEMPTY.into())
        });
        assert_eq!(answer.unwrap_err().code(), libc::ENOTEMPTY);
        let answer = attempt("test", INodeNo(1), || -> Result<()> {
            Err(Error::Corrupt("x".into()))
        });
        assert_eq!(answer.unwrap_err().code(), libc::EIO);
    }
}
