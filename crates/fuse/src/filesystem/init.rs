//! What a mount and the kernel agree on before the first request.
use super::Filesystem;
use crate::protocol::{InitFlags, KernelConfig};
use std::io;

/// Requests of readahead and direct I/O in flight at once.
const MAX_BACKGROUND: u16 = 64;

impl Filesystem {
    /// Asks the kernel for what the mount can use.
    ///
    /// # Errors
    /// It cannot hand over locks, and with several members it must.
    pub(super) fn agree(&self, config: &mut KernelConfig) -> io::Result<()> {
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
        if !self.policy.alone {
            // Else the kernel keeps locks itself, on this node only.
            let locks = InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS;
            config.add_capabilities(locks).map_err(|lacking| {
                io::Error::other(format!(
                    "this kernel lacks {lacking:?}: locks would bind one node only"
                ))
            })?;
        }
        config.set_max_write(self.options.max_write);
        // The kernel offers its default and takes no more; `mount` raises it afterwards where it may.
        config.set_max_readahead(self.options.readahead);
        config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }
}
