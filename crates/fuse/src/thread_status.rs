//! The thread that made a request, as `/proc` shows it: whether it has a pending signal, which call it is in, and its groups.
//!
//! A call that waits for a lock ends with `EINTR` only if the thread that made it will certainly handle a signal when the call
//! returns. Otherwise the kernel would pass its internal "restart" code on to the program. Such a signal is one pending for the
//! thread; or one pending for its process, if the thread is the only one or the first, which the kernel wakes before others. A
//! fatal signal, SIGKILL above all, is pending on each thread by itself.
use std::fs;
use std::io::{self, ErrorKind};

/// `fcntl` on an open file's own locks, without and with waiting.
const OPEN_FILE: [u64; 2] = [37, 38];

/// See the head of this file.
pub(crate) struct ThreadStatus {
    /// As this process's `/proc` numbers it; 0: the kernel cannot say (another process namespace).
    thread: u32,
    seen: bool,
}

impl ThreadStatus {
    pub(crate) fn new(thread: u32) -> ThreadStatus {
        ThreadStatus {
            thread,
            seen: false,
        }
    }

    fn status(&self) -> io::Result<String> {
        fs::read_to_string(format!("/proc/{}/status", self.thread))
    }

    /// Whether the call shall end: it has a signal to take, or is gone. False where `/proc` does not show it.
    pub(crate) fn interrupted(&mut self) -> bool {
        if self.thread == 0 {
            return false;
        }
        match self.status() {
            Ok(status) => {
                self.seen = true;
                signalled(&status).unwrap_or(false)
            }
            // ESRCH: it went between opening and reading.
            Err(e) => {
                self.seen
                    && (e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH))
            }
        }
    }

    /// Whether it has been killed and waits for an answer. False where `/proc` does not show it.
    pub(crate) fn killed(&self) -> bool {
        self.status().is_ok_and(|status| killed(&status))
    }

    /// The groups that it is in besides its first one. `None` where `/proc` does not show it.
    pub(crate) fn groups(&self) -> Option<Vec<u32>> {
        groups(&self.status().ok()?)
    }

    /// Whether it asks for a lock of an open file, for which the kernel looks for no deadlocks. False where that may not be
    /// seen (it takes the right to trace the caller).
    pub(crate) fn asks_for_open_file(&self) -> bool {
        // It may not have gone to sleep yet; then the file says `running`.
        for _ in 0..10 {
            match fs::read_to_string(format!("/proc/{}/syscall", self.thread)) {
                Ok(text) if text.trim() == "running" => std::thread::yield_now(),
                Ok(text) => return command(&text).is_some_and(|c| OPEN_FILE.contains(&c)),
                Err(_) => return false,
            }
        }
        false
    }
}

/// The second argument in `number argument argument ...`.
fn command(syscall: &str) -> Option<u64> {
    let second = syscall.split(' ').nth(2)?.strip_prefix("0x")?;
    u64::from_str_radix(second, 16).ok()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

fn groups(status: &str) -> Option<Vec<u32>> {
    let listed = field(status, "Groups")?.split_whitespace();
    listed.map(|group| group.parse().ok()).collect()
}

fn mask(status: &str, name: &str) -> Option<u64> {
    u64::from_str_radix(field(status, name)?, 16).ok()
}

/// A signal that ends the process is a SIGKILL for each of its threads.
fn killed(status: &str) -> bool {
    let pending = ["SigPnd", "ShdPnd"].map(|name| mask(status, name).unwrap_or(0));
    pending
        .iter()
        .any(|mask| mask & 1 << (libc::SIGKILL - 1) != 0)
}

fn signalled(status: &str) -> Option<bool> {
    let field = |name: &str| field(status, name);
    let mask = |name| mask(status, name);
    let taken = !mask("SigBlk")?;
    let first = field("Threads")? == "1" || field("Tgid")? == field("Pid")?;
    let shared = if first { mask("ShdPnd")? } else { 0 };
    Some((mask("SigPnd")? | shared) & taken != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pid: u32, threads: u32, own: u64, shared: u64, blocked: u64) -> String {
        format!(
            "Name:\tx\nTgid:\t7\nNgid:\t0\nPid:\t{pid}\nThreads:\t{threads}\nSigQ:\t0/1\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n"
        )
    }

    #[test]
    fn a_signal_counts_if_this_thread_will_take_it() {
        let alarm = 1 << (libc::SIGALRM - 1);
        assert_eq!(signalled(&status(7, 1, 0, 0, 0)), Some(false));
        assert_eq!(signalled(&status(7, 1, 0, alarm, 0)), Some(true));
        assert_eq!(signalled(&status(7, 1, 0, alarm, alarm)), Some(false));
        assert_eq!(signalled(&status(7, 3, 0, alarm, 0)), Some(true));
        assert_eq!(signalled(&status(8, 3, 0, alarm, 0)), Some(false));
        assert_eq!(
            signalled(&status(8, 3, 1 << (libc::SIGKILL - 1), 0, 0)),
            Some(true)
        );
        assert_eq!(signalled("nonsense"), None);
    }

    #[test]
    fn only_what_ends_the_process_kills() {
        let bit = |signal: i32| 1u64 << (signal - 1);
        assert!(!killed(&status(
            7,
            1,
            bit(libc::SIGTERM),
            bit(libc::SIGPROF),
            0
        )));
        assert!(killed(&status(8, 3, bit(libc::SIGKILL), 0, 0)));
        assert!(killed(&status(7, 1, 0, bit(libc::SIGKILL), u64::MAX)));
        assert!(!killed("nonsense"));
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(!ThreadStatus::new(own).killed());
        // One that is gone needs no answer any more.
        assert!(!ThreadStatus::new(u32::MAX >> 1).killed());
    }

    #[test]
    fn the_command_of_a_call_is_its_second_argument() {
        assert_eq!(
            command("72 0x3 0x26 0x7ffc 0x0 0x0 0x0 0x7ffc 0x7f\n"),
            Some(38)
        );
        assert_eq!(command("running\n"), None);
    }

    #[test]
    fn groups_are_all_that_are_listed() {
        assert_eq!(
            groups("Uid:\t8\nGroups:\t4 24 1000 \nX:\t1\n"),
            Some(vec![4, 24, 1000])
        );
        assert_eq!(groups("Groups:\t \n"), Some(vec![]));
        assert_eq!(groups("Groups:\t4 x\n"), None);
        assert_eq!(groups("Uid:\t8\n"), None);
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let mut seen = ThreadStatus::new(own).groups().unwrap();
        let all = rustix::process::getgroups().unwrap();
        let mut all: Vec<u32> = all.into_iter().map(|group| group.as_raw()).collect();
        seen.sort_unstable();
        all.sort_unstable();
        assert_eq!(seen, all);
        assert_eq!(ThreadStatus::new(0).groups(), None);
    }

    #[test]
    fn this_thread_is_not_interrupted_and_one_that_never_was_is_unknown() {
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(!ThreadStatus::new(own).interrupted());
        assert!(!ThreadStatus::new(0).interrupted());
        assert!(!ThreadStatus::new(u32::MAX >> 1).interrupted());
    }
}
