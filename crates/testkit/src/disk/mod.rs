//! A recording disk: a block device that remembers every write and every flush, so that a power cut at any point of them
//! can be looked at.
//!
//! ```text
//!  program -> ext4 -> /dev/loopN -> disk.img on FUSE -> `server`: spool of writes and flushes
//!                                                           |
//!                            `recording`: cut at an event, with a seed -> image file -> ext4, again
//! ```
//!
//! # The fault model
//! What was written before the last flush that completed is on the disk. Of each later write, by the seed, nothing,
//! all, or some of its 512-byte sectors are; a sector is never torn. So unflushed writes are lost, reordered and torn.
//!
//! # Processes
//! The server of the disk must be a process that uses no file on it: it would wait for itself, and could not even be killed.
//! So a test has three: the server ([`serve`]), the test, which mounts ([`Mounted`]) and cuts ([`Recording`]), and what is
//! tested. All of them live in a mount namespace of their own ([`can_record`] says what that needs), which takes mounts
//! and loop devices along when its last process ends, however it ends.
mod mounted;
mod recording;
mod server;

pub use mounted::{Mounted, make_ext4};
pub use recording::{Loss, Recording, position};
pub use server::serve;

use crate::prerequisites::{program, skip};
use std::path::Path;

/// The file that is the disk, in the directory that [`serve`] is given.
pub const IMAGE: &str = "disk.img";

/// Whether a recording disk can be had here; says why not, and fails where it must (`FOREBAY_REQUIRE_DISK`).
///
/// # Panics
/// If the variable is set and something is missing.
pub fn can_record() -> bool {
    let missing = match () {
        () if !rustix::process::geteuid().is_root() => Some("root's rights"),
        () if !Path::new("/dev/fuse").exists() => Some("/dev/fuse"),
        () if !Path::new("/dev/loop-control").exists() => Some("loop devices"),
        () if program("mkfs.ext4").is_none() => Some("mkfs.ext4"),
        () if program("unshare").is_none() => Some("unshare"),
        () => None,
    };
    let Some(missing) = missing else { return true };
    skip(
        "DISK",
        format_args!("a recording disk needs {missing}, which is not there"),
    );
    false
}
