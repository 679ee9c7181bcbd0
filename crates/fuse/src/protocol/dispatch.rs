//! Requests: their arguments, and the handler's method for each.
use super::kernel_config::KernelConfig;
use super::names::{
    Errno, FileHandle, INodeNo, OpenFlags, RenameFlags, Request, TimeOrNow, WriteFlags,
};
use super::opcode;
use super::reply::{
    Reply, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a request's head.
const HEAD: usize = 40;
/// Of reads and writes: they name their lock owner, as those do that bypass the page cache.
const HAS_OWNER: u32 = 1 << 1;
/// Of opens that truncate: the caller may not keep set-id bits.
const OPEN_KILLS_SET_IDS: u32 = 1 << 0;

/// What a `setattr` wants changed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SetAttrRequest {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
    /// The open file that it came through.
    pub fh: Option<FileHandle>,
    /// Set-id bits go: the caller of a truncate may not keep them, or the owner changes.
    pub kills_set_ids: bool,
}

impl SetAttrRequest {
    /// Whether it names nothing to change.
    pub fn changes_nothing(&self) -> bool {
        let numbers = [self.mode, self.uid, self.gid].iter().any(Option::is_some);
        let times = self.atime.is_some() || self.mtime.is_some();
        !numbers && !times && self.size.is_none()
    }
}

/// A lock that is asked for, given up or looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockRequest {
    pub ino: INodeNo,
    pub fh: FileHandle,
    pub owner: u64,
    pub start: u64,
    /// The last byte itself.
    pub last: u64,
    pub typ: i32,
    pub pid: u32,
    /// Of `flock`, not of `fcntl`.
    pub flock: bool,
    /// To wait for it.
    pub wait: bool,
}

/// What answers requests, from several threads at once. Each method answers by its last argument, now or later; one that drops it
/// has answered `EIO`.
#[allow(clippy::too_many_arguments)]
pub(crate) trait Handler: Send + Sync + 'static {
    /// Before everything else.
    fn init(&mut self, config: &mut KernelConfig) -> io::Result<()>;
    /// After everything else.
    fn destroy(&self);
    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry);
    /// So many answers that named this inode are forgotten; the only request without an answer.
    fn forget(&self, ino: INodeNo, answers: u64);
    fn getattr(&self, req: &Request, ino: INodeNo, reply: ReplyAttr);
    fn setattr(&self, req: &Request, ino: INodeNo, set: SetAttrRequest, reply: ReplyAttr);
    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData);
    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        rdev: u32,
        reply: ReplyEntry,
    );
    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, reply: ReplyEntry);
    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    );
    fn link(&self, req: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry);
    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty);
    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty);
    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    );
    /// `kills_set_ids`: it truncates, and the caller may not keep set-id bits.
    fn open(
        &self,
        req: &Request,
        ino: INodeNo,
        flags: OpenFlags,
        kills_set_ids: bool,
        reply: ReplyOpen,
    );
    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: OpenFlags,
        reply: ReplyCreate,
    );
    /// `O_TMPFILE`: a file in this directory without a name.
    fn tmpfile(
        &self,
        req: &Request,
        parent: INodeNo,
        mode: u32,
        flags: OpenFlags,
        reply: ReplyCreate,
    );
    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        owner: Option<u64>,
        reply: ReplyData,
    );
    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        owner: Option<u64>,
        reply: ReplyWrite,
    );
    fn flush(&self, req: &Request, ino: INodeNo, fh: FileHandle, owner: u64, reply: ReplyEmpty);
    fn release(&self, req: &Request, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty);
    fn fsync(&self, req: &Request, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty);
    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    );
    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    );
    fn copy_file_range(
        &self,
        req: &Request,
        from: (INodeNo, FileHandle, u64),
        to: (INodeNo, FileHandle, u64),
        len: u64,
        reply: ReplyWrite,
    );
    fn set_lock(&self, req: &Request, lock: LockRequest, reply: ReplyEmpty);
    fn get_lock(&self, req: &Request, lock: LockRequest, reply: ReplyLock);
    fn opendir(&self, req: &Request, ino: INodeNo, reply: ReplyOpen);
    fn readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    );
    fn releasedir(&self, req: &Request, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty);
    fn fsyncdir(&self, req: &Request, ino: INodeNo, reply: ReplyEmpty);
    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs);
    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty,
    );
    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr);
    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr);
    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty);
    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        command: u32,
        data: &[u8],
        reply: ReplyIoctl,
    );
}

