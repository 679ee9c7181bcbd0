//! Conversions between the service's types and the kernel's: inodes, callers, attributes, times, free space.
use crate::protocol::{FileAttr, INodeNo, ReplyStatfs, Request};
use forebay_server::{Attr, Caller, Fid, Kind, SpaceTotals, Time};
use rustix::fs::FileType;

/// The unit of free space that is shown, bytes.
const BLOCK_SIZE: u64 = 4096;
/// The longest name, bytes.
const MAX_NAME_LEN: u32 = 255;

/// The inode of the directory of teams, which is no file of the service: nothing in it can be changed. It is numbered as of a
/// member that no service has.
pub(crate) const TEAM_DIRECTORY: INodeNo = INodeNo(u64::MAX - 1);

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
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharacterDevice,
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

/// What `statfs` shows.
pub(crate) fn room(reply: ReplyStatfs, s: SpaceTotals) {
    let (blocks, free) = (s.total / BLOCK_SIZE, s.free / BLOCK_SIZE);
    // Files need no room of their own kind: as many as there are free blocks may follow.
    let files = s.files.saturating_add(free);
    reply.statfs(blocks, free, files, free, BLOCK_SIZE as u32, MAX_NAME_LEN);
}
