//! A minimal pass-through file system: every request becomes a system call on a directory. It shows what FUSE itself costs,
//! so that Forebay is compared with the best a mount can do.
//!
//! It uses the same FUSE crate as Forebay and the same class of settings: as many threads, cloned device descriptors, the
//! same request sizes and readahead, no write-back cache, time-outs of names and attributes 0, pages kept over opens, no
//! FLUSH for read-only handles. What passes through is what the benchmark's cases need, and a little more for its tests.

mod attrs;
mod nodes;

use crate::fail::Result;
use attrs::{file_attr, kind};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, FileHandle, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use nodes::{Handles, Nodes};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

const NEVER: Duration = Duration::ZERO;
const MAX_WRITE: u32 = 1 << 20;
const READAHEAD: u32 = 4 << 20;
const BACKGROUND: u16 = 64;

thread_local! {
    /// Each thread reads into its own buffer, so that a read neither allocates nor clears memory.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Serves `source` on `point` until standard input ends: the benchmark holds the other end, so the mount goes with it.
///
/// # Errors
/// If it cannot be mounted.
pub fn serve(source: &Path, point: &Path) -> Result<()> {
    rustix::process::umask(Mode::empty());
    raise_open_files();
    let session = mount(source, point)?;
    println!("ready");
    let _ = io::stdin().read_to_end(&mut Vec::new());
    session.umount_and_join()?;
    Ok(())
}

fn mount(source: &Path, point: &Path) -> Result<BackgroundSession> {
    let root = rustix::fs::open(
        source,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut config = Config::default();
    config.n_threads = Some((cores * 2).min(8));
    config.clone_fd = true;
    config.mount_options = vec![
        MountOption::FSName("passthrough".into()),
        MountOption::Subtype("forebay-bench".into()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    let session = fuser::spawn_mount(Passthrough::new(root)?, point, &config)?;
    let dev = rustix::fs::stat(point)?.st_dev;
    let bdi = format!(
        "/sys/class/bdi/{}:{}/read_ahead_kb",
        rustix::fs::major(dev),
        rustix::fs::minor(dev)
    );
    // Only root may; Forebay does the same, so both have it or none.
    let _ = std::fs::write(bdi, (READAHEAD >> 10).to_string());
    Ok(session)
}

/// Every inode the kernel knows holds a descriptor.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: now.maximum,
            maximum: now.maximum,
        },
    );
}

struct Passthrough {
    nodes: Nodes,
    handles: Handles,
}

type Answer<T> = std::result::Result<T, Errno>;

impl Passthrough {
    fn new(root: OwnedFd) -> Answer<Passthrough> {
        Ok(Passthrough {
            nodes: Nodes::new(root)?,
            handles: Handles::default(),
        })
    }

    fn enter(&self, parent: INodeNo, name: &OsStr) -> Answer<fuser::FileAttr> {
        let parent = self.nodes.get(parent)?;
        let stat = rustix::fs::statat(&*parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let ino = self.nodes.enter(&stat, || {
            rustix::fs::openat(
                &*parent,
                name,
                OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )
        })?;
        Ok(file_attr(ino, &stat))
    }

    fn stat(&self, ino: INodeNo, fh: Option<FileHandle>) -> Answer<fuser::FileAttr> {
        let stat = match fh.and_then(|fh| self.handles.get(fh).ok()) {
            Some(file) => rustix::fs::fstat(&*file)?,
            None => rustix::fs::fstat(&*self.nodes.get(ino)?)?,
        };
        Ok(file_attr(ino, &stat))
    }

    fn open_node(&self, ino: INodeNo, flags: OFlags) -> Answer<OwnedFd> {
        let node = self.nodes.get(ino)?;
        rustix::fs::open(proc_path(&*node), flags | OFlags::CLOEXEC, Mode::empty())
    }

    #[allow(clippy::too_many_arguments)]
    fn change(
        &self,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        times: (Option<TimeOrNow>, Option<TimeOrNow>),
        fh: Option<FileHandle>,
    ) -> Answer<fuser::FileAttr> {
        let node = self.nodes.get(ino)?;
        if let Some(mode) = mode {
            rustix::fs::chmod(proc_path(&*node), Mode::from_raw_mode(mode))?;
        }
        if uid.is_some() || gid.is_some() {
            let (uid, gid) = (
                uid.map(rustix::fs::Uid::from_raw),
                gid.map(rustix::fs::Gid::from_raw),
            );
            rustix::fs::chownat(&*node, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = size {
            match fh.and_then(|fh| self.handles.get(fh).ok()) {
                Some(file) => rustix::fs::ftruncate(&*file, size)?,
                None => rustix::fs::ftruncate(self.open_node(ino, OFlags::WRONLY)?, size)?,
            }
        }
        if times.0.is_some() || times.1.is_some() {
            let times = attrs::timestamps(times.0, times.1);
            rustix::fs::utimensat(rustix::fs::CWD, proc_path(&*node), &times, AtFlags::empty())?;
        }
        self.stat(ino, fh)
    }

    fn create_file(
        &self,
        at: (INodeNo, &OsStr),
        mode: u32,
        flags: i32,
    ) -> Answer<(fuser::FileAttr, FileHandle, FopenFlags)> {
        let parent = self.nodes.get(at.0)?;
        let flags = OFlags::from_bits_retain(flags as u32);
        let file = rustix::fs::openat(
            &*parent,
            at.1,
            flags | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::from_raw_mode(mode),
        )?;
        let attr = self.enter(at.0, at.1)?;
        Ok((attr, self.handles.add(file), fopen(flags)))
    }
}

/// A read-only handle has nothing to flush.
fn fopen(flags: OFlags) -> FopenFlags {
    match flags & OFlags::RWMODE == OFlags::RDONLY {
        true => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
        false => FopenFlags::FOPEN_KEEP_CACHE,
    }
}

fn proc_path(fd: &impl AsFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

fn errno(e: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(e.raw_os_error())
}

fn done(answer: Answer<()>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(e)),
    }
}

fn entry(answer: Answer<fuser::FileAttr>, reply: ReplyEntry) {
    match answer {
        Ok(attr) => reply.entry(&NEVER, &attr, Generation(0)),
        Err(e) => reply.error(errno(e)),
    }
}

fn attr(answer: Answer<fuser::FileAttr>, reply: ReplyAttr) {
    match answer {
        Ok(attr) => reply.attr(&NEVER, &attr),
        Err(e) => reply.error(errno(e)),
    }
}

impl fuser::Filesystem for Passthrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wanted in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_BIG_WRITES,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(MAX_WRITE);
        if let Err(most) = config.set_max_readahead(READAHEAD) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.enter(parent, name), reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.nodes.forget(ino, nlookup);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        attr(self.stat(ino, fh), reply);
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
        attr(
            self.change(ino, mode, uid, gid, size, (atime, mtime), fh),
            reply,
        );
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self
            .nodes
            .get(ino)
            .and_then(|n| rustix::fs::readlinkat(&*n, "", Vec::new()));
        match target {
            Ok(target) => reply.data(target.as_bytes()),
            Err(e) => reply.error(errno(e)),
        }
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
        entry(made.and_then(|()| self.enter(parent, name)), reply);
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
        entry(made.and_then(|()| self.enter(parent, name)), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(
            self.nodes
                .get(parent)
                .and_then(|p| rustix::fs::unlinkat(&*p, name, AtFlags::empty())),
            reply,
        );
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(
            self.nodes
                .get(parent)
                .and_then(|p| rustix::fs::unlinkat(&*p, name, AtFlags::REMOVEDIR)),
            reply,
        );
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
        done(renamed, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let flags = OFlags::from_bits_retain(flags.0 as u32) - OFlags::NOFOLLOW;
        match self.open_node(ino, flags) {
            Ok(file) => reply.opened(self.handles.add(file), fopen(flags)),
            Err(e) => reply.error(errno(e)),
        }
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
        match self.create_file((parent, name), mode, flags) {
            Ok((attr, fh, fopen)) => reply.created(&NEVER, &attr, Generation(0), fh, fopen),
            Err(e) => reply.error(errno(e)),
        }
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
            match read {
                Ok(n) => reply.data(&buffer[..n]),
                Err(e) => reply.error(errno(e)),
            }
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
        match written {
            Ok(n) => reply.written(n as u32),
            Err(e) => reply.error(errno(e)),
        }
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
        done(synced, reply);
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
        match listed {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.nodes.get(ino).and_then(|n| rustix::fs::fstatvfs(&*n)) {
            Ok(s) => reply.statfs(
                s.f_blocks,
                s.f_bfree,
                s.f_bavail,
                s.f_files,
                s.f_ffree,
                s.f_bsize as u32,
                s.f_namemax as u32,
                s.f_frsize as u32,
            ),
            Err(e) => reply.error(errno(e)),
        }
    }
}
