//! A minimal pass-through file system: every request becomes a system call on a directory. It shows what FUSE itself costs,
//! so that Forebay is compared with the best a mount can do.
//!
//! It uses the crate `fuser` and the same class of settings as Forebay: as many threads, cloned device descriptors, the
//! same request sizes and readahead, no writeback cache, time-outs of names and attributes 0, pages kept over opens, no
//! FLUSH for read-only handles. With `--writeback` the kernel keeps written pages until the file is synced or closed, or memory
//! is short (`FUSE_WRITEBACK_CACHE`); names and attributes are then valid for a second, as libfuse's pass-through has it: with a
//! time-out of 0 the kernel would ask for the mode before every write. What passes through is what the benchmark's cases need,
//! and a little more for its tests.

mod attrs;
mod directory;
mod nodes;
mod requests;

use crate::fail::Result;
use directory::Directory;
use fuser::{BackgroundSession, Config, InitFlags, KernelConfig, MountOption};
use rustix::fs::{Mode, OFlags};
use std::io::{self, Read};
use std::path::Path;

const MAX_WRITE: u32 = 1 << 20;
const READAHEAD: u32 = 4 << 20;
const BACKGROUND: u16 = 64;

/// Serves `source` on `point` until standard input ends: the benchmark holds the other end, so the mount goes with it.
///
/// # Errors
/// If it cannot be mounted.
pub fn serve(source: &Path, point: &Path, writeback: bool) -> Result<()> {
    rustix::process::umask(Mode::empty());
    raise_open_files();
    let session = mount(source, point, writeback)?;
    println!("ready");
    let _ = io::stdin().read_to_end(&mut Vec::new());
    session.umount_and_join()?;
    Ok(())
}

fn mount(source: &Path, point: &Path, writeback: bool) -> Result<BackgroundSession> {
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
    let session = fuser::spawn_mount(Directory::new(root, writeback)?, point, &config)?;
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

/// The same class of settings as Forebay's.
///
/// # Errors
/// If the writeback cache is wanted and the kernel has none.
fn agree(config: &mut KernelConfig, writeback: bool) -> io::Result<()> {
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
    if writeback {
        let wanted = config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE);
        wanted.map_err(|_| io::Error::other("this kernel's FUSE has no writeback cache"))?;
    }
    Ok(())
}
