//! Attributes of files, shared by all parts, and the argument types of operations: open flags, changes of attributes, new inodes.
use crate::{Fid, hint_text};
use forebay_codec::CodecHint;
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// What an inode is. The order is that of their numbers in stores and messages: new ones come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    /// Whether it is a device file.
    pub fn is_device(self) -> bool {
        matches!(self, Kind::CharDevice | Kind::BlockDevice)
    }

    /// The bits that `st_mode` of `stat` has for it, above the permissions.
    pub fn mode_bits(self) -> u32 {
        let kind = match self {
            Kind::File => FileType::RegularFile,
            Kind::Dir => FileType::Directory,
            Kind::Symlink => FileType::Symlink,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::CharDevice => FileType::CharacterDevice,
            Kind::BlockDevice => FileType::BlockDevice,
        };
        kind.as_raw_mode()
    }
}

/// A time: seconds since 1970 (may be negative) and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Time {
    /// Whole seconds since 1970, rounded down.
    pub secs: i64,
    /// Nanoseconds after that, below 10^9.
    pub nanos: u32,
}

impl Time {
    /// The clock's time.
    pub fn now() -> Time {
        SystemTime::now().into()
    }

    /// The time as the kernel takes it for files: that of its last tick, some milliseconds ago at most.
    pub fn last_tick() -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        Time {
            secs: now.tv_sec,
            nanos: now.tv_nsec as u32,
        }
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Time {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(d) => Time {
                secs: d.as_secs() as i64,
                nanos: d.subsec_nanos(),
            },
            Err(e) => {
                let d = e.duration();
                let up = i64::from(d.subsec_nanos() > 0);
                Time {
                    secs: -(d.as_secs() as i64) - up,
                    nanos: (1_000_000_000 - d.subsec_nanos()) % 1_000_000_000,
                }
            }
        }
    }
}

/// Whether a file is laminated (read-only), and by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lamination {
    /// It may be written.
    None,
    /// Its last write bit is gone; `chmod +w` ends it.
    ByMode,
    /// By `forebay laminate`: for ever.
    Permanent,
}

/// Where the extents of a file are kept. Only the file's owner changes it, in the batch of a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtentLayout {
    /// Extents, if there are any, lie with the owner, in its slices: no other member was ever given a part, and a cut needs none
    /// there. A commit with staged parts makes it `BySlice`, one with patterns `Patterned`.
    #[default]
    OwnerOnly,
    /// Extents lie with the members of their slices. For ever.
    BySlice,
    /// Everything lies with the owner: patterns, and extents of any slice. So no commit has staged parts. A truncate to 0 that
    /// leaves nothing makes it `OwnerOnly`.
    Patterned,
}

/// What `stat` shows. `size` and `bytes` (stored) in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Which inode.
    pub fid: Fid,
    /// What it is.
    pub kind: Kind,
    /// Permission bits and set-id bits (0o7777).
    pub mode: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Names of a file; 2 plus subdirectories of a directory.
    pub nlink: u32,
    /// Device files: which device, as the kernel writes it in 32 bits (12 of major, 20 of minor); else 0.
    pub rdev: u32,
    /// Length of the content; of a symlink, of its target.
    pub size: u64,
    /// Bytes stored for it.
    pub bytes: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Grows with every published change of the content; equal generations mean equal content.
    pub generation: u64,
    /// Whether it may be written.
    pub lamination: Lamination,
    /// Files: where the extents are kept.
    pub layout: ExtentLayout,
    /// Files: how new content is to be encoded. Directories: how that of what is made in them is. `None`: nobody said anything.
    #[serde(with = "hint_text")]
    pub codec: Option<CodecHint>,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The owner's clock.
    Now,
    /// This one.
    At(Time),
}

/// What `setattr` changes; `size` is handled by the delegate (it is a commit), never by `meta`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission and set-id bits.
    pub mode: Option<u32>,
    /// User.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Exact length, bytes.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of the content.
    pub mtime: Option<SetTime>,
}

/// Who asks. The kernel has already checked permissions on the mount; this decides ownership of new files and the
/// rules that name the owner (sticky directories, clearing set-id bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Each write goes to the end of the file.
    pub append: bool,
    /// Empty it first.
    pub truncate: bool,
}

impl OpenFlags {
    /// Only for reading.
    pub const READ: OpenFlags = OpenFlags {
        read: true,
        write: false,
        append: false,
        truncate: false,
    };
}

/// One entry of a directory listing. Continue after its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// The name, without slashes; any bytes.
    pub name: Vec<u8>,
    /// What it names.
    pub fid: Fid,
    /// What that is.
    pub kind: Kind,
}

/// Flags of `rename`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RenameFlags {
    /// `EEXIST` if the new name is taken.
    pub no_replace: bool,
    /// Both names stay and swap what they name.
    pub exchange: bool,
}

/// What a new inode is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewInode {
    /// What it is.
    pub kind: Kind,
    /// Permission and set-id bits; the umask is already applied.
    pub mode: u32,
    /// Device files: as [`Attr::rdev`].
    pub rdev: u32,
    /// Symlinks: where to.
    pub target: Vec<u8>,
    /// Files: the codec hint, if the directory has none.
    #[serde(with = "hint_text")]
    pub codec: Option<CodecHint>,
}

impl NewInode {
    /// One that is neither a device nor a symlink.
    pub fn new(kind: Kind, mode: u32) -> NewInode {
        NewInode {
            kind,
            mode,
            rdev: 0,
            target: Vec::new(),
            codec: None,
        }
    }
}

/// Totals for `statfs`, in bytes and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpaceTotals {
    /// Bytes there can be.
    pub total: u64,
    /// Bytes there is room for.
    pub free: u64,
    /// Inodes, if counted (0: not).
    pub files: u64,
}
