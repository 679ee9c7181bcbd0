//! Attributes between the system calls and FUSE.
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use std::time::{Duration, SystemTime};

/// What `stat` said, as FUSE wants it.
pub fn file_attr(ino: INodeNo, s: &Stat) -> FileAttr {
    FileAttr {
        ino,
        size: s.st_size as u64,
        blocks: s.st_blocks as u64,
        atime: time(s.st_atime, s.st_atime_nsec),
        mtime: time(s.st_mtime, s.st_mtime_nsec),
        ctime: time(s.st_ctime, s.st_ctime_nsec),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(rustix::fs::FileType::from_raw_mode(s.st_mode)),
        perm: (s.st_mode & 0o7777) as u16,
        nlink: s.st_nlink as u32,
        uid: s.st_uid,
        gid: s.st_gid,
        rdev: s.st_rdev as u32,
        blksize: s.st_blksize as u32,
        flags: 0,
    }
}

fn time(secs: i64, nanos: u64) -> SystemTime {
    let whole = Duration::from_secs(secs.unsigned_abs());
    let time = match secs < 0 {
        true => SystemTime::UNIX_EPOCH - whole,
        false => SystemTime::UNIX_EPOCH + whole,
    };
    time + Duration::from_nanos(nanos)
}

/// The kind of a file.
pub fn kind(of: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as F;
    match of {
        F::Directory => FileType::Directory,
        F::Symlink => FileType::Symlink,
        F::Fifo => FileType::NamedPipe,
        F::Socket => FileType::Socket,
        F::CharacterDevice => FileType::CharDevice,
        F::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// Times to set.
pub fn timestamps(atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>) -> Timestamps {
    let spec = |t: Option<TimeOrNow>| match t {
        None => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        Some(TimeOrNow::Now) => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        },
        Some(TimeOrNow::SpecificTime(t)) => {
            let d = t.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Timespec {
                tv_sec: d.as_secs() as i64,
                tv_nsec: d.subsec_nanos().into(),
            }
        }
    };
    Timestamps {
        last_access: spec(atime),
        last_modification: spec(mtime),
    }
}
