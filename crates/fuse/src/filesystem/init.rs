//! The features of FUSE that the mount asks the kernel for, before the first request.
use super::write_back::WriteBack;
use crate::options::READAHEAD;
use crate::protocol::{InitFlags, KernelConfig};
use std::io;

/// Requests of readahead and direct I/O in flight at once.
const MAX_BACKGROUND: u16 = 64;
/// Most bytes of one write request; the kernel may allow less (1 MiB unless `fs.fuse.max_pages_limit` was raised).
const MAX_WRITE: u32 = 1 << 20;

/// Asks the kernel for what the mount can use.
///
/// # Errors
/// It cannot hand over locks: they would bind the programs of this mount alone, not those of other nodes and of the link.
pub(super) fn negotiate(config: &mut KernelConfig, write_back: &WriteBack) -> io::Result<()> {
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
    let locks = InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS;
    config.add_capabilities(locks).map_err(|lacking| {
        io::Error::other(format!(
            "this kernel lacks {lacking:?}: locks would bind the programs of one mount only"
        ))
    })?;
    write_back.negotiate(config);
    config.max_write = MAX_WRITE;
    // The kernel offers its default and takes no more; `mount` raises it afterwards where it may.
    config.readahead = config.readahead.min(READAHEAD);
    config.background = MAX_BACKGROUND;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::write_back::WriteBackConditions;
    use super::*;

    /// Whether dirty pages are kept, where everything but `lacking` is offered.
    fn keeps(conditions: WriteBackConditions, lacking: InitFlags) -> bool {
        let write_back = WriteBack::for_conditions(conditions);
        let offered = InitFlags::all().difference(lacking);
        let mut config = KernelConfig::new(offered, InitFlags::empty(), 1 << 20);
        negotiate(&mut config, &write_back).unwrap();
        let taken = config.takes(InitFlags::FUSE_WRITEBACK_CACHE);
        assert_eq!(write_back.is_on(), taken, "{conditions:?}");
        taken
    }

    #[test]
    fn one_member_alone_has_the_kernel_keep_written_pages() {
        let good = WriteBackConditions {
            members: 1,
            posix: false,
            read_only: false,
            allowed: true,
            free: u64::MAX,
        };
        for n in 0..32usize {
            let bit = |at: u32| n >> at & 1 != 0;
            let conditions = WriteBackConditions {
                members: [1, 2, 4, 64][n & 3],
                posix: bit(2),
                read_only: bit(3),
                allowed: bit(4),
                free: u64::MAX,
            };
            let alone = conditions.members == 1 && !bit(2) && !bit(3) && bit(4);
            assert_eq!(
                keeps(conditions, InitFlags::empty()),
                alone,
                "{conditions:?}"
            );
        }
        assert!(keeps(good, InitFlags::FUSE_CACHE_SYMLINKS));
        for lacking in [
            InitFlags::FUSE_WRITEBACK_CACHE,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
        ] {
            assert!(!keeps(good, lacking), "{lacking:?}");
        }
    }
}
