//! A small process that outlives a server only to detach its mounts, should the server be killed.
//!
//! A launcher kills all servers of a job when one dies; what they had mounted would stay, dead, in everybody's way. The
//! watcher holds the reading end of a pipe whose other end ends with the server; then it detaches what is still mounted
//! from the server's store. It has a session of its own, so that what is sent to the server's group does not reach it.
use crate::fail::{Context, Result};
use crate::mount_table::{self, How};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long the threads of a server may go on after its end of the pipe has closed.
const LAST: Duration = Duration::from_secs(20);

/// Starts the watcher of this process's mounts of `store`. Before the process becomes one that must not fork.
///
/// # Errors
/// If there is no process to be had.
pub fn start(store: &Path) -> Result {
    let mut child = Command::new("/proc/self/exe")
        .arg0("forebay")
        .arg("__watch")
        .arg(std::process::id().to_string())
        .arg(store)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .or_fail(
            "cannot start the process that watches the mounts",
            "raise the limit on processes (ulimit -u)",
        )?;
    // Open as long as this process lives; nothing is ever written.
    std::mem::forget(child.stdin.take());
    Ok(())
}

/// The hidden verb: waits for the end of `server`, then detaches what it has left mounted from `store`.
///
/// # Errors
/// If a mount cannot be detached.
pub fn run(server: u32, store: &Path) -> Result {
    // Fails only if it leads a session already.
    let _ = rustix::process::setsid();
    // A cancelled job ends all its processes with these; this one is there for the end.
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, ignored.clone())
            .or_fail("cannot catch signals", "report this")?;
    }
    // The directory it was started in does not matter, and must not be kept.
    let _ = std::env::set_current_dir("/");
    // Ends when the other end is closed, well or not.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let end = Instant::now() + LAST;
    while crate::processes::lives(server) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut result = Ok(());
    for mount in mount_table::all()? {
        // The next server of this store would have detached them itself; what is there while one runs is its own.
        if mount_table::store(&mount).as_deref() == Some(store) && !served(store) {
            result = result.and(mount_table::unmount(&mount.point, How::Detach));
        }
    }
    result
}

/// Whether a process holds the store's lock.
fn served(store: &Path) -> bool {
    let Ok(lock) = std::fs::File::open(store.join("lock")) else {
        return false;
    };
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
}
