//! From the service's nouns to the kernel's: attributes, times, errors; and the guard around every handler.
use forebay_server::{Attr, Error, Fid, Kind, Result, Time};
use fuser::{Errno, FileAttr, FileType, INodeNo};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

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
    let ctime = system_time(attr.ctime);
    FileAttr {
        ino: INodeNo(attr.fid.0),
        size: attr.size,
        blocks: attr.bytes.div_ceil(512),
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime,
        crtime: ctime,
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: 4096,
        flags: 0,
    }
}

/// What the kernel is told about a name that does not exist: inode 0.
pub(crate) fn negative() -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Any stored time; one that the clock type cannot hold becomes the epoch.
fn system_time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let base = if time.secs < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    base.and_then(|t| t.checked_add(Duration::from_nanos(u64::from(time.nanos))))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A time as `fuser` decodes it from a request.
///
/// `fuser` 0.18 turns `(secs, nanos)` with negative seconds into `epoch - (|secs| + nanos)`, which is not the moment the
/// caller named; the pair itself survives, and is taken back here.
pub(crate) fn time(decoded: SystemTime) -> Time {
    match decoded.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(d) => Time {
            secs: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            nanos: d.subsec_nanos(),
        },
        Err(before) => {
            let d = before.duration();
            Time {
                secs: 0i64.saturating_sub_unsigned(d.as_secs()),
                nanos: d.subsec_nanos(),
            }
        }
    }
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

    #[test]
    fn extreme_times_pass() {
        for secs in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
            for nanos in [0, 1, 999_999_999] {
                let _ = system_time(Time { secs, nanos });
            }
        }
        let decoded = SystemTime::UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(
            time(decoded),
            Time {
                secs: -2,
                nanos: 800_000_000
            }
        );
        let decoded = SystemTime::UNIX_EPOCH + Duration::new(7, 5);
        assert_eq!(time(decoded), Time { secs: 7, nanos: 5 });
    }
}
