//! The process that holds a store, for ending it when it does not answer.
//!
//! Invariants: it is the process that the kernel names as the listener of the store's control socket; it has the store's lock file
//! open; it runs as the store's owner. Signals go through a handle of that process, so none reaches another process that got its
//! number.
use super::client::listener;
use crate::failure::{Context, Failure, Result};
use crate::process_handle::ProcessHandle;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Finds the process that serves `store`.
///
/// # Errors
/// If there is none, if it is another user's, or if it cannot be told which one it is.
pub fn store_holder(store: &Path) -> Result<ProcessHandle> {
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
    if pid == 0 {
        return Err(unknown("it cannot be seen from this PID namespace".into()));
    }
    let process = ProcessHandle::open(pid).or_fail(
        format!("cannot open process {pid}"),
        "it may have ended; try again",
    )?;
    match holds_lock(pid, store) {
        Ok(true) => Ok(process),
        Ok(false) => Err(unknown(format!("process {pid} does not hold its lock"))),
        Err(e) => Err(unknown(format!("cannot look at process {pid}: {e}"))),
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
