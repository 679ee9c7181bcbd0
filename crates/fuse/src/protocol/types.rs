//! Basic types of the protocol. An inode's number is the file's [`Fid`].
use forebay_server::delegate::{ProgramThread, RequestOrigin};
use forebay_server::{Caller, Fid};
use std::num::NonZeroU32;

/// What the kernel calls an open file, chosen by the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileHandle(pub u64);

/// The head of a request: who asks, and about what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// The kernel's number of the request.
    pub unique: u64,
    /// The file or directory; where a request names an entry, the directory that has it.
    pub fid: Fid,
    pub caller: Caller,
    /// The thread, as this process's `/proc` numbers it; 0: the kernel cannot say.
    pub pid: u32,
}

impl Request {
    /// The thread, if the kernel can say which.
    pub fn thread(&self) -> ProgramThread {
        NonZeroU32::new(self.pid)
    }

    /// Who asks.
    pub fn origin(&self) -> RequestOrigin {
        RequestOrigin {
            caller: self.caller,
            thread: self.thread(),
        }
    }
}

/// As `open` was given them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenFlags(pub i32);

impl OpenFlags {
    pub fn reads(self) -> bool {
        self.0 & libc::O_ACCMODE != libc::O_WRONLY
    }
    /// Both for 3 too, which is hardly ever used.
    pub fn writes(self) -> bool {
        self.0 & libc::O_ACCMODE != libc::O_RDONLY
    }
}

bitflags::bitflags! {
    /// What the kernel may do with an opened file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct FopenFlags: u32 {
        const FOPEN_DIRECT_IO = 1 << 0;
        const FOPEN_KEEP_CACHE = 1 << 1;
        const FOPEN_PARALLEL_DIRECT_WRITES = 1 << 6;
    }

    /// How a write came about.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct WriteFlags: u32 {
        const FUSE_WRITE_CACHE = 1 << 0;
        const FUSE_WRITE_KILL_SUIDGID = 1 << 2;
        const _ = !0;
    }

    /// Of `renameat2`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct RenameFlags: u32 {
        const RENAME_NOREPLACE = 1 << 0;
        const RENAME_EXCHANGE = 1 << 1;
        const _ = !0;
    }

    /// What kernel and mount agree on.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct InitFlags: u64 {
        const FUSE_ASYNC_READ = 1 << 0;
        const FUSE_POSIX_LOCKS = 1 << 1;
        const FUSE_ATOMIC_O_TRUNC = 1 << 3;
        const FUSE_EXPORT_SUPPORT = 1 << 4;
        const FUSE_BIG_WRITES = 1 << 5;
        const FUSE_FLOCK_LOCKS = 1 << 10;
        const FUSE_AUTO_INVAL_DATA = 1 << 12;
        const FUSE_ASYNC_DIO = 1 << 15;
        const FUSE_WRITEBACK_CACHE = 1 << 16;
        const FUSE_PARALLEL_DIROPS = 1 << 18;
        const FUSE_MAX_PAGES = 1 << 22;
        const FUSE_CACHE_SYMLINKS = 1 << 23;
        const FUSE_EXPLICIT_INVAL_DATA = 1 << 25;
        const FUSE_HANDLE_KILLPRIV_V2 = 1 << 28;
        const FUSE_INIT_EXT = 1 << 30;
        const FUSE_HAS_EXPIRE_ONLY = 1 << 35;
        const FUSE_DIRECT_IO_ALLOW_MMAP = 1 << 36;
        const _ = !0;
    }
}
