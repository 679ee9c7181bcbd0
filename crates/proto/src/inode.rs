//! The record of one inode: as its owner stores it, and as members send each other a new one.
use crate::{Attr, ExtentLayout, Fid, Kind, Lamination, Result, Time, hint_text};
use forebay_codec::CodecHint;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The record of one file, directory, symlink, FIFO, socket or device file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// What it is; never changes.
    pub kind: Kind,
    /// Permission and set-id bits (0o7777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names of a file; 2 plus subdirectories of a directory; 0 once removed.
    pub nlink: u32,
    /// Device files: as [`Attr::rdev`].
    pub rdev: u32,
    /// Published size in bytes.
    pub size: u64,
    /// Bytes of logs this file holds.
    pub bytes: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of the content (or of a directory's entries).
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Sequence of the last published commit or truncate; doubles as the generation.
    pub seq: u64,
    /// Whether the content is read-only.
    pub lamination: Lamination,
    /// Directories: the parent, for `..` and the loop check.
    pub parent: Fid,
    /// Directories: removed; nothing may be created in it any more.
    pub dead: bool,
    /// Symlinks: where to.
    pub target: Vec<u8>,
    /// Files: where the extents are kept.
    pub layout: ExtentLayout,
    /// Files and directories: the codec hint, as [`Attr::codec`].
    #[serde(with = "hint_text")]
    pub codec: Option<CodecHint>,
}

impl Inode {
    /// A new inode without content: no entry names it yet, and a directory has the two links that it begins with.
    pub fn new(kind: Kind, mode: u32, uid: u32, gid: u32, now: Time) -> Inode {
        Inode {
            kind,
            mode: mode & 0o7777,
            uid,
            gid,
            nlink: if kind == Kind::Dir { 2 } else { 0 },
            rdev: 0,
            size: 0,
            bytes: 0,
            atime: now,
            mtime: now,
            ctime: now,
            seq: 0,
            lamination: Lamination::None,
            parent: Fid(0),
            dead: false,
            target: Vec::new(),
            layout: ExtentLayout::OwnerOnly,
            codec: None,
        }
    }

    /// Refuses what has no content.
    ///
    /// # Errors
    /// `EISDIR` for a directory; `EINVAL` for all others but files.
    pub fn must_be_file(&self) -> Result<()> {
        match self.kind {
            Kind::File => Ok(()),
            Kind::Dir => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Counts bytes that came and went. Members tell their numbers; no sum of them is an overflow.
    pub fn count(&mut self, added: u64, freed: u64) {
        self.bytes = self.bytes.saturating_add(added).saturating_sub(freed);
    }

    /// What `stat` shows of it.
    pub fn attr(&self, fid: Fid) -> Attr {
        Attr {
            fid,
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            rdev: self.rdev,
            size: if self.kind == Kind::Symlink {
                self.target.len() as u64
            } else {
                self.size
            },
            bytes: self.bytes,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            generation: self.seq,
            lamination: self.lamination,
            layout: self.layout,
            codec: self.codec,
        }
    }

    /// No one may write, by the mode.
    pub fn read_only_mode(&self) -> bool {
        self.mode & 0o222 == 0
    }
}
