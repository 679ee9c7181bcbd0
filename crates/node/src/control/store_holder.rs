//! The process that holds a store, for ending it when it does not answer.
//!
//! Invariants: it is the one that the kernel names as the listener of the store's control socket, it has the store's lock file open, and it
//! runs as the store's owner; signals go through a descriptor of that process, so that none can reach another one that got its number.
use super::client::listener;
use crate::failure::{Context, Failure, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// See the head of this file.
pub struct StoreHolder {
    /// Its number.
    pub pid: u32,
    process: OwnedFd,
}

impl StoreHolder {
    /// Finds the process that serves `store`.
    ///
    /// # Errors
    /// If there is none, if it is another user's, or if it cannot be told which one it is.
    pub fn find(store: &Path) -> Result<StoreHolder> {
        let pid = listener(store)?;
        let unknown = |why: String| {
            let lock = store.join("lock");
            Failure::new(
                format!(
                    "the process that serves {} was not ended: {why}",
                    store.display()
                ),
                format!(
                    "look whose number stands in {0}, and end it with `kill -KILL $(cat {0})` where it runs",
                    lock.display()
                ),
            )
        };
        let Some(number) = Pid::from_raw(pid as i32) else {
            return Err(unknown("it cannot be seen from this PID namespace".into()));
        };
        let process = pidfd_open(number, PidfdFlags::empty()).or_fail(
            format!("cannot open process {pid}"),
            "it may have ended; try again",
        )?;
        match holds_lock(pid, store) {
            Ok(true) => Ok(StoreHolder { pid, process }),
            Ok(false) => Err(unknown(format!("process {pid} does not hold its lock"))),
            Err(e) => Err(unknown(format!("cannot look at process {pid}: {e}"))),
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// If it has ended, or may not be signalled.
    pub fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        pidfd_send_signal(&self.process, signal)
    }

    /// Waits until it has ended, `limit` at most; whether it has.
    pub fn wait(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // A time too long for the kernel is no limit; ours are seconds.
            let Ok(left) = Timespec::try_from(left) else {
                return false;
            };
            let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) => return false,
                Ok(_) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return !crate::processes::lives(self.pid),
            }
        }
    }
}

/// Whether process `pid` has the lock file of `store` open.
fn holds_lock(pid: u32, store: &Path) -> std::io::Result<bool> {
    let lock = std::fs::symlink_metadata(store.join("lock"))?;
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        // By its name first: asking for the attributes of a file on a disk that hangs would wait for it. One that was closed meanwhile is
        // not it.
        let path = entry?.path();
        if !std::fs::read_link(&path).is_ok_and(|file| file.ends_with("lock")) {
            continue;
        }
        let file = std::fs::metadata(path);
        if file.is_ok_and(|f| (f.dev(), f.ino()) == (lock.dev(), lock.ino())) {
            return Ok(true);
        }
    }
    Ok(false)
}
