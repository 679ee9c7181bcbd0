//! The kernel's requests, one method and mostly one system call each.
use super::attrs::kind;
use super::directory::{Directory, SyscallResult, fopen};
use fuser::{
    BsdFileFlags, FileHandle, Generation, INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

thread_local! {
    /// Each thread reads into its own buffer, so that a read neither allocates nor clears memory.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn errno(e: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(e.raw_os_error())
}

/// Sends what a system call found, or why it failed: the reply types have no trait in common.
macro_rules! answer {
    ($reply:ident, $answer:expr, $found:pat => $send:expr) => {
        match $answer {
            Ok($found) => $send,
            Err(e) => $reply.error(errno(e)),
        }
    };
}

impl Directory {
    /// How long the kernel may take names and attributes for true.
    fn timeout(&self) -> Duration {
        match self.writeback {
            true => Duration::from_secs(1),
            false => Duration::ZERO,
        }
    }

    fn entry(&self, answer: SyscallResult<fuser::FileAttr>, reply: ReplyEntry) {
        answer!(reply, answer, attr => reply.entry(&self.timeout(), &attr, Generation(0)));
    }
}

impl fuser::Filesystem for Directory {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        super::agree(config, self.writeback)
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(self.enter(parent, name), reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.nodes.forget(ino, nlookup);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.stat(ino, fh), attr => reply.attr(&self.timeout(), &attr));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        fh: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changed = self.change(ino, mode, uid, gid, size, (atime, mtime), fh);
        answer!(reply, changed, attr => reply.attr(&self.timeout(), &attr));
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self
            .nodes
            .get(ino)
            .and_then(|n| rustix::fs::readlinkat(&*n, "", Vec::new()));
        answer!(reply, target, target => reply.data(target.as_bytes()));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let made = self
            .nodes
            .get(parent)
            .and_then(|p| rustix::fs::mkdirat(&*p, name, Mode::from_raw_mode(mode)));
        self.entry(made.and_then(|()| self.enter(parent, name)), reply);
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self
            .nodes
            .get(parent)
            .and_then(|p| rustix::fs::symlinkat(target, &*p, name));
        self.entry(made.and_then(|()| self.enter(parent, name)), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, AtFlags::empty()), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, AtFlags::REMOVEDIR), () => reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let renamed = self.nodes.get(parent).and_then(|from| {
            let to = self.nodes.get(to)?;
            rustix::fs::renameat_with(&*from, name, &*to, to_name, flags)
        });
        answer!(reply, renamed, () => reply.ok());
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let flags = OFlags::from_bits_retain(flags.0 as u32) - OFlags::NOFOLLOW;
        answer!(reply, self.open_node(ino, self.flags_below(flags)), file => {
            reply.opened(self.handles.add(file), fopen(flags));
        });
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self.create_file((parent, name), mode, flags);
        answer!(reply, created, (attr, fh, fopen) => {
            reply.created(&self.timeout(), &attr, Generation(0), fh, fopen);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let read = self.handles.get(fh).and_then(|file| {
                let mut done = 0;
                while done < size {
                    match rustix::io::pread(&*file, &mut buffer[done..size], offset + done as u64) {
                        Ok(0) => break,
                        Ok(n) => done += n,
                        Err(rustix::io::Errno::INTR) => {}
                        Err(e) => return Err(e),
                    }
                }
                Ok(done)
            });
            answer!(reply, read, n => reply.data(&buffer[..n]));
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self
            .handles
            .get(fh)
            .and_then(|file| rustix::io::pwrite(&*file, data, offset));
        answer!(reply, written, n => reply.written(n as u32));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing a duplicate shows the errors that closing would; there are none for local file systems.
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.handles.remove(fh);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let synced = self.handles.get(fh).and_then(|file| match datasync {
            true => Ok(rustix::fs::fdatasync(&*file)?),
            false => Ok(rustix::fs::fsync(&*file)?),
        });
        answer!(reply, synced, () => reply.ok());
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self
            .open_node(ino, OFlags::RDONLY | OFlags::DIRECTORY)
            .and_then(|dir| {
                // A benchmark lists no directory that changes; so the position may be a count.
                for (i, found) in rustix::fs::Dir::read_from(dir)?
                    .enumerate()
                    .skip(offset as usize)
                {
                    let found = found?;
                    let name = OsStr::from_bytes(found.file_name().to_bytes());
                    if reply.add(
                        INodeNo(found.ino()),
                        i as u64 + 1,
                        kind(found.file_type()),
                        name,
                    ) {
                        break;
                    }
                }
                Ok(())
            });
        answer!(reply, listed, () => reply.ok());
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let room = self.nodes.get(ino).and_then(|n| rustix::fs::fstatvfs(&*n));
        answer!(reply, room, s => reply.statfs(
            s.f_blocks,
            s.f_bfree,
            s.f_bavail,
            s.f_files,
            s.f_ffree,
            s.f_bsize as u32,
            s.f_namemax as u32,
            s.f_frsize as u32,
        ));
    }
}
