//! The features of FUSE that the mount asks the kernel for, before the first request.
use crate::options::READAHEAD;
use crate::protocol::{InitFlags, KernelConfig};
use std::io;

/// Requests of readahead and direct I/O in flight at once.
const MAX_BACKGROUND: u16 = 64;
/// Most bytes of one write request; the kernel may allow less (1 MiB unless `fs.fuse.max_pages_limit` was raised).
const MAX_WRITE: u32 = 1 << 20;

/// Asks the kernel for what the mount can use; `alone`: the service has one member.
///
/// # Errors
/// It cannot hand over locks, and with several members it must.
pub(super) fn agree(config: &mut KernelConfig, alone: bool) -> io::Result<()> {
    // Each is asked for on its own: a kernel that lacks one keeps the others.
    for wanted in [
        InitFlags::FUSE_ASYNC_READ,
        InitFlags::FUSE_BIG_WRITES,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_ATOMIC_O_TRUNC,
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_CACHE_SYMLINKS,
        InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        InitFlags::FUSE_EXPORT_SUPPORT,
    ] {
        if config.add_capabilities(wanted).is_err() {
            tracing::debug!(?wanted, "not offered by this kernel");
        }
    }
    if !alone {
        // Else the kernel keeps locks itself, on this node only.
        let locks = InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS;
        config.add_capabilities(locks).map_err(|lacking| {
            io::Error::other(format!(
                "this kernel lacks {lacking:?}: locks would bind one node only"
            ))
        })?;
    }
    config.max_write = MAX_WRITE;
    // The kernel offers its default and takes no more; `mount` raises it afterwards where it may.
    config.readahead = config.readahead.min(READAHEAD);
    config.background = MAX_BACKGROUND;
    Ok(())
}
