//! Decodes requests, and calls the handler's method for each.
use super::arguments::{
    AllocateRequest, Arguments, CopyRequest, CreateRequest, LockRequest, ReadRequest,
    RenameRequest, RequestTooShort, SetAttrRequest, WriteRequest, is_kernel_mtime,
};
use super::kernel_config::KernelConfig;
use super::opcode;
use super::reply::{
    DirectoryEntries, EntryAnswer, IoctlAnswer, LockAnswer, PendingReply, Reply, XattrAnswer,
};
use super::types::{FileHandle, FopenFlags, OpenFlags, Request};
use bytes::Bytes;
use forebay_server::{Attr, Fid, SpaceTotals};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Of opens that truncate: the caller may not keep set-id bits.
const OPEN_KILLS_SET_IDS: u32 = 1 << 0;

/// An open file, and what the kernel may do with its pages.
pub(crate) type OpenedHandle = (FileHandle, FopenFlags);

/// What answers requests, from several threads at once. Each method answers by its last argument, now or later; one that drops it
/// has answered `EIO`. Names are names in the directory `req.fid`.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Before everything else.
    fn init(&self, config: &mut KernelConfig) -> io::Result<()>;
    /// After everything else.
    fn destroy(&self);
    /// The kernel forgets this many replies that named the inode. The only request without a reply.
    fn forget(&self, fid: Fid, answers: u64);
    fn lookup(&self, req: &Request, name: &OsStr, reply: Reply<EntryAnswer>);
    /// `fh`: the open file through which the kernel itself asks, before it writes or reads there.
    fn getattr(&self, req: &Request, fh: Option<FileHandle>, reply: Reply<(Attr, Duration)>);
    fn setattr(&self, req: &Request, set: SetAttrRequest, reply: Reply<(Attr, Duration)>);
    fn readlink(&self, req: &Request, reply: Reply<Bytes>);
    fn mknod(&self, req: &Request, name: &OsStr, mode: u32, rdev: u32, reply: Reply<EntryAnswer>);
    fn mkdir(&self, req: &Request, name: &OsStr, mode: u32, reply: Reply<EntryAnswer>);
    fn symlink(&self, req: &Request, name: &OsStr, target: &Path, reply: Reply<EntryAnswer>);
    /// `file` gets a name more.
    fn link(&self, req: &Request, file: Fid, name: &OsStr, reply: Reply<EntryAnswer>);
    fn unlink(&self, req: &Request, name: &OsStr, reply: Reply<()>);
    fn rmdir(&self, req: &Request, name: &OsStr, reply: Reply<()>);
    fn rename(&self, req: &Request, rename: RenameRequest<'_>, reply: Reply<()>);
    /// `kills_set_ids`: it truncates, and the caller may not keep set-id bits.
    fn open(
        &self,
        req: &Request,
        flags: OpenFlags,
        kills_set_ids: bool,
        reply: Reply<OpenedHandle>,
    );
    fn create(
        &self,
        req: &Request,
        create: CreateRequest<'_>,
        reply: Reply<(EntryAnswer, OpenedHandle)>,
    );
    fn read(&self, req: &Request, read: ReadRequest, reply: Reply<Bytes>);
    fn write(&self, req: &Request, write: WriteRequest<'_>, reply: Reply<u32>);
    fn flush(&self, req: &Request, fh: FileHandle, owner: u64, reply: Reply<()>);
    fn release(&self, req: &Request, fh: FileHandle, reply: Reply<()>);
    fn fsync(&self, req: &Request, fh: FileHandle, reply: Reply<()>);
    fn fallocate(&self, req: &Request, allocate: AllocateRequest, reply: Reply<()>);
    fn lseek(&self, req: &Request, fh: FileHandle, offset: i64, whence: i32, reply: Reply<i64>);
    fn copy_file_range(&self, req: &Request, copy: CopyRequest, reply: Reply<u32>);
    fn set_lock(&self, req: &Request, lock: LockRequest, reply: Reply<()>);
    fn get_lock(&self, req: &Request, lock: LockRequest, reply: Reply<LockAnswer>);
    fn opendir(&self, req: &Request, reply: Reply<OpenedHandle>);
    /// Entries from number `offset` on, in `room` bytes.
    fn readdir(
        &self,
        req: &Request,
        fh: FileHandle,
        offset: u64,
        room: u32,
        reply: Reply<DirectoryEntries>,
    );
    fn releasedir(&self, req: &Request, fh: FileHandle, reply: Reply<()>);
    fn fsyncdir(&self, req: &Request, reply: Reply<()>);
    fn statfs(&self, req: &Request, reply: Reply<SpaceTotals>);
    fn setxattr(&self, req: &Request, name: &OsStr, value: &[u8], flags: i32, reply: Reply<()>);
    fn getxattr(&self, req: &Request, name: &OsStr, size: u32, reply: Reply<XattrAnswer>);
    fn listxattr(&self, req: &Request, size: u32, reply: Reply<XattrAnswer>);
    fn removexattr(&self, req: &Request, name: &OsStr, reply: Reply<()>);
    fn ioctl(
        &self,
        req: &Request,
        fh: FileHandle,
        command: u32,
        data: &[u8],
        reply: Reply<IoctlAnswer>,
    );
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
        handler.forget(req.fid, a.n8()?);
        return Ok(());
    }
    let (count, ()) = (a.n4()?, a.skip(4)?);
    for _ in 0..count {
        handler.forget(a.inode()?, a.n8()?);
    }
    Ok(())
}

