//! Attributes of files, and room, as C sees them.
use forebay_client::{Kind, Lamination, Metadata};
use std::time::SystemTime;

/// The attributes of a file at one moment.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// The file's number, never used again for another file.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Bytes that it takes; holes take none.
    pub stored: u64,
    /// Grows with every published change of the content: equal generations mean equal content.
    pub generation: u64,
    /// What it is, and permissions, as st_mode of <sys/stat.h>.
    pub mode: u32,
    /// Names that it has.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// 1 if it is read-only for ever.
    pub laminated: u32,
    /// Nanoseconds of the times below.
    pub atime_nsec: u32,
    /// As atime_nsec.
    pub mtime_nsec: u32,
    /// As atime_nsec.
    pub ctime_nsec: u32,
    /// Last access, as far as it is kept; seconds since 1970.
    pub atime: i64,
    /// Last change of the content.
    pub mtime: i64,
    /// Last change of content or attributes.
    pub ctime: i64,
}

/// Room of the whole service, in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// In all.
    pub total: u64,
    /// What is left.
    pub free: u64,
}

/// Type bits of st_mode.
pub(crate) fn type_bits(kind: Kind) -> u32 {
    match kind {
        Kind::File => libc::S_IFREG,
        Kind::Dir => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
        Kind::CharDevice => libc::S_IFCHR,
        Kind::BlockDevice => libc::S_IFBLK,
    }
}

impl From<Metadata> for Stat {
    fn from(found: Metadata) -> Stat {
        let (atime, atime_nsec) = since_epoch(found.accessed());
        let (mtime, mtime_nsec) = since_epoch(found.modified());
        let (ctime, ctime_nsec) = since_epoch(found.changed());
        Stat {
            ino: found.ino(),
            size: found.len(),
            stored: found.stored(),
            generation: found.generation(),
            mode: type_bits(found.kind()) | found.mode(),
            nlink: found.nlink(),
            uid: found.uid(),
            gid: found.gid(),
            laminated: u32::from(found.lamination() == Lamination::Permanent),
            atime_nsec,
            mtime_nsec,
            ctime_nsec,
            atime,
            mtime,
            ctime,
        }
    }
}

/// Whole seconds, rounded down, and the nanoseconds above them; zeros for a time that cannot be told.
fn since_epoch(time: Option<SystemTime>) -> (i64, u32) {
    let Some(time) = time else {
        return (0, 0);
    };
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-(before.as_secs() as i64), 0),
                nanos => (-(before.as_secs() as i64) - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_1970_round_down() {
        let before = |d| SystemTime::UNIX_EPOCH.checked_sub(d);
        assert_eq!(
            since_epoch(before(Duration::from_millis(1200))),
            (-2, 800_000_000)
        );
        assert_eq!(since_epoch(before(Duration::from_secs(3))), (-3, 0));
        let after = SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(7));
        assert_eq!(since_epoch(after), (0, 7));
    }
}