/// The request is shorter than it must be.
#[derive(Debug)]
pub(super) struct RequestTooShort;

/// Takes arguments off the front.
pub(super) struct Arguments<'a>(pub &'a [u8]);

impl<'a> Arguments<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], RequestTooShort> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(RequestTooShort)?;
        self.0 = rest;
        Ok(taken)
    }
    pub fn n4(&mut self) -> Result<u32, RequestTooShort> {
        let bytes = self.take(4)?.try_into().map_err(|_| RequestTooShort)?;
        Ok(u32::from_ne_bytes(bytes))
    }
    fn n8(&mut self) -> Result<u64, RequestTooShort> {
        let bytes = self.take(8)?.try_into().map_err(|_| RequestTooShort)?;
        Ok(u64::from_ne_bytes(bytes))
    }
    fn skip(&mut self, len: usize) -> Result<(), RequestTooShort> {
        self.take(len).map(drop)
    }
    /// Up to the next zero.
    fn name(&mut self) -> Result<&'a OsStr, RequestTooShort> {
        let len = self.0.iter().position(|b| *b == 0).ok_or(RequestTooShort)?;
        let name = self.take(len)?;
        self.skip(1)?;
        Ok(OsStr::from_bytes(name))
    }
    fn handle(&mut self) -> Result<FileHandle, RequestTooShort> {
        self.n8().map(FileHandle)
    }
    fn inode(&mut self) -> Result<INodeNo, RequestTooShort> {
        self.n8().map(INodeNo)
    }
    fn open_flags(&mut self) -> Result<OpenFlags, RequestTooShort> {
        self.n4().map(|flags| OpenFlags(flags as i32))
    }

    /// `| valid 4 | 0 4 | handle 8 | size 8 | owner 8 | atime 8 | mtime 8 | ctime 8 | nanoseconds 4 + 4 + 4 | mode 4 | 0 4 | user 4 |
    /// group 4 | 0 4 |`
    fn set_attr(&mut self) -> Result<SetAttrRequest, RequestTooShort> {
        let valid = self.n4()?;
        let has = |bit: u32| valid & 1 << bit != 0;
        self.skip(4)?;
        let fh = self.handle()?;
        let size = self.n8()?;
        self.skip(8)?;
        let (atime, mtime, _) = (self.n8()? as i64, self.n8()? as i64, self.n8()?);
        let (atime_nanos, mtime_nanos, _) = (self.n4()?, self.n4()?, self.n4()?);
        let mode = self.n4()?;
        self.skip(4)?;
        let (uid, gid) = (self.n4()?, self.n4()?);
        let time = |set, now, secs, nanos| match (has(set), has(now)) {
            (false, _) => None,
            (true, true) => Some(TimeOrNow::Now),
            (true, false) => Some(TimeOrNow::At(secs, nanos)),
        };
        Ok(SetAttrRequest {
            mode: has(0).then_some(mode),
            uid: has(1).then_some(uid),
            gid: has(2).then_some(gid),
            size: has(3).then_some(size),
            atime: time(4, 7, atime, atime_nanos),
            mtime: time(5, 8, mtime, mtime_nanos),
            fh: has(6).then_some(fh),
            kills_set_ids: has(11),
        })
    }

    /// `| handle 8 | owner 8 | start 8 | last 8 | type 4 | process 4 | flags 4 | 0 4 |`
    fn lock(&mut self, ino: INodeNo, wait: bool) -> Result<LockRequest, RequestTooShort> {
        Ok(LockRequest {
            ino,
            fh: self.handle()?,
            owner: self.n8()?,
            start: self.n8()?,
            last: self.n8()?,
            typ: self.n4()? as i32,
            pid: self.n4()?,
            flock: self.n4()? & 1 != 0,
            wait,
        })
    }
}

