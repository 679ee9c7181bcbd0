//! Open files: handles, what the kernel may cache of them, and their bytes.
//!
//! A file handle as the kernel sees it carries what each request must know beside the delegate's handle:
//!
//! ```text
//! bits 63..3   the delegate's handle
//! bit  2       DIRECT: the page cache is bypassed
//! bit  1       APPEND: the owner of the file chooses where writes go
//! bit  0       WRITE: opened for writing
//! ```
use super::Filesystem;
use crate::protocol::{FileHandle, FopenFlags, INodeNo, OpenAccMode, ReplyWrite, WriteFlags};
use crate::reply::attempt;
use forebay_server::delegate::{AfterWrite, Fallocate, Handle, OpenedFile, SeekTarget};
use forebay_server::{Attr, Caller, Fid, Kind, OpenFlags, SetAttr};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

type Result<T, E = forebay_server::Error> = std::result::Result<T, E>;

const WRITE: u64 = 1;
const APPEND: u64 = 2;
const DIRECT: u64 = 4;
const FLAG_BITS: u32 = 3;

/// Most bytes one copy request moves, so that a thread is not held for long; the kernel asks again for the rest.
const COPY_LIMIT: u64 = 16 << 20;

/// Stack of a thread that drops pages; it does little.
const COPY_STACK: usize = 256 << 10;

/// The delegate's handle in the kernel's.
pub(super) fn handle(fh: FileHandle) -> Handle {
    fh.0 >> FLAG_BITS
}

fn has(fh: FileHandle, bit: u64) -> bool {
    fh.0 & bit != 0
}

pub(super) fn open_flags(flags: crate::protocol::OpenFlags) -> OpenFlags {
    let mode = flags.acc_mode();
    OpenFlags {
        read: mode != OpenAccMode::O_WRONLY,
        write: mode != OpenAccMode::O_RDONLY,
        append: mode != OpenAccMode::O_RDONLY && flags.0 & libc::O_APPEND != 0,
        truncate: flags.0 & libc::O_TRUNC != 0,
    }
}

/// `exact`: every call is to reach this, as it is.
pub(super) fn answer(
    opened: &OpenedFile,
    flags: OpenFlags,
    alone: bool,
    exact: bool,
) -> (FileHandle, FopenFlags) {
    let mut fh = opened.handle << FLAG_BITS;
    let mut fopen = FopenFlags::empty();
    if flags.write {
        fh |= WRITE;
    } else if alone {
        // Closing a file that was only read publishes nothing; but where locks are kept here, it gives up the closer's.
        fopen |= FopenFlags::FOPEN_NOFLUSH;
    }
    if flags.append {
        fh |= APPEND;
    }
    if opened.direct || exact {
        fh |= DIRECT;
        fopen |= FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
    } else if opened.keep_cache {
        fopen |= FopenFlags::FOPEN_KEEP_CACHE;
    }
    (FileHandle(fh), fopen)
}

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

/// As whom the delegate sees a change of content: it takes set-id bits off files that others than root change. Root may lack the
/// right to keep them too, and others may have it; only the kernel knows.
pub(super) fn privileged_unless(kills_set_ids: bool, caller: Caller) -> Caller {
    match kills_set_ids {
        true => Caller {
            uid: caller.uid.max(1),
            ..caller
        },
        false => Caller { uid: 0, gid: 0 },
    }
}

impl Filesystem {
    pub(super) fn open_file(
        &self,
        fid: Fid,
        flags: crate::protocol::OpenFlags,
        kills_set_ids: bool,
    ) -> Result<(FileHandle, FopenFlags)> {
        let flags = open_flags(flags);
        let opened = self.delegate.open(fid, flags)?;
        if kills_set_ids {
            self.or_close(&opened, self.drop_set_ids(&opened.attr))?;
        }
        Ok(answer(&opened, flags, self.alone, self.watch.exact()))
    }

