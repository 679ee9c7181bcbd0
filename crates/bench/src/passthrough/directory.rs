//! The directory behind the mount: inodes that the kernel knows, open files, and what takes more than one system call.
use super::attrs::{self, file_attr};
use super::nodes::{Handles, Nodes};
use fuser::{FileHandle, FopenFlags, INodeNo, TimeOrNow};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

/// A directory, as system calls see it.
pub(super) struct Directory {
    pub(super) nodes: Nodes,
    pub(super) handles: Handles,
    /// The kernel holds written pages back.
    pub(super) writeback: bool,
}

pub(super) type SyscallResult<T> = std::result::Result<T, Errno>;

impl Directory {
    pub(super) fn new(root: OwnedFd, writeback: bool) -> SyscallResult<Directory> {
        Ok(Directory {
            nodes: Nodes::new(root)?,
            handles: Handles::default(),
            writeback,
        })
    }

    pub(super) fn enter(&self, parent: INodeNo, name: &OsStr) -> SyscallResult<fuser::FileAttr> {
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

    pub(super) fn stat(
        &self,
        ino: INodeNo,
        fh: Option<FileHandle>,
    ) -> SyscallResult<fuser::FileAttr> {
        let stat = match fh.and_then(|fh| self.handles.get(fh).ok()) {
            Some(file) => rustix::fs::fstat(&*file)?,
            None => rustix::fs::fstat(&*self.nodes.get(ino)?)?,
        };
        Ok(file_attr(ino, &stat))
    }

    pub(super) fn open_node(&self, ino: INodeNo, flags: OFlags) -> SyscallResult<OwnedFd> {
        let node = self.nodes.get(ino)?;
        rustix::fs::open(proc_path(&*node), flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// How to open a file below that was opened with `flags`. A kernel that holds pages back reads the rest of a page of which a
    /// part is written, so every handle must be readable; and it places appended bytes itself.
    pub(super) fn flags_below(&self, flags: OFlags) -> OFlags {
        if !self.writeback {
            return flags;
        }
        let flags = flags - OFlags::APPEND;
        match flags & OFlags::RWMODE == OFlags::WRONLY {
            true => (flags - OFlags::RWMODE) | OFlags::RDWR,
            false => flags,
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn change(
        &self,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        times: (Option<TimeOrNow>, Option<TimeOrNow>),
        fh: Option<FileHandle>,
    ) -> SyscallResult<fuser::FileAttr> {
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

    pub(super) fn remove(&self, parent: INodeNo, name: &OsStr, how: AtFlags) -> SyscallResult<()> {
        rustix::fs::unlinkat(&*self.nodes.get(parent)?, name, how)
    }

    pub(super) fn create_file(
        &self,
        at: (INodeNo, &OsStr),
        mode: u32,
        flags: i32,
    ) -> SyscallResult<(fuser::FileAttr, FileHandle, FopenFlags)> {
        let parent = self.nodes.get(at.0)?;
        let flags = OFlags::from_bits_retain(flags as u32);
        let file = rustix::fs::openat(
            &*parent,
            at.1,
            self.flags_below(flags) | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::from_raw_mode(mode),
        )?;
        let attr = self.enter(at.0, at.1)?;
        Ok((attr, self.handles.add(file), fopen(flags)))
    }
}

/// A read-only handle has nothing to flush.
pub(super) fn fopen(flags: OFlags) -> FopenFlags {
    match flags & OFlags::RWMODE == OFlags::RDONLY {
        true => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
        false => FopenFlags::FOPEN_KEEP_CACHE,
    }
}

fn proc_path(fd: &impl AsFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}