/// The opcode, the head and the rest of a request; `None`: it is none.
pub(super) fn request(bytes: &[u8]) -> Option<(u32, Request, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let mut head = Arguments(head);
    let mut field = || head.n4().ok();
    let (len, opcode) = (field()?, field()?);
    let mut head = Arguments(bytes.get(8..HEAD)?);
    let request = Request {
        unique: head.n8().ok()?,
        inode: head.n8().ok()?,
        uid: head.n4().ok()?,
        gid: head.n4().ok()?,
        pid: head.n4().ok()?,
    };
    (len as usize == bytes.len()).then_some((opcode, request, rest))
}

/// `| answers 8 |`, or `| count 4 | 0 4 |` and as often `| inode 8 | answers 8 |`
fn forget(
    handler: &impl Handler,
    opcode: u32,
    ino: INodeNo,
    mut a: Arguments<'_>,
) -> Result<(), RequestTooShort> {
    if opcode == opcode::FORGET {
        handler.forget(ino, a.n8()?);
        return Ok(());
    }
    let (count, ()) = (a.n4()?, a.skip(4)?);
    for _ in 0..count {
        handler.forget(a.inode()?, a.n8()?);
    }
    Ok(())
}

/// Requests that the kernel makes of its own accord, in whosever name.
fn of_kernel(opcode: u32) -> bool {
    use opcode::{FSYNC, FSYNCDIR, READ, READDIR, RELEASE, RELEASEDIR, WRITE};
    matches!(
        opcode,
        READ | WRITE | RELEASE | FSYNC | READDIR | RELEASEDIR | FSYNCDIR
    )
}

/// Has the handler answer one request.
pub(super) fn dispatch(
    handler: &impl Handler,
    device: &Arc<OwnedFd>,
    opcode: u32,
    req: &Request,
    arguments: &[u8],
    owner: Option<u32>,
) {
    if matches!(opcode, opcode::FORGET | opcode::BATCH_FORGET) {
        let forgotten = forget(handler, opcode, INodeNo(req.inode), Arguments(arguments));
        if let Err(RequestTooShort) = forgotten {
            tracing::error!(opcode, "the kernel sent a request that is too short");
        }
        return;
    }
    let new = || Reply::new(req.unique, device);
    if owner.is_some_and(|owner| owner != req.uid) && !of_kernel(opcode) {
        return new().error(Errno::EACCES);
    }
    if let Err(RequestTooShort) = decode(handler, &new, opcode, req, arguments) {
        tracing::error!(opcode, "the kernel sent a request that is too short");
        new().error(Errno::EIO);
    }
}

