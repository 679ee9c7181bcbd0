//! From answers to the kernel's replies, and for how long the kernel may keep them.
//!
//! Invariant: the kernel keeps nothing that another node, or a change of mode, could make untrue; while the mount is watched, nothing.
use super::Filesystem;
use super::xattrs::XattrAnswer;
use crate::protocol::{
    Errno, FileHandle, FopenFlags, INodeNo, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use crate::reply::{file_attr, negative};
use forebay_server::{Attr, Kind, Lamination, SpaceTotals};
use std::time::Duration;

/// How long the kernel may keep what cannot change behind its back.
const KERNEL_KEEPS_FOR: Duration = Duration::from_secs(1);
/// The unit of free space that is shown, bytes.
const BLOCK_SIZE: u64 = 4096;
/// The longest name, bytes.
const MAX_NAME_LEN: u32 = 255;

pub(super) fn done(answer: Result<(), Errno>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

pub(super) fn give(answer: Result<XattrAnswer, Errno>, reply: ReplyXattr) {
    match answer {
        Ok(XattrAnswer::Size(size)) => reply.size(size),
        Ok(XattrAnswer::Value(value)) => reply.data(&value),
        Err(e) => reply.error(e),
    }
}

pub(super) fn data(answer: Result<impl AsRef<[u8]>, Errno>, reply: ReplyData) {
    match answer {
        Ok(bytes) => reply.data(bytes.as_ref()),
        Err(e) => reply.error(e),
    }
}

/// So many bytes were written.
pub(super) fn written(answer: Result<u32, Errno>, reply: ReplyWrite) {
    match answer {
        Ok(bytes) => reply.written(bytes),
        Err(e) => reply.error(e),
    }
}

pub(super) fn room(answer: Result<SpaceTotals, Errno>, reply: ReplyStatfs) {
    match answer {
        Ok(s) => {
            let (blocks, free) = (s.total / BLOCK_SIZE, s.free / BLOCK_SIZE);
            // Files need no room of their own kind: as many as there are free blocks may follow.
            let files = s.files.saturating_add(free);
            let block = BLOCK_SIZE as u32;
            reply.statfs(blocks, free, files, free, block, MAX_NAME_LEN);
        }
        Err(e) => reply.error(e),
    }
}

impl Filesystem {
    fn entry_ttl(&self) -> Duration {
        match self.alone && !self.watch.exact() {
            true => KERNEL_KEEPS_FOR,
            false => Duration::ZERO,
        }
    }

    /// A softly laminated file may get its write bits back, so only the hard kind is kept. A write takes set-id bits here, and the kernel
    /// does not ask for the mode then.
    fn attr_ttl(&self, attr: &Attr) -> Duration {
        let changes_by_writes = attr.kind == Kind::File && attr.mode & 0o6000 != 0;
        let fixed = self.alone && !changes_by_writes || attr.lamination == Lamination::Hard;
        if fixed && !self.watch.exact() {
            KERNEL_KEEPS_FOR
        } else {
            Duration::ZERO
        }
    }

    /// How long the kernel may keep attributes and name.
    pub(super) fn ttls(&self, attr: &Attr) -> (Duration, Duration) {
        (self.attr_ttl(attr), self.entry_ttl())
    }

    pub(super) fn enter(&self, answer: Result<Attr, Errno>, reply: ReplyEntry) {
        match answer {
            Ok(attr) => {
                let (attr_ttl, entry_ttl) = self.ttls(&attr);
                reply.entry_with_ttls(&attr_ttl, &entry_ttl, &file_attr(&attr));
            }
            Err(e) => reply.error(e),
        }
    }

    pub(super) fn show(&self, answer: Result<Attr, Errno>, reply: ReplyAttr) {
        match answer {
            Ok(attr) => reply.attr(&self.attr_ttl(&attr), &file_attr(&attr)),
            Err(e) => reply.error(e),
        }
    }

    /// The answer to a lookup: that a name does not exist is kept too, where nobody else could make it.
    pub(super) fn found(&self, answer: Result<Attr, Errno>, reply: ReplyEntry) {
        match answer {
            Err(e) if self.alone && e.code() == libc::ENOENT => {
                reply.entry(&KERNEL_KEEPS_FOR, &negative());
            }
            answer => self.enter(answer, reply),
        }
    }

    pub(super) fn created(
        &self,
        answer: Result<(Attr, FileHandle, FopenFlags), Errno>,
        reply: ReplyCreate,
    ) {
        let ino = answer.as_ref().map_or(INodeNo(0), |a| INodeNo(a.0.fid.0));
        // One time-out serves name and attributes here, so the shorter one.
        let ttl = |attr: &Attr| self.entry_ttl().min(self.attr_ttl(attr));
        let answer = answer.map(|(attr, fh, flags)| (ttl(&attr), file_attr(&attr), fh, flags));
        // It may have emptied a file that another node made.
        self.shown(ino, answer, false, move |answer| match answer {
            Ok((ttl, attr, fh, flags)) => reply.created(&ttl, &attr, fh, flags),
            Err(e) => reply.error(e),
        });
    }
}
