//! The nouns every part shares: fids, attributes, callers, open flags.
use serde::{Deserialize, Serialize};

/// A store's permanent number in its service.
pub type Member = u16;

/// A 64-bit file id: the attribute owner's member number (16 bits), then a counter (48 bits). Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fid(pub u64);

impl Fid {
    /// The root directory: member 0's first fid, and FUSE's root inode number.
    pub const ROOT: Fid = Fid(1);
    pub fn new(owner: Member, counter: u64) -> Fid { Fid((u64::from(owner) << 48) | counter) }
    pub fn owner(self) -> Member { (self.0 >> 48) as Member }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind { File, Dir, Symlink, Fifo, Socket }

/// A time: seconds since 1970 (may be negative) and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Time { pub secs: i64, pub nanos: u32 }

impl Time {
    pub fn now() -> Time {
        let d = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Time { secs: d.as_secs() as i64, nanos: d.subsec_nanos() }
    }
}

/// Whether a file is read-only for ever, and by whose word (design section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lamination { None, Soft, Hard }

/// What `stat` shows. `size` and `bytes` (stored) in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    pub fid: Fid,
    pub kind: Kind,
    /// Permission bits and set-id bits (0o7777).
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub size: u64,
    pub bytes: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// Grows with every published change of the content; equal generations mean equal content.
    pub generation: u64,
    pub lamination: Lamination,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime { Now, At(Time) }

/// What `setattr` changes; `size` is handled by the delegate (it is a commit), never by `meta`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
}

/// Who asks. The kernel has already checked permissions on the mount; this decides ownership of new files and the
/// rules that name the owner (sticky directories, clearing set-id bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller { pub uid: u32, pub gid: u32 }

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OpenFlags { pub read: bool, pub write: bool, pub append: bool, pub truncate: bool }

/// One entry of a directory listing. `cookie`: continue after this entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry { pub name: Vec<u8>, pub fid: Fid, pub kind: Kind }

/// Flags of `rename`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RenameFlags { pub no_replace: bool, pub exchange: bool }

/// What a new inode is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewNode { pub kind: Kind, pub mode: u32, pub rdev: u32, pub target: Vec<u8> }

/// Totals for `statfs`, in bytes and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Space { pub total: u64, pub free: u64, pub files: u64 }
