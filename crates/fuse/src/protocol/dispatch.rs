//! Decodes requests, and calls the handler's method for each.
use super::arguments::{
    AllocateRequest, Arguments, CopyRequest, CreateRequest, LockRequest, ReadRequest,
    RenameRequest, RequestTooShort, SetAttrRequest, WriteRequest,
};
use super::kernel_config::KernelConfig;
use super::names::{FileHandle, INodeNo, OpenFlags, Request};
use super::opcode;
use super::reply::{
    Reply, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// Of opens that truncate: the caller may not keep set-id bits.
const OPEN_KILLS_SET_IDS: u32 = 1 << 0;

/// What answers requests, from several threads at once. Each method answers by its last argument, now or later; one that drops it
/// has answered `EIO`. Names are names in the directory `req.ino`.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Before everything else.
    fn init(&self, config: &mut KernelConfig) -> io::Result<()>;
    /// After everything else.
    fn destroy(&self);
    /// So many answers that named this inode are forgotten; the only request without an answer.
    fn forget(&self, ino: INodeNo, answers: u64);
    fn lookup(&self, req: &Request, name: &OsStr, reply: ReplyEntry);
    fn getattr(&self, req: &Request, reply: ReplyAttr);
    fn setattr(&self, req: &Request, set: SetAttrRequest, reply: ReplyAttr);
    fn readlink(&self, req: &Request, reply: ReplyData);
    fn mknod(&self, req: &Request, name: &OsStr, mode: u32, rdev: u32, reply: ReplyEntry);
    fn mkdir(&self, req: &Request, name: &OsStr, mode: u32, reply: ReplyEntry);
    fn symlink(&self, req: &Request, name: &OsStr, target: &Path, reply: ReplyEntry);
    /// `file` gets a name more.
    fn link(&self, req: &Request, file: INodeNo, name: &OsStr, reply: ReplyEntry);
    fn unlink(&self, req: &Request, name: &OsStr, reply: ReplyEmpty);
    fn rmdir(&self, req: &Request, name: &OsStr, reply: ReplyEmpty);
    fn rename(&self, req: &Request, rename: RenameRequest<'_>, reply: ReplyEmpty);
    /// `kills_set_ids`: it truncates, and the caller may not keep set-id bits.
    fn open(&self, req: &Request, flags: OpenFlags, kills_set_ids: bool, reply: ReplyOpen);
    fn create(&self, req: &Request, create: CreateRequest<'_>, reply: ReplyCreate);
    fn read(&self, req: &Request, read: ReadRequest, reply: ReplyData);
    fn write(&self, req: &Request, write: WriteRequest<'_>, reply: ReplyWrite);
    fn flush(&self, req: &Request, fh: FileHandle, owner: u64, reply: ReplyEmpty);
    fn release(&self, req: &Request, fh: FileHandle, reply: ReplyEmpty);
    fn fsync(&self, req: &Request, fh: FileHandle, reply: ReplyEmpty);
    fn fallocate(&self, req: &Request, allocate: AllocateRequest, reply: ReplyEmpty);
    fn lseek(&self, req: &Request, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek);
    fn copy_file_range(&self, req: &Request, copy: CopyRequest, reply: ReplyWrite);
    fn set_lock(&self, req: &Request, lock: LockRequest, reply: ReplyEmpty);
    fn get_lock(&self, req: &Request, lock: LockRequest, reply: ReplyLock);
    fn opendir(&self, req: &Request, reply: ReplyOpen);
    fn readdir(&self, req: &Request, fh: FileHandle, offset: u64, reply: ReplyDirectory);
    fn releasedir(&self, req: &Request, fh: FileHandle, reply: ReplyEmpty);
    fn fsyncdir(&self, req: &Request, reply: ReplyEmpty);
    fn statfs(&self, req: &Request, reply: ReplyStatfs);
    fn setxattr(&self, req: &Request, name: &OsStr, value: &[u8], flags: i32, reply: ReplyEmpty);
    fn getxattr(&self, req: &Request, name: &OsStr, size: u32, reply: ReplyXattr);
    fn listxattr(&self, req: &Request, size: u32, reply: ReplyXattr);
    fn removexattr(&self, req: &Request, name: &OsStr, reply: ReplyEmpty);
    fn ioctl(&self, req: &Request, fh: FileHandle, command: u32, data: &[u8], reply: ReplyIoctl);
}

/// `| answers 8 |`, or `| count 4 | 0 4 |` and as often `| inode 8 | answers 8 |`
fn forget(
    handler: &impl Handler,
    opcode: u32,
    req: &Request,
    arguments: &[u8],
) -> Result<(), RequestTooShort> {
    let mut a = Arguments(arguments);
    if opcode == opcode::FORGET {
        handler.forget(req.ino, a.n8()?);
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
        if let Err(RequestTooShort) = forget(handler, opcode, req, arguments) {
            tracing::error!(opcode, "the kernel sent a request that is too short");
        }
        return;
    }
    let new = || Reply::new(req.unique, device);
    if owner.is_some_and(|owner| owner != req.uid) && !of_kernel(opcode) {
        return new().error(Errno::ACCESS);
    }
    if let Err(RequestTooShort) = decode(handler, &new, opcode, req, arguments) {
        tracing::error!(opcode, "the kernel sent a request that is too short");
        new().error(Errno::IO);
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
    let mut a = Arguments(arguments);
    match opcode {
        opcode::LOOKUP => handler.lookup(req, a.name()?, ReplyEntry(new())),
        opcode::GETATTR => handler.getattr(req, ReplyAttr(new())),
        opcode::SETATTR => handler.setattr(req, a.set_attr()?, ReplyAttr(new())),
        opcode::READLINK => handler.readlink(req, ReplyData(new())),
        opcode::SYMLINK => {
            let (name, target) = (a.name()?, a.name()?);
            handler.symlink(req, name, Path::new(target), ReplyEntry(new()));
        }
        // | mode 4 | device 4 | umask 4 | 0 4 | name |
        opcode::MKNOD => {
            let (mode, rdev, ()) = (a.n4()?, a.n4()?, a.skip(8)?);
            handler.mknod(req, a.name()?, mode, rdev, ReplyEntry(new()));
        }
        // | mode 4 | umask 4 | name |
        opcode::MKDIR => {
            let (mode, ()) = (a.n4()?, a.skip(4)?);
            handler.mkdir(req, a.name()?, mode, ReplyEntry(new()));
        }
        opcode::UNLINK => handler.unlink(req, a.name()?, ReplyEmpty(new())),
        opcode::RMDIR => handler.rmdir(req, a.name()?, ReplyEmpty(new())),
        opcode::RENAME => handler.rename(req, a.rename(false)?, ReplyEmpty(new())),
        opcode::RENAME2 => handler.rename(req, a.rename(true)?, ReplyEmpty(new())),
        opcode::LINK => handler.link(req, a.inode()?, a.name()?, ReplyEntry(new())),
        // | flags 4 | how 4 |
        opcode::OPEN => {
            let (flags, how) = (a.open_flags()?, a.n4()?);
            handler.open(req, flags, how & OPEN_KILLS_SET_IDS != 0, ReplyOpen(new()));
        }
        opcode::READ => handler.read(req, a.read()?, ReplyData(new())),
        opcode::WRITE => handler.write(req, a.write()?, ReplyWrite(new())),
        opcode::STATFS => handler.statfs(req, ReplyStatfs(new())),
        opcode::RELEASE => handler.release(req, a.handle()?, ReplyEmpty(new())),
        opcode::FSYNC => handler.fsync(req, a.handle()?, ReplyEmpty(new())),
        // | size 4 | flags 4 | name | value |
        opcode::SETXATTR => {
            let (size, flags, name) = (a.n4()?, a.n4()? as i32, a.name()?);
            let value = a.take(size as usize)?;
            handler.setxattr(req, name, value, flags, ReplyEmpty(new()));
        }
        // | size 4 | 0 4 | [name |]
        opcode::GETXATTR => {
            let (size, ()) = (a.n4()?, a.skip(4)?);
            handler.getxattr(req, a.name()?, size, ReplyXattr(new()));
        }
        opcode::LISTXATTR => handler.listxattr(req, a.n4()?, ReplyXattr(new())),
        opcode::REMOVEXATTR => handler.removexattr(req, a.name()?, ReplyEmpty(new())),
        // | handle 8 | 0 8 | owner 8 |
        opcode::FLUSH => {
            let (fh, (), owner) = (a.handle()?, a.skip(8)?, a.n8()?);
            handler.flush(req, fh, owner, ReplyEmpty(new()));
        }
        opcode::OPENDIR => handler.opendir(req, ReplyOpen(new())),
        opcode::READDIR => {
            let (fh, offset, size) = (a.handle()?, a.n8()?, a.n4()?);
            let reply = ReplyDirectory::new(new(), size as usize);
            handler.readdir(req, fh, offset, reply);
        }
        opcode::RELEASEDIR => handler.releasedir(req, a.handle()?, ReplyEmpty(new())),
        opcode::FSYNCDIR => handler.fsyncdir(req, ReplyEmpty(new())),
        opcode::GETLK => handler.get_lock(req, a.lock(false)?, ReplyLock(new())),
        opcode::SETLK => handler.set_lock(req, a.lock(false)?, ReplyEmpty(new())),
        opcode::SETLKW => handler.set_lock(req, a.lock(true)?, ReplyEmpty(new())),
        opcode::CREATE => handler.create(req, a.create(true)?, ReplyCreate(new())),
        opcode::TMPFILE => handler.create(req, a.create(false)?, ReplyCreate(new())),
        // | handle 8 | flags 4 | command 4 | argument 8 | size of it 4 | of the answer 4 | bytes |
        opcode::IOCTL => {
            let (fh, (), command) = (a.handle()?, a.skip(4)?, a.n4()?);
            let ((), size, ()) = (a.skip(8)?, a.n4()?, a.skip(4)?);
            let data = a.take(size as usize)?;
            handler.ioctl(req, fh, command, data, ReplyIoctl(new()));
        }
        opcode::FALLOCATE => handler.fallocate(req, a.allocate()?, ReplyEmpty(new())),
        // | handle 8 | offset 8 | whence 4 | 0 4 |
        opcode::LSEEK => {
            let (fh, offset, whence) = (a.handle()?, a.n8()? as i64, a.n4()? as i32);
            handler.lseek(req, fh, offset, whence, ReplyLseek(new()));
        }
        opcode::COPY_FILE_RANGE => handler.copy_file_range(req, a.copy()?, ReplyWrite(new())),
        // The kernel stops sending it, and does without.
        _ => new().error(Errno::NOSYS),
    }
    Ok(())
}
