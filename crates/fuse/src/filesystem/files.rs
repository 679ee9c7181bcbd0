//! Open files: translates the kernel's requests about them and their bytes into calls of the delegate.
//!
//! Invariant: a handle that was opened here is either released or part of the reply to the kernel.
use super::attrs::{ROOT, drop_set_ids, privileged_unless};
use super::context::MountContext;
use super::file_handle::{DIRECT, READ, WRITE, handle, has, open_flags};
use crate::protocol::{
    AllocateRequest, CopyRequest, CreateRequest, FileHandle, ReadRequest, Request, WriteFlags,
    WriteRequest,
};
use bytes::Bytes;
use forebay_server::delegate::{
    Fallocate, KernelLease, NotedPageRead, OpenedFile, SeekTarget, WriteOrigin,
};
use forebay_server::{Attr, Caller, Fid, Kind, OpenFlags, Result, SetAttr};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Most bytes one copy request moves, so that a thread is not held for long; the kernel asks again for the rest.
const COPY_LIMIT: u64 = 16 << 20;

/// Whether `caller` may open a file it did not make. Knows only the caller's first group, so it may refuse too much.
fn may_open(attr: &Attr, flags: OpenFlags, caller: Caller) -> bool {
    let wanted = u32::from(flags.read) << 2 | u32::from(flags.write) << 1;
    let shift = if caller.uid == attr.uid {
        6
    } else if caller.gid == attr.gid {
        3
    } else {
        0
    };
    caller.uid == 0 || (attr.mode >> shift) & wanted == wanted
}

/// See the head of this file.
pub(super) struct FileRequests {
    pub ctx: Arc<MountContext>,
}

impl FileRequests {
    pub fn open(&self, fid: Fid, flags: OpenFlags, kills_set_ids: bool) -> Result<OpenedFile> {
        // A kernel that keeps times hands over that of the change, unless it is that of the change before.
        let timed = flags.truncate && self.ctx.policy.write_back.is_on();
        let truncate = flags.truncate && !timed;
        let opened = (self.ctx.delegate).open(fid, OpenFlags { truncate, ..flags })?;
        if timed {
            let through = Some(opened.handle).filter(|_| flags.write);
            let calls = &self.ctx.delegate.write_back;
            self.or_close(&opened, calls.truncate(fid, 0, through, ROOT))?;
        }
        if kills_set_ids {
            self.or_close(&opened, drop_set_ids(&self.ctx.delegate, &opened.attr))?;
        }
        Ok(opened)
    }

    /// Makes a file in the directory of `req`, or opens the one that is there.
    pub fn create(
        &self,
        req: &Request,
        create: &CreateRequest<'_>,
    ) -> Result<(OpenedFile, KernelLease)> {
        let flags = open_flags(create.flags);
        let exclusive = create.flags.0 & libc::O_EXCL != 0;
        let (delegate, mode) = (&self.ctx.delegate, create.mode);
        let opened = match create.name {
            Some(name) => self.create_named(req, name, mode, exclusive, flags)?,
            // The kernel sees to it that one opened with `O_EXCL` never gets a name; so does the service.
            None => delegate.create_unnamed(req.fid, mode, !exclusive, flags, req.caller)?,
        };
        let lease = KernelLease {
            attributes: opened.leased,
            ..KernelLease::default()
        };
        Ok((opened, lease))
    }

    fn create_named(
        &self,
        req: &Request,
        name: &OsStr,
        mode: u32,
        exclusive: bool,
        flags: OpenFlags,
    ) -> Result<OpenedFile> {
        // Another node may have made the file since the kernel looked. The kernel checked no permission on it then, so
        // it is checked here, before anything is cut.
        let keep = OpenFlags {
            truncate: false,
            ..flags
        };
        let (name, mode) = (name.as_bytes(), mode & 0o7777);
        let (delegate, caller) = (&self.ctx.delegate, req.caller);
        let mut opened = delegate.create(req.fid, name, mode, exclusive, keep, req.origin())?;
        if !opened.made {
            let allowed = match opened.attr.kind {
                Kind::File if may_open(&opened.attr, flags, caller) => Ok(()),
                Kind::File => Err(Errno::ACCESS.into()),
                Kind::Dir => Err(Errno::ISDIR.into()),
                _ => Err(Errno::EXIST.into()),
            };
            self.or_close(&opened, allowed)?;
            if flags.truncate && opened.attr.size > 0 {
                let set = SetAttr {
                    size: Some(0),
                    ..SetAttr::default()
                };
                let (fid, handle) = (opened.attr.fid, Some(opened.handle));
                let cut = delegate.names.setattr(fid, &set, handle, caller);
                opened.attr = self.or_close(&opened, cut)?;
            }
        }
        Ok(opened)
    }

