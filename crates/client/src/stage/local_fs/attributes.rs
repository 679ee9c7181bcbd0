//! Attributes of files in a plain directory: reading them, and setting owners and times as far as the user may.
use crate::stage::endpoint::{ObjectStat, UnkeptAttribute};
use forebay_server::{Kind, Time};
use rustix::fs::{FileType, Gid, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::MetadataExt;

/// What a look tells.
pub fn stat_of(m: &std::fs::Metadata) -> ObjectStat {
    let time = |secs, nanos: i64| Time {
        secs,
        nanos: nanos as u32,
    };
    ObjectStat {
        kind: match FileType::from_raw_mode(m.mode()) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharDevice,
            _ => Kind::BlockDevice,
        },
        mode: m.mode() & 0o7777,
        uid: m.uid(),
        gid: m.gid(),
        nlink: m.nlink(),
        // Linux has 12 bits of major and 20 of minor, which `dev_t` keeps in its lower half.
        rdev: m.rdev() as u32,
        size: m.size(),
        stored: m.blocks().saturating_mul(512),
        atime: time(m.atime(), m.atime_nsec()),
        mtime: time(m.mtime(), m.mtime_nsec()),
        ctime: time(m.ctime(), m.ctime_nsec()),
        id: (m.dev(), m.ino()),
        created: m.created().ok().and_then(|created| {
            let since = created.duration_since(std::time::UNIX_EPOCH).ok()?;
            Some(time(
                since.as_secs() as i64,
                i64::from(since.subsec_nanos()),
            ))
        }),
        xattrs: true,
        attr: None,
    }
}

/// Its times, to set them.
pub fn timestamps(stat: &ObjectStat) -> Timestamps {
    let spec = |t: Time| Timespec {
        tv_sec: t.secs,
        tv_nsec: t.nanos.into(),
    };
    Timestamps {
        last_access: spec(stat.atime),
        last_modification: spec(stat.mtime),
    }
}

/// Tries to give it to the user and group, or at least to the group. `Some`: it could not be done.
pub fn owner(
    set: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
    stat: &ObjectStat,
) -> io::Result<Option<UnkeptAttribute>> {
    let (uid, gid) = (Uid::from_raw(stat.uid), Gid::from_raw(stat.gid));
    match set(Some(uid), Some(gid)) {
        Ok(()) => Ok(None),
        Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP) => {
            let own = rustix::process::geteuid().as_raw() == stat.uid;
            match set(None, Some(gid)) {
                Ok(()) if own => Ok(None),
                _ => Ok(Some(UnkeptAttribute::Owner)),
            }
        }
        Err(e) => Err(e.into()),
    }
}