/// Arguments are read before the reply is made, so that one that is too short is answered once.
fn decode(
    handler: &impl Handler,
    new: &impl Fn() -> Reply,
    opcode: u32,
    req: &Request,
    arguments: &[u8],
) -> Result<(), RequestTooShort> {
    let ino = INodeNo(req.inode);
    let mut a = Arguments(arguments);
    match opcode {
        opcode::LOOKUP => handler.lookup(req, ino, a.name()?, ReplyEntry(new())),
        opcode::GETATTR => handler.getattr(req, ino, ReplyAttr(new())),
        opcode::SETATTR => handler.setattr(req, ino, a.set_attr()?, ReplyAttr(new())),
        opcode::READLINK => handler.readlink(req, ino, ReplyData(new())),
        opcode::SYMLINK => {
            let (name, target) = (a.name()?, a.name()?);
            handler.symlink(req, ino, name, Path::new(target), ReplyEntry(new()));
        }
        // | mode 4 | device 4 | umask 4 | 0 4 | name |
        opcode::MKNOD => {
            let (mode, rdev, ()) = (a.n4()?, a.n4()?, a.skip(8)?);
            handler.mknod(req, ino, a.name()?, mode, rdev, ReplyEntry(new()));
        }
        // | mode 4 | umask 4 | name |
        opcode::MKDIR => {
            let (mode, ()) = (a.n4()?, a.skip(4)?);
            handler.mkdir(req, ino, a.name()?, mode, ReplyEntry(new()));
        }
        opcode::UNLINK => handler.unlink(req, ino, a.name()?, ReplyEmpty(new())),
        opcode::RMDIR => handler.rmdir(req, ino, a.name()?, ReplyEmpty(new())),
        // | directory 8 | [flags 4 | 0 4 |] name | name |
        opcode::RENAME | opcode::RENAME2 => {
            let to = a.inode()?;
            let flags = match opcode {
                opcode::RENAME => 0,
                _ => (a.n4()?, a.skip(4)?).0,
            };
            let (name, to_name) = (a.name()?, a.name()?);
            let flags = RenameFlags::from_bits_retain(flags);
            handler.rename(req, ino, name, to, to_name, flags, ReplyEmpty(new()));
        }
        opcode::LINK => {
            let (file, name) = (a.inode()?, a.name()?);
            handler.link(req, file, ino, name, ReplyEntry(new()));
        }
        // | flags 4 | how 4 |
        opcode::OPEN => {
            let (flags, how) = (a.open_flags()?, a.n4()?);
            let kills = how & OPEN_KILLS_SET_IDS != 0;
            handler.open(req, ino, flags, kills, ReplyOpen(new()));
        }
        // | handle 8 | offset 8 | size 4 | flags 4 | owner 8 | open flags 4 | 0 4 |
        opcode::READ => {
            let (fh, offset, size) = (a.handle()?, a.n8()?, a.n4()?);
            let (flags, owner) = (a.n4()?, a.n8()?);
            let owner = (flags & HAS_OWNER != 0).then_some(owner);
            handler.read(req, ino, fh, offset, size, owner, ReplyData(new()));
        }
        // The same, and bytes.
        opcode::WRITE => {
            let (fh, offset, size) = (a.handle()?, a.n8()?, a.n4()?);
            let (how, owner) = (a.n4()?, a.n8()?);
            let owner = (how & HAS_OWNER != 0).then_some(owner);
            let how = WriteFlags::from_bits_retain(how);
            let (flags, ()) = (a.open_flags()?, a.skip(4)?);
            let data = a.take(size as usize)?;
            let reply = ReplyWrite(new());
            handler.write(req, ino, fh, offset, data, how, flags, owner, reply);
        }
        opcode::STATFS => handler.statfs(req, ino, ReplyStatfs(new())),
        opcode::RELEASE => handler.release(req, ino, a.handle()?, ReplyEmpty(new())),
        opcode::FSYNC => handler.fsync(req, ino, a.handle()?, ReplyEmpty(new())),
        // | size 4 | flags 4 | name | value |
        opcode::SETXATTR => {
            let (size, flags, name) = (a.n4()?, a.n4()? as i32, a.name()?);
            let value = a.take(size as usize)?;
            handler.setxattr(req, ino, name, value, flags, ReplyEmpty(new()));
        }
        // | size 4 | 0 4 | [name |]
        opcode::GETXATTR => {
            let (size, ()) = (a.n4()?, a.skip(4)?);
            handler.getxattr(req, ino, a.name()?, size, ReplyXattr(new()));
        }
        opcode::LISTXATTR => handler.listxattr(req, ino, a.n4()?, ReplyXattr(new())),
        opcode::REMOVEXATTR => handler.removexattr(req, ino, a.name()?, ReplyEmpty(new())),
        // | handle 8 | 0 8 | owner 8 |
        opcode::FLUSH => {
            let (fh, (), owner) = (a.handle()?, a.skip(8)?, a.n8()?);
            handler.flush(req, ino, fh, owner, ReplyEmpty(new()));
        }
        opcode::OPENDIR => handler.opendir(req, ino, ReplyOpen(new())),
        opcode::READDIR => {
            let (fh, offset, size) = (a.handle()?, a.n8()?, a.n4()?);
            let reply = ReplyDirectory::new(new(), size as usize);
            handler.readdir(req, ino, fh, offset, reply);
        }
        opcode::RELEASEDIR => handler.releasedir(req, ino, a.handle()?, ReplyEmpty(new())),
        opcode::FSYNCDIR => handler.fsyncdir(req, ino, ReplyEmpty(new())),
        opcode::GETLK => handler.get_lock(req, a.lock(ino, false)?, ReplyLock(new())),
        opcode::SETLK | opcode::SETLKW => handler.set_lock(
            req,
            a.lock(ino, opcode == opcode::SETLKW)?,
            ReplyEmpty(new()),
        ),
        // | flags 4 | mode 4 | umask 4 | open flags 4 | name |      TMPFILE: the name means nothing
        opcode::CREATE | opcode::TMPFILE => {
            let (flags, mode, ()) = (a.open_flags()?, a.n4()?, a.skip(8)?);
            let name = a.name()?;
            let reply = ReplyCreate(new());
            match opcode {
                opcode::CREATE => handler.create(req, ino, name, mode, flags, reply),
                _ => handler.tmpfile(req, ino, mode, flags, reply),
            }
        }
        // | handle 8 | flags 4 | command 4 | argument 8 | size of it 4 | of the answer 4 | bytes |
        opcode::IOCTL => {
            let (fh, (), command) = (a.handle()?, a.skip(4)?, a.n4()?);
            let ((), size, ()) = (a.skip(8)?, a.n4()?, a.skip(4)?);
            let data = a.take(size as usize)?;
            handler.ioctl(req, ino, fh, command, data, ReplyIoctl(new()));
        }
        // | handle 8 | offset 8 | length 8 | mode 4 | 0 4 |
        opcode::FALLOCATE => {
            let (fh, offset, len) = (a.handle()?, a.n8()?, a.n8()?);
            let mode = a.n4()? as i32;
            handler.fallocate(req, ino, fh, offset, len, mode, ReplyEmpty(new()));
        }
        // | handle 8 | offset 8 | whence 4 | 0 4 |
        opcode::LSEEK => {
            let (fh, offset, whence) = (a.handle()?, a.n8()? as i64, a.n4()? as i32);
            handler.lseek(req, ino, fh, offset, whence, ReplyLseek(new()));
        }
        // | handle 8 | offset 8 | inode 8 | handle 8 | offset 8 | length 8 | flags 8 |
        opcode::COPY_FILE_RANGE => {
            let from = (ino, a.handle()?, a.n8()?);
            let to = (a.inode()?, a.handle()?, a.n8()?);
            handler.copy_file_range(req, from, to, a.n8()?, ReplyWrite(new()));
        }
        // The kernel stops sending it, and does without.
        _ => new().error(Errno::ENOSYS),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_long_as_it_says() {
        let mut bytes = [
            &48u32.to_ne_bytes()[..],
            &1u32.to_ne_bytes(),
            &[7; 32],
            b"a name\0\0",
        ]
        .concat();
        let (opcode, head, rest) = request(&bytes).unwrap();
        assert_eq!((opcode, head.uid, rest.len()), (1, 0x0707_0707, 8));
        let mut arguments = Arguments(rest);
        assert_eq!(arguments.name().unwrap(), "a name");
        assert!(arguments.n4().is_err());
        bytes.pop();
        assert!(request(&bytes).is_none());
        assert!(request(&bytes[..20]).is_none());
    }

    #[test]
    fn times_are_whole_numbers_of_any_sign() {
        let valid = 1u32 << 4 | 1 << 5 | 1 << 8;
        let mut bytes = [valid.to_ne_bytes(), [0; 4]].concat();
        bytes.extend([0; 24]);
        for time in [i64::MIN, 5, 0] {
            bytes.extend(time.to_ne_bytes());
        }
        for nanos in [7u32, 0, 0] {
            bytes.extend(nanos.to_ne_bytes());
        }
        bytes.extend([0; 20]);
        let set = Arguments(&bytes).set_attr().unwrap();
        assert!(matches!(set.atime, Some(TimeOrNow::At(i64::MIN, 7))));
        assert!(matches!(set.mtime, Some(TimeOrNow::Now)));
        assert!(set.mode.is_none() && set.size.is_none() && set.fh.is_none());
        assert!(Arguments(&bytes[..80]).set_attr().is_err());
    }
}