    /// Closes an opened file if what followed failed.
    fn or_close<T>(&self, opened: &OpenedFile, result: Result<T>) -> Result<T> {
        if result.is_err() {
            // The first failure is the one to report.
            let _ = self.ctx.delegate.release(opened.handle);
        }
        result
    }

    /// A read into the page cache is noted until it is answered, where a write through it must know.
    pub fn note(&self, read: &ReadRequest) -> Option<NotedPageRead> {
        let pages = &self.ctx.delegate.kernel_pages;
        match read.direct || self.ctx.policy.write_back.is_on() {
            true => None,
            false => pages.note_read(handle(read.fh), read.offset, read.size),
        }
    }

    /// The bytes asked for; the pages that are predicted to be asked for next are in the kernel's page cache then.
    pub fn read(&self, read: &ReadRequest) -> Result<Bytes> {
        let (handle, delegate) = (handle(read.fh), &self.ctx.delegate);
        if read.direct {
            return delegate.read(handle, read.offset, read.size);
        }
        if !has(read.fh, READ) {
            // The rest of a page that a program writes in part.
            delegate.kernel_pages.enters_page_cache(handle)?;
            return delegate.write_back.read(handle, read.offset, read.size);
        }
        let (bytes, predicted) = delegate.read_pages(handle, read.offset, read.size)?;
        if let Some(predicted) = predicted
            && let Some(_thread) = self.ctx.page_fill_threads.take()
        {
            let (caches, fid) = (&self.ctx.caches, predicted.fid());
            let store = |offset, bytes: &[u8]| caches.store_pages(fid, offset, bytes).is_ok();
            delegate.fill_predicted(&predicted, store);
        }
        Ok(bytes)
    }

    /// The offset that the bytes went to.
    pub fn write(&self, req: &Request, write: &WriteRequest<'_>) -> Result<u64> {
        let handle = handle(write.fh);
        if !write.direct {
            self.ctx.delegate.kernel_pages.enters_page_cache(handle)?;
        }
        // The kernel says so when the writer may not keep set-id bits; everyone else writes as root does.
        let kills = write.how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let caller = privileged_unless(kills, req.caller);
        let (delegate, offset, data) = (&self.ctx.delegate, write.offset, write.data);
        let of_pages = write.how.contains(WriteFlags::FUSE_WRITE_CACHE);
        let placed = match (self.ctx.policy.write_back.is_on(), of_pages) {
            (false, false) => delegate.write(handle, offset, data, caller)?,
            // Pages are sent through whichever handle the kernel finds, also one for appending, and belong at their offset.
            (keeps_dirty_pages, _) => {
                let origin = match keeps_dirty_pages {
                    true if of_pages => WriteOrigin::Writeback,
                    true if !has(write.fh, DIRECT) => WriteOrigin::PlacedAndTimed(caller),
                    _ => WriteOrigin::Placed(caller),
                };
                delegate.write_back.write(handle, offset, data, origin)?;
                offset
            }
        };
        if has(write.fh, DIRECT) && write.flags.0 & libc::O_DSYNC != 0 {
            // For cached files the kernel sends an fsync of its own. This handle has no pages; another's are dropped when it
            // asks for it.
            let _ = self.ctx.delegate.fsync(handle)?;
        }
        Ok(placed)
    }

    pub fn flush(&self, fh: FileHandle, owner: u64) -> Result<()> {
        let flushed = match has(fh, WRITE) {
            true => self.ctx.delegate.flush(handle(fh)),
            false => Ok(()),
        };
        flushed.and(self.ctx.delegate.locks.close_owner(handle(fh), owner))
    }