    pub(super) fn create_file(
        &self,
        parent: Fid,
        name: &OsStr,
        mode: u32,
        kernel_flags: crate::protocol::OpenFlags,
        caller: Caller,
    ) -> Result<(Attr, FileHandle, FopenFlags)> {
        let flags = open_flags(kernel_flags);
        let exclusive = kernel_flags.0 & libc::O_EXCL != 0;
        // Another node may have made the file since the kernel looked. The kernel checked no permission on it then, so
        // it is checked here, before anything is cut.
        let keep = OpenFlags {
            truncate: false,
            ..flags
        };
        let mut opened = self.delegate.create(
            parent,
            name.as_bytes(),
            mode & 0o7777,
            exclusive,
            keep,
            caller,
        )?;
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
                let cut =
                    self.delegate
                        .names
                        .setattr(opened.attr.fid, &set, Some(opened.handle), caller);
                opened.attr = self.or_close(&opened, cut)?;
            }
        }
        let (fh, fopen) = answer(&opened, flags, self.alone, self.watch.exact());
        Ok((opened.attr, fh, fopen))
    }

    /// A file without a name (`O_TMPFILE`). The kernel sees to it that one opened with `O_EXCL` never gets one; so does the service.
    pub(super) fn create_unnamed(
        &self,
        dir: Fid,
        mode: u32,
        kernel_flags: crate::protocol::OpenFlags,
        caller: Caller,
    ) -> Result<(Attr, FileHandle, FopenFlags)> {
        let flags = open_flags(kernel_flags);
        let linkable = kernel_flags.0 & libc::O_EXCL == 0;
        let opened = self
            .delegate
            .create_unnamed(dir, mode, linkable, flags, caller)?;
        let (fh, fopen) = answer(&opened, flags, self.alone, self.watch.exact());
        Ok((opened.attr, fh, fopen))
    }

    /// Closes an opened file if what followed failed.
    fn or_close<T>(&self, opened: &OpenedFile, result: Result<T>) -> Result<T> {
        if result.is_err() {
            // The first failure is the one to report.
            let _ = self.delegate.release(opened.handle);
        }
        result
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn write_file(
        &self,
        fid: Fid,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        file_flags: crate::protocol::OpenFlags,
        caller: Caller,
    ) -> Result<u64> {
        if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) && has(fh, APPEND) {
            // Pages of a shared mapping, sent through whichever handle the kernel found: they belong at their offset,
            // which a handle for appending would ignore.
            let flags = OpenFlags {
                write: true,
                ..OpenFlags::default()
            };
            let opened = self.delegate.open(fid, flags)?;
            let root = Caller { uid: 0, gid: 0 };
            let written = self.delegate.write(opened.handle, offset, data, root);
            self.delegate.release(opened.handle)?;
            return written;
        }
        // The kernel says so when the writer may not keep set-id bits; everyone else writes as root does.
        let kills = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let caller = privileged_unless(kills, caller);
        let placed = self.delegate.write(handle(fh), offset, data, caller)?;
        if has(fh, DIRECT) && file_flags.0 & libc::O_DSYNC != 0 {
            // For cached files the kernel sends an fsync of its own. This handle has no pages; another's are dropped when it
            // asks for it.
            let _ = self.delegate.fsync(handle(fh))?;
        }
        Ok(placed)
    }

    /// Answers a write: after pages that it made old are gone, here and elsewhere, if there are any.
    pub(super) fn written(
        &self,
        (ino, fh): (INodeNo, FileHandle),
        (expected, answer, len): (u64, Result<u64, crate::protocol::Errno>, usize),
        direct: bool,
        reply: ReplyWrite,
    ) {
        let after = match &answer {
            Ok(placed) if direct => self
                .delegate
                .kernel_pages
                .after_direct_write(handle(fh), expected, *placed)
                .unwrap_or_default(),
            _ => AfterWrite::default(),
        };
        let (delegate, caches) = (self.delegate.clone(), self.caches.clone());
        let here = move |placed| -> std::io::Result<()> {
            if after.drop_pages {
                caches.drop_pages(ino, placed, len)?;
            }
            // If the owner does not answer, nobody here can read what others appended: the append itself has succeeded.
            if after.look_again && delegate.kernel_pages.look_again(handle(fh)).is_ok() {
                caches.tell_size(&delegate, ino)?;
            }
            Ok(())
        };
        let waits = after != AfterWrite::default();
        let delegate = self.delegate.clone();
        self.shown(ino, answer, waits, move |answer| {
            let renewed = answer.and_then(|placed| {
                here(placed).map_err(|error| {
                    tracing::error!(inode = ino.0, %error, "the kernel keeps pages from before a direct write");
                    crate::protocol::Errno::EIO
                })
            });
            match renewed {
                Ok(()) => {
                    reply.written(len as u32);
                    delegate.kernel_pages.size_is_uncertain(Fid(ino.0));
                }
                Err(e) => reply.error(e),
            }
        });
    }

    /// Gives `answer` to `reply` once the kernels of other nodes have heard of the change, if they have to: then, or if the
    /// reply `waits` for something itself, on a thread of its own.
    pub(super) fn shown<T: Send + 'static>(
        &self,
        ino: INodeNo,
        answer: Result<T, crate::protocol::Errno>,
        waits: bool,
        reply: impl FnOnce(Result<T, crate::protocol::Errno>) + Send + 'static,
    ) {
        let unshown = answer.is_ok() && self.delegate.kernel_pages.has_unshown(Fid(ino.0));
        if !unshown && !waits {
            return reply(answer);
        }
        let delegate = self.delegate.clone();
        let work = move || {
            let shown = attempt("show a change", ino, || match unshown {
                true => delegate.kernel_pages.show_elsewhere(Fid(ino.0)),
                false => Ok(()),
            });
            reply(shown.and(answer));
        };
        let thread = std::thread::Builder::new().name("change".into());
        if let Err(e) = thread.stack_size(COPY_STACK).spawn(work) {
            // The reply went with the closure, and has said EIO.
            tracing::error!(error = %e, "no thread to show a change; raise the limit of processes");
        }
    }

    pub(super) fn flush_file(&self, fh: FileHandle, owner: u64) -> Result<()> {
        let flushed = match has(fh, WRITE) {
            true => self.delegate.flush(handle(fh)),
            false => Ok(()),
        };
        match self.alone {
            true => flushed,
            false => flushed.and(self.delegate.locks.close_owner(handle(fh), owner)),
        }
    }

    pub(super) fn release_file(&self, fh: FileHandle) -> Result<()> {
        // A mapping may outlive the last close; its pages arrive between that flush and this, which commits them.
        self.delegate.release(handle(fh))
    }

    pub(super) fn allocate(
        &self,
        (ino, fh): (INodeNo, FileHandle),
        mode: i32,
        (offset, len): (u64, u64),
        caller: Caller,
    ) -> Result<()> {
        let known =
            libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        let punch = mode & libc::FALLOC_FL_PUNCH_HOLE != 0;
        let zero = mode & libc::FALLOC_FL_ZERO_RANGE != 0;
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        if mode & !known != 0 || (punch && (zero || !keep_size)) {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.delegate.fallocate(
            handle(fh),
            Fallocate {
                punch,
                zero,
                keep_size,
            },
            offset,
            len,
        )?;
        // The kernel does not say whether the caller may keep set-id bits: it is taken for root's right.
        match caller.uid {
            0 => Ok(()),
            _ => self.drop_set_ids(&self.delegate.names.getattr(Fid(ino.0))?),
        }
    }

    pub(super) fn seek_file(&self, fh: FileHandle, offset: i64, whence: i32) -> Result<i64> {
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let whence = match whence {
            libc::SEEK_DATA => SeekTarget::Data,
            libc::SEEK_HOLE => SeekTarget::Hole,
            _ => return Err(Errno::INVAL.into()),
        };
        let found = self.delegate.seek(handle(fh), offset, whence)?;
        Ok(i64::try_from(found).map_err(|_| Errno::OVERFLOW)?)
    }

    pub(super) fn copy(
        &self,
        (from, offset): (FileHandle, u64),
        (to, to_offset): (FileHandle, u64),
        len: u64,
        caller: Caller,
    ) -> Result<u32> {
        let len = len.min(COPY_LIMIT);
        let copied =
            self.delegate
                .copy_range(handle(from), offset, handle(to), to_offset, len, caller)?;
        Ok(copied.min(len) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_server::{ExtentLayout, Lamination, Time};
    use std::sync::Arc;

    fn attr(mode: u32, uid: u32, gid: u32) -> Attr {
        Attr {
            fid: Fid(9),
            kind: Kind::File,
            mode,
            uid,
            gid,
            nlink: 1,
            rdev: 0,
            size: 0,
            bytes: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            generation: 0,
            lamination: Lamination::None,
            layout: ExtentLayout::Fresh,
        }
    }

    #[test]
    fn handles_carry_their_bits() {
        let opened = OpenedFile {
            handle: 77,
            attr: attr(0o644, 0, 0),
            keep_cache: true,
            direct: false,
            made: false,
        };
        let flags = open_flags(crate::protocol::OpenFlags(libc::O_RDWR | libc::O_APPEND));
        let (fh, fopen) = answer(&opened, flags, true, false);
        assert_eq!(handle(fh), 77);
        assert!(has(fh, WRITE) && has(fh, APPEND) && !has(fh, DIRECT));
        assert_eq!(fopen, FopenFlags::FOPEN_KEEP_CACHE);
        let (fh, fopen) = answer(
            &opened,
            open_flags(crate::protocol::OpenFlags(libc::O_RDONLY | libc::O_APPEND)),
            true,
            false,
        );
        assert!(!has(fh, WRITE) && !has(fh, APPEND));
        assert!(fopen.contains(FopenFlags::FOPEN_NOFLUSH));
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
    fn a_create_that_finds_a_file_may_do_what_its_bits_say_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let config = forebay_server::Config {
            nodes: 2,
            memory: 16 << 20,
            ..forebay_server::Config::default()
        };
        let io = Arc::new(forebay_storage::OsIo);
        let service = forebay_server::Service::start(io, &dir.path().join("s"), config).unwrap();
        let (ended, _end) = std::sync::mpsc::channel();
        let options = crate::MountOptions::default();
        let [a, b] = [0, 1].map(|n| Filesystem::new(service.delegate(n), &options, ended.clone()));
        let user = Caller {
            uid: 1000,
            gid: 1000,
        };
        let create = |filesystem: &Filesystem, name: &str, flags| {
            let flags = crate::protocol::OpenFlags(flags | libc::O_CREAT);
            let made = filesystem.create_file(Fid::ROOT, OsStr::new(name), 0o400, flags, user);
            made.map(|(_, handle, _)| filesystem.delegate.release(super::handle(handle)).unwrap())
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
