//! A file handle as the kernel sees it. It carries what each request must know beside the delegate's handle:
//!
//! ```text
//! bits 63..3   the delegate's handle
//! bit  2       DIRECT: the page cache is bypassed
//! bit  1       READ: opened for reading
//! bit  0       WRITE: opened for writing
//! ```
use crate::protocol::{self, FileHandle};
use forebay_server::OpenFlags;
use forebay_server::delegate::Handle;

pub(super) const WRITE: u64 = 1;
pub(super) const READ: u64 = 2;
pub(super) const DIRECT: u64 = 4;
const FLAG_BITS: u32 = 3;

/// The delegate's handle in the kernel's.
pub(super) fn handle(fh: FileHandle) -> Handle {
    fh.0 >> FLAG_BITS
}

pub(super) fn has(fh: FileHandle, bit: u64) -> bool {
    fh.0 & bit != 0
}

pub(super) fn encode(handle: Handle, flags: OpenFlags, direct: bool) -> FileHandle {
    let bit = |on: bool, bit| if on { bit } else { 0 };
    let flags = bit(flags.read, READ) | bit(flags.write, WRITE) | bit(direct, DIRECT);
    FileHandle(handle << FLAG_BITS | flags)
}

/// What `open` was given, in the service's terms.
pub(super) fn open_flags(flags: protocol::OpenFlags) -> OpenFlags {
    OpenFlags {
        read: flags.reads(),
        write: flags.writes(),
        append: flags.writes() && flags.0 & libc::O_APPEND != 0,
        truncate: flags.0 & libc::O_TRUNC != 0,
    }
}