    pub fn allocate(&self, req: &Request, allocate: &AllocateRequest) -> Result<()> {
        let mode = allocate.mode;
        let known =
            libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        let how = Fallocate {
            punch: mode & libc::FALLOC_FL_PUNCH_HOLE != 0,
            zero: mode & libc::FALLOC_FL_ZERO_RANGE != 0,
            keep_size: mode & libc::FALLOC_FL_KEEP_SIZE != 0,
        };
        if mode & !known != 0 || (how.punch && (how.zero || !how.keep_size)) {
            return Err(Errno::OPNOTSUPP.into());
        }
        let (handle, offset, len) = (handle(allocate.fh), allocate.offset, allocate.len);
        match self.ctx.policy.write_back.is_on() {
            true => {
                let calls = &self.ctx.delegate.write_back;
                calls.fallocate(handle, how, offset, len)?;
            }
            false => self.ctx.delegate.fallocate(handle, how, offset, len)?,
        }
        // The kernel does not say whether the caller may keep set-id bits: it is taken for root's right.
        match req.caller.uid {
            0 => Ok(()),
            _ => drop_set_ids(
                &self.ctx.delegate,
                &self.ctx.delegate.names.getattr(req.fid)?,
            ),
        }
    }

    pub fn seek(&self, fh: FileHandle, offset: i64, whence: i32) -> Result<i64> {
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let whence = match whence {
            libc::SEEK_DATA => SeekTarget::Data,
            libc::SEEK_HOLE => SeekTarget::Hole,
            _ => return Err(Errno::INVAL.into()),
        };
        let found = self.ctx.delegate.seek(handle(fh), offset, whence)?;
        Ok(i64::try_from(found).map_err(|_| Errno::OVERFLOW)?)
    }

