//! Attributes of files, and room, as C sees them.
use forebay_client::{Lamination, Metadata};

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

impl From<Metadata> for Stat {
    fn from(found: Metadata) -> Stat {
        let (atime, mtime, ctime) = (found.atime(), found.mtime(), found.ctime());
        Stat {
            ino: found.ino(),
            size: found.len(),
            stored: found.stored(),
            generation: found.generation(),
            mode: found.kind().mode_bits() | found.mode(),
            nlink: found.nlink(),
            uid: found.uid(),
            gid: found.gid(),
            laminated: u32::from(found.lamination() == Lamination::Permanent),
            atime_nsec: atime.nanos,
            mtime_nsec: mtime.nanos,
            ctime_nsec: ctime.nanos,
            atime: atime.secs,
            mtime: mtime.secs,
            ctime: ctime.secs,
        }
    }
}
