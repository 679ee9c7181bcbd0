//! Stopping a process by a signal, so that it does nothing more.
//!
//! `kill` returns before the process is stopped: the kernel gives `SIGSTOP` to one thread, and the others run on until that
//! one has been scheduled. On a busy machine that is long enough to answer a request.
use rustix::process::{Pid, Signal, kill_process};

/// Stops the process `pid` and waits until none of its threads runs.
///
/// # Panics
/// If there is no such process, or it is not stopped within [`crate::wait::LIMIT`].
#[track_caller]
pub fn stop_process(pid: Pid) {
    kill_process(pid, Signal::STOP).expect("the process runs");
    crate::wait::until("all threads of the process are stopped", || is_stopped(pid));
}

/// Whether every thread of `pid` is stopped or has ended.
fn is_stopped(pid: Pid) -> bool {
    let threads = format!("/proc/{}/task", pid.as_raw_nonzero());
    let threads = std::fs::read_dir(threads).expect("the process runs");
    threads.flatten().all(|thread| {
        // It may have ended since.
        let Ok(status) = std::fs::read_to_string(thread.path().join("stat")) else {
            return true;
        };
        // The state follows the name, which is in brackets and may hold any byte.
        status
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.starts_with(" T"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_stopped_process_is_stopped_at_once_and_goes_on() {
        let mut child = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        assert!(!is_stopped(pid));
        stop_process(pid);
        assert!(is_stopped(pid));
        kill_process(pid, Signal::CONT).unwrap();
        crate::wait::until("it goes on", || !is_stopped(pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