    /// How many bytes were copied: no more than [`COPY_LIMIT`].
    pub fn copy(&self, copy: &CopyRequest, caller: Caller) -> Result<u32> {
        let len = copy.len.min(COPY_LIMIT);
        let (from, to) = (handle(copy.from), handle(copy.to));
        // A kernel that keeps times hands over that of the copy, unless it is that of the change before.
        let origin = match self.ctx.policy.write_back.is_on() && !has(copy.to, DIRECT) {
            true => WriteOrigin::PlacedAndTimed(caller),
            false => WriteOrigin::Program(caller),
        };
        let copied = self.ctx.delegate.copy_range(
            from,
            copy.from_offset,
            to,
            copy.to_offset,
            len,
            origin,
        )?;
        Ok(copied.min(len) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::MountOptions;
    use crate::protocol;
    use forebay_server::proto::Inode;
    use forebay_server::{SetTime, Time};

    fn attr(mode: u32, uid: u32, gid: u32) -> Attr {
        Inode::new(Kind::File, mode, uid, gid, Time::default()).attr(Fid(9))
    }

    #[test]
    fn a_file_of_another_user_opens_by_its_bits() {
        let read = OpenFlags {
            read: true,
            ..OpenFlags::default()
        };
        let both = OpenFlags {
            read: true,
            write: true,
            ..OpenFlags::default()
        };
        assert!(!may_open(
            &attr(0o600, 1, 1),
            read,
            Caller { uid: 2, gid: 2 }
        ));
        assert!(may_open(
            &attr(0o600, 1, 1),
            read,
            Caller { uid: 0, gid: 0 }
        ));
        assert!(may_open(
            &attr(0o640, 1, 1),
            read,
            Caller { uid: 2, gid: 1 }
        ));
        assert!(!may_open(
            &attr(0o640, 1, 1),
            both,
            Caller { uid: 2, gid: 1 }
        ));
        assert!(!may_open(
            &attr(0o077, 1, 1),
            read,
            Caller { uid: 1, gid: 1 }
        ));
    }

    #[test]
    fn copies_and_opens_that_empty_leave_the_time_to_a_kernel_that_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let config = forebay_server::Config {
            memory: 16 << 20,
            ..forebay_server::Config::default()
        };
        let io = Arc::new(forebay_storage::OsIo);
        let service = forebay_server::Service::start(io, &dir.path().join("s"), config).unwrap();
        let files = FileRequests {
            ctx: MountContext::new(service.delegate(0), &MountOptions::default()),
        };
        let (ctx, root) = (&files.ctx, Caller { uid: 0, gid: 0 });
        let offered = protocol::InitFlags::all();
        let mut kernel =
            protocol::KernelConfig::new(offered, protocol::InitFlags::empty(), 1 << 20);
        ctx.policy.write_back.negotiate(&mut kernel);
        assert!(ctx.policy.write_back.is_on());
        let flags = open_flags(protocol::OpenFlags(libc::O_RDWR | libc::O_CREAT));
        let made = ctx
            .delegate
            .create(Fid::ROOT, b"f", 0o600, true, flags, root);
        let made = made.unwrap();
        let (fh, _) = ctx.policy.opened(&made, flags);
        let calls = &ctx.delegate.write_back;
        let written = calls.write(made.handle, 0, b"data", WriteOrigin::Writeback);
        written.unwrap();
        // The kernel's clock is a little ahead. It names the time no second time: what follows in the same tick does not change it.
        let ahead = Time {
            secs: ctx
                .delegate
                .names
                .getattr(made.attr.fid)
                .unwrap()
                .mtime
                .secs
                + 100,
            nanos: 7,
        };
        calls.set_kernel_mtime(made.handle, ahead).unwrap();
        files.flush(fh, 0).unwrap();
        let copy = CopyRequest {
            from: fh,
            from_offset: 0,
            to_fid: made.attr.fid,
            to: fh,
            to_offset: 100,
            len: 4,
        };
        assert_eq!(files.copy(&copy, root).unwrap(), 4);
        files.flush(fh, 0).unwrap();
        let attr = ctx.delegate.names.getattr(made.attr.fid).unwrap();
        assert_eq!((attr.size, attr.mtime), (104, ahead));
        let empties = open_flags(protocol::OpenFlags(libc::O_WRONLY | libc::O_TRUNC));
        let opened = files.open(made.attr.fid, empties, false).unwrap();
        let attr = ctx.delegate.names.getattr(made.attr.fid).unwrap();
        assert_eq!((attr.size, attr.mtime), (0, ahead));
        ctx.delegate.release(opened.handle).unwrap();
        // A cut brings its time. One that the kernel had read before it, and sends after it, changes nothing; the next one does.
        let [older, cut, back] = [50, 200, 150].map(|secs| Time {
            secs: ahead.secs + secs,
            ..ahead
        });
        let longer = SetAttr {
            size: Some(20),
            mtime: Some(SetTime::At(cut)),
            ..SetAttr::default()
        };
        let names = &ctx.delegate.names;
        names
            .setattr(made.attr.fid, &longer, Some(made.handle), root)
            .unwrap();
        for (handed, expected) in [(older, cut), (back, back)] {
            calls.set_kernel_mtime(made.handle, handed).unwrap();
            files.flush(fh, 0).unwrap();
            assert_eq!(names.getattr(made.attr.fid).unwrap().mtime, expected);
        }
        ctx.delegate.release(made.handle).unwrap();
        service.stop().unwrap();
    }

    #[test]
    fn a_create_that_finds_a_file_may_do_what_its_bits_say_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let config = forebay_server::Config {
            nodes: 2,
            memory: 16 << 20,
            ..forebay_server::Config::default()
        };
        let io = Arc::new(forebay_storage::OsIo);
        let service = forebay_server::Service::start(io, &dir.path().join("s"), config).unwrap();
        let [a, b] = [0, 1].map(|n| FileRequests {
            ctx: MountContext::new(service.delegate(n), &MountOptions::default()),
        });
        let user = Request {
            unique: 0,
            fid: Fid::ROOT,
            caller: Caller {
                uid: 1000,
                gid: 1000,
            },
            pid: 0,
        };
        let create = |files: &FileRequests, name: &str, flags| {
            let create = CreateRequest {
                name: Some(OsStr::new(name)),
                mode: 0o400,
                flags: protocol::OpenFlags(flags | libc::O_CREAT),
            };
            let made = files.create(&user, &create);
            made.map(|(opened, _)| files.ctx.delegate.release(opened.handle).unwrap())
        };
        // Its maker may write it whatever its bits.
        create(&a, "f", libc::O_RDWR).unwrap();
        // Another node's create comes second: the file is there, empty, and its owner may only read it.
        let refused = create(&b, "f", libc::O_WRONLY).unwrap_err();
        assert_eq!(refused.errno(), Errno::ACCESS);
        create(&b, "f", libc::O_RDONLY).unwrap();
        service.stop().unwrap();
    }
}