/// Requests that the kernel makes of its own accord, in whosever name.
fn of_kernel(opcode: u32, req: &Request, arguments: &[u8]) -> bool {
    use opcode::{FSYNC, FSYNCDIR, READ, READDIR, RELEASE, RELEASEDIR, SETATTR, WRITE};
    match opcode {
        READ | WRITE | RELEASE | FSYNC | READDIR | RELEASEDIR | FSYNCDIR => true,
        // The thread that writes back is root's.
        SETATTR => req.caller.uid == 0 && Arguments(arguments).n4().is_ok_and(is_kernel_mtime),
        _ => false,
    }
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
    let new = || PendingReply::new(req.unique, device);
    if owner.is_some_and(|owner| owner != req.caller.uid) && !of_kernel(opcode, req, arguments) {
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
    new: &impl Fn() -> PendingReply,
    opcode: u32,
    req: &Request,
    arguments: &[u8],
) -> Result<(), RequestTooShort> {
    let mut a = Arguments(arguments);
    match opcode {
        opcode::LOOKUP => handler.lookup(req, a.name()?, new().into()),
        opcode::GETATTR => handler.getattr(req, a.get_attr()?, new().into()),
        opcode::SETATTR => handler.setattr(req, a.set_attr()?, new().into()),
        opcode::READLINK => handler.readlink(req, new().into()),
        opcode::SYMLINK => {
            let (name, target) = (a.name()?, a.name()?);
            handler.symlink(req, name, Path::new(target), new().into());
        }
        // | mode 4 | device 4 | umask 4 | 0 4 | name |
        opcode::MKNOD => {
            let (mode, rdev, ()) = (a.n4()?, a.n4()?, a.skip(8)?);
            handler.mknod(req, a.name()?, mode, rdev, new().into());
        }
        // | mode 4 | umask 4 | name |
        opcode::MKDIR => {
            let (mode, ()) = (a.n4()?, a.skip(4)?);
            handler.mkdir(req, a.name()?, mode, new().into());
        }
        opcode::UNLINK => handler.unlink(req, a.name()?, new().into()),
        opcode::RMDIR => handler.rmdir(req, a.name()?, new().into()),
        opcode::RENAME => handler.rename(req, a.rename(false)?, new().into()),
        opcode::RENAME2 => handler.rename(req, a.rename(true)?, new().into()),
        opcode::LINK => handler.link(req, a.inode()?, a.name()?, new().into()),
        // | flags 4 | how 4 |
        opcode::OPEN => {
            let (flags, how) = (a.open_flags()?, a.n4()?);
            handler.open(req, flags, how & OPEN_KILLS_SET_IDS != 0, new().into());
        }
        opcode::READ => handler.read(req, a.read()?, new().into()),
        opcode::WRITE => handler.write(req, a.write()?, new().into()),
        opcode::STATFS => handler.statfs(req, new().into()),
        opcode::RELEASE => handler.release(req, a.handle()?, new().into()),
        opcode::FSYNC => handler.fsync(req, a.handle()?, new().into()),
        // | size 4 | flags 4 | name | value |
        opcode::SETXATTR => {
            let (size, flags, name) = (a.n4()?, a.n4()? as i32, a.name()?);
            let value = a.take(size as usize)?;
            handler.setxattr(req, name, value, flags, new().into());
        }
        // | size 4 | 0 4 | [name |]
        opcode::GETXATTR => {
            let (size, ()) = (a.n4()?, a.skip(4)?);
            handler.getxattr(req, a.name()?, size, new().into());
        }
        opcode::LISTXATTR => handler.listxattr(req, a.n4()?, new().into()),
        opcode::REMOVEXATTR => handler.removexattr(req, a.name()?, new().into()),
        // | handle 8 | 0 8 | owner 8 |
        opcode::FLUSH => {
            let (fh, (), owner) = (a.handle()?, a.skip(8)?, a.n8()?);
            handler.flush(req, fh, owner, new().into());
        }
        opcode::OPENDIR => handler.opendir(req, new().into()),
        opcode::READDIR => {
            let (fh, offset, room) = (a.handle()?, a.n8()?, a.n4()?);
            handler.readdir(req, fh, offset, room, new().into());
        }
        opcode::RELEASEDIR => handler.releasedir(req, a.handle()?, new().into()),
        opcode::FSYNCDIR => handler.fsyncdir(req, new().into()),
        opcode::GETLK => handler.get_lock(req, a.lock(false)?, new().into()),
        opcode::SETLK => handler.set_lock(req, a.lock(false)?, new().into()),
        opcode::SETLKW => handler.set_lock(req, a.lock(true)?, new().into()),
        opcode::CREATE => handler.create(req, a.create(true)?, new().into()),
        opcode::TMPFILE => handler.create(req, a.create(false)?, new().into()),
        // | handle 8 | flags 4 | command 4 | argument 8 | size of it 4 | of the answer 4 | bytes |
        opcode::IOCTL => {
            let (fh, (), command) = (a.handle()?, a.skip(4)?, a.n4()?);
            let ((), size, ()) = (a.skip(8)?, a.n4()?, a.skip(4)?);
            let data = a.take(size as usize)?;
            handler.ioctl(req, fh, command, data, new().into());
        }
        opcode::FALLOCATE => handler.fallocate(req, a.allocate()?, new().into()),
        // | handle 8 | offset 8 | whence 4 | 0 4 |
        opcode::LSEEK => {
            let (fh, offset, whence) = (a.handle()?, a.n8()? as i64, a.n4()? as i32);
            handler.lseek(req, fh, offset, whence, new().into());
        }
        opcode::COPY_FILE_RANGE => handler.copy_file_range(req, a.copy()?, new().into()),
        // The kernel stops sending it, and does without.
        _ => new().error(Errno::NOSYS),
    }
    Ok(())
}
