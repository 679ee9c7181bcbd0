//! A small process that clears up after a server that was killed: the **mount cleaner**.
//!
//! A launcher kills all servers of a job when one dies. Their mounts would stay, dead. The cleaner holds the reading end of a pipe
//! whose other end ends with the server. Then it detaches what is still mounted from the server's store, and removes its control
//! socket. It has a session of its own, so signals to the server's process group do not reach it, and nothing open but that pipe.
//!
//! Invariants:
//! - A dead mount stays as long as its **users** run: `forebay run` or the launcher, the guard of the command, and ranks on this
//!   machine that have used the mount. Users get errors from a dead mount; the bare directory below would take their files without
//!   an error. A server that leaves its mounts behind writes into the pipe which process groups have used them, one a line.
//! - What is cleared up is cleared up under the store's lock, so the next server of the store is never touched.
use crate::failure::{Context, Result};
use crate::mount_table::{self, MountChanges};
use crate::process_handle::{ProcessHandle, wait_for_any};
use crate::processes;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::FlockOperation;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long the threads of a server may go on after its end of the pipe has closed.
const SERVER_END_LIMIT: Duration = Duration::from_secs(20);

/// Mounts and processes are looked at again after this long, though no change was told.
const RECHECK: Duration = Duration::from_secs(30);

/// The other end of the watcher's pipe.
static CLEANER_PIPE: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// Tells the watcher, if this process has one, which process groups have used the mounts that it leaves behind.
pub fn tell_callers(groups: &BTreeSet<u32>) {
    let mut watcher = CLEANER_PIPE.lock();
    if let Some(watcher) = watcher.as_mut() {
        let lines: String = groups.iter().map(|group| format!("{group}\n")).collect();
        // Fails only if the watcher has ended, and then nobody wants to know. It reads all the time.
        let _ = watcher.write_all(lines.as_bytes());
    }
}

/// Starts the watcher of this process's mounts of `store`, for as long as the processes `users` run. Before the process
/// becomes one that must not fork.
///
/// # Errors
/// If there is no process to be had.
pub fn start(store: &Path, users: &[u32]) -> Result {
    let mut child = Command::new("/proc/self/exe")
        .arg0("forebay")
        .arg("__watch")
        .arg(std::process::id().to_string())
        .arg(store)
        .args(users.iter().map(u32::to_string))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .or_fail(
            "cannot start the process that watches the mounts",
            "raise the limit on processes (ulimit -u)",
        )?;
    // Open as long as this process lives.
    *CLEANER_PIPE.lock() = child.stdin.take();
    Ok(())
}

/// The hidden subcommand: waits for the end of `server`, then of `users`, then clears up what is left of its service of `store`.
///
/// # Errors
/// If a mount cannot be detached.
pub fn run(server: u32, store: &Path, users: &[u32]) -> Result {
    close_inherited();
    // Fails only if it leads a session already.
    let _ = rustix::process::setsid();
    // A cancelled job ends all its processes with these; this one is there for the end.
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, ignored.clone())
            .or_fail("cannot catch signals", "report this")?;
    }
    // Held from now on: later a number may be another process's.
    let serving = ProcessHandle::open(server);
    let users_held = users
        .iter()
        .filter_map(|pid| ProcessHandle::open(*pid).ok());
    let users_held: Vec<ProcessHandle> = users_held.collect();
    // The directory it was started in does not matter, and must not be kept.
    let _ = std::env::set_current_dir("/");
    let mut said = Vec::new();
    // Ends when the other end is closed, well or not.
    let _ = std::io::stdin().read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    let callers = said.lines().filter_map(|line| line.parse().ok()).collect();
    if let Ok(serving) = serving {
        serving.wait(SERVER_END_LIMIT);
    }
    // Somebody else may clear up meanwhile.
    let changes = MountChanges::watch()?;
    for user in &users_held {
        while is_mounted(store)? && !user.wait(Duration::ZERO) {
            let ready = [PollFd::new(user, PollFlags::IN), changes.ready()];
            wait_for_any(&[], &ready, RECHECK);
        }
    }
    // What `run` has started ends a moment after it. Under Slurm nobody is waited for, see `users` of `launcher`.
    while !users.is_empty() && is_mounted(store)? {
        let mut rest = processes::guards(users);
        rest.extend(processes::ranks(&callers));
        if rest.is_empty() {
            break;
        }
        wait_for_any(&rest, &[changes.ready()], RECHECK);
    }
    let lock = std::fs::File::open(store.join("lock"));
    if let Ok(lock) = &lock
        && rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_err()
    {
        // The next server has it, and has cleared up already.
        return Ok(());
    }
    let mut result = Ok(());
    for mount in mount_table::of_store(store)? {
        result = result.and(mount_table::detach(&mount.point));
    }
    crate::control::remove_left(store);
    forebay_client::link::remove_left_sockets(store);
    result
}

/// Closes what the launcher has left open for its servers and they for their children: a launcher that sees one of these
/// open takes its server for alive.
fn close_inherited() {
    // SAFETY: the first thing this process does; nothing in it owns or uses a descriptor above standard error yet.
    // Fails only on kernels before 5.9, where a launcher may take longer to notice a death.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

fn is_mounted(store: &Path) -> Result<bool> {
    Ok(!mount_table::of_store(store)?.is_empty())
}
