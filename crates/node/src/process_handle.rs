//! Handles of processes, to wait for their end or to signal them. A handle is a pidfd: a descriptor that becomes readable when its process
//! has ended.
//!
//! Invariants: a handle stays that of its process when the number is given to another one. A process has ended when all its threads have, so it
//! holds no lock or file any more.
use crate::processes::is_alive;
use crate::threads;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::io::PipeWriter;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// The longest wait for processes of which one cannot be held, for want of descriptors: then they are looked at again.
const UNHELD_WAIT: Duration = Duration::from_millis(200);

/// See the head of this file.
pub struct ProcessHandle {
    /// Its number.
    pub pid: u32,
    process: OwnedFd,
}

impl ProcessHandle {
    /// A handle of process `pid`.
    ///
    /// # Errors
    /// If it has ended and was waited for (`ESRCH`), or there is no descriptor.
    pub fn open(pid: u32) -> rustix::io::Result<ProcessHandle> {
        let number = Pid::from_raw(pid as i32).ok_or(Errno::SRCH)?;
        let process = rustix::process::pidfd_open(number, PidfdFlags::empty())?;
        Ok(ProcessHandle { pid, process })
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// If it has ended, or may not be signalled.
    pub fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        rustix::process::pidfd_send_signal(&self.process, signal)
    }

    /// Waits until it has ended, `limit` at most; whether it has.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut ready = [PollFd::new(&self.process, PollFlags::IN)];
        poll_within(&mut ready, limit).unwrap_or_else(|_| !is_alive(self.pid))
    }
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

impl From<ProcessHandle> for OwnedFd {
    fn from(handle: ProcessHandle) -> OwnedFd {
        handle.process
    }
}

/// Waits until one of these is ready, `limit` at most; whether one is. A signal does not end the wait.
///
/// # Errors
/// Those of poll(2) but `EINTR`.
pub fn poll_within(fds: &mut [PollFd<'_>], limit: Duration) -> rustix::io::Result<bool> {
    let end = Instant::now().checked_add(limit);
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        // A time too long for the kernel or the clock is no limit; ours are below a day.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(fds, left.as_ref()) {
            Err(Errno::INTR) => {}
            ready => return ready.map(|ready| ready > 0),
        }
    }
}

/// Waits until process `pid` has ended, `limit` at most; whether it has.
pub fn wait_for_exit(pid: u32, limit: Duration) -> bool {
    match ProcessHandle::open(pid) {
        Ok(process) => process.wait(limit),
        Err(_) => !is_alive(pid),
    }
}

/// Waits until one of these processes has ended or one of `others` is ready, `limit` at most.
pub fn wait_for_any(pids: &[u32], others: &[PollFd<'_>], limit: Duration) {
    let mut held = Vec::with_capacity(pids.len());
    let mut limit = limit;
    for pid in pids {
        match ProcessHandle::open(*pid) {
            Ok(process) => held.push(process),
            Err(Errno::SRCH) => return,
            Err(_) => limit = limit.min(UNHELD_WAIT),
        }
    }
    let ends = held
        .iter()
        .map(|process| PollFd::new(process, PollFlags::IN));
    let mut fds: Vec<PollFd<'_>> = ends.chain(others.iter().cloned()).collect();
    if let Err(e) = poll_within(&mut fds, limit) {
        tracing::debug!("cannot wait for processes: {e}");
        std::thread::park_timeout(limit.min(UNHELD_WAIT));
    }
}

/// Calls `ended` once process `pid` has ended, on a thread called `name`; not if what is returned is dropped before.
///
/// # Errors
/// A sentence for people, if there is no descriptor or thread to be had.
pub fn on_exit(
    pid: u32,
    name: &str,
    ended: impl FnOnce() + Send + 'static,
) -> Result<PipeWriter, String> {
    let (closed, open) = std::io::pipe()
        .map_err(|e| format!("cannot follow process {pid}: {e}; raise the limit on open files"))?;
    let follow = move || {
        if ends_before(pid, &closed) {
            ended();
        }
    };
    threads::spawn(name, "a thread", follow).map_err(|e| e.text)?;
    Ok(open)
}

/// Waits until process `pid` has ended, or the other end of `open` is closed; whether the process has ended.
fn ends_before(pid: u32, open: &impl AsFd) -> bool {
    loop {
        if !is_alive(pid) {
            return true;
        }
        let mut closed = [PollFd::new(open, PollFlags::IN)];
        wait_for_any(&[pid], &closed, Duration::MAX);
        if poll_within(&mut closed, Duration::ZERO).unwrap_or(true) {
            return false;
        }
    }
}

/// Waits for a child, `limit` at most; `None` if it still runs.
///
/// # Errors
/// If it cannot be waited for.
pub fn wait_for_child(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    // Not waited for yet, so the number is still its own.
    wait_for_exit(child.id(), limit);
    child.try_wait()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A process that ends once its standard input does.
    fn waiting() -> Child {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().unwrap()
    }

    #[test]
    fn a_child_is_waited_for_until_it_ends_and_no_longer_than_the_limit() {
        let mut child = waiting();
        let early = wait_for_child(&mut child, Duration::from_millis(1)).unwrap();
        assert_eq!(early, None);
        drop(child.stdin.take());
        let status = wait_for_child(&mut child, Duration::from_secs(60)).unwrap();
        assert_eq!(status.and_then(|s| s.code()), Some(0));
        assert!(wait_for_exit(child.id(), Duration::ZERO));
    }

    #[test]
    fn the_first_end_of_a_process_or_of_a_pipe_ends_the_wait() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut child = waiting();
        drop(child.stdin.take());
        assert!(ends_before(child.id(), &reader));
        child.wait().unwrap();
        drop(writer);
        assert!(!ends_before(std::process::id(), &reader));
    }
}
