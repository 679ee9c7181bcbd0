//! Looking up paths of the mount from the process that serves it: so the kernel hears what no notification can tell it,
//! as that a file has become shorter.
//!
//! Invariants:
//! - Look-ups run on threads of their own, which hold no descriptor of the connection: their descriptor table is not
//!   shared with the process, and empty. So when the process is killed, the connection closes even while a look-up waits
//!   for an answer, and the look-up ends. (A thread that shares the table would keep the process from ending.)
//! - Threads that answer requests never wait for a look-up.
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::thread::{Pid, UnshareFlags};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One that waits for a dead member must not hold up all others.
const THREADS: usize = 4;
/// Stack of a thread; it does little.
const STACK: usize = 128 << 10;

struct LookupRequest {
    path: PathBuf,
    done: SyncSender<Result<u64, Errno>>,
}

/// See the head of this file. The threads end when it is dropped.
pub(crate) struct OwnLookups {
    requests: Sender<LookupRequest>,
    threads: Vec<u32>,
}

impl OwnLookups {
    /// Starts the threads.
    ///
    /// # Errors
    /// No threads, or no descriptor tables of their own (Linux before 5.9; a filter of system calls).
    pub fn start() -> io::Result<OwnLookups> {
        let (requests, all) = channel();
        let all = Arc::new(Mutex::new(all));
        let (ready, started) = channel();
        for _ in 0..THREADS {
            let (all, ready) = (all.clone(), ready.clone());
            let thread = std::thread::Builder::new().name("own lookup".into());
            thread.stack_size(STACK).spawn(move || {
                let begun = leave_descriptors();
                let failed = begun.is_err();
                if ready.send(begun).is_ok() && !failed {
                    work(&all);
                }
            })?;
        }
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let thread = started.recv().map_err(io::Error::other)??;
            threads.push(thread.as_raw_nonzero().get().unsigned_abs());
        }
        Ok(OwnLookups { requests, threads })
    }

    /// Looks the path up, without following a link at its end. The size that the kernel has then, bytes; it is asked for
    /// again only if the look-up did not bring it.
    ///
    /// # Errors
    /// As `lstat`; also when there is no answer within `limit`.
    pub fn size(&self, path: PathBuf, limit: Duration) -> io::Result<u64> {
        let (done, answer) = sync_channel(1);
        let ended = |_| io::Error::from(Errno::SHUTDOWN);
        self.requests
            .send(LookupRequest { path, done })
            .map_err(|_| ended(()))?;
        match answer.recv_timeout(limit) {
            Ok(found) => Ok(found?),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Whether the thread with this number, as in a request, is one of these.
    pub fn is_own(&self, thread: u32) -> bool {
        self.threads.contains(&thread)
    }
}

/// Gives the calling thread an empty descriptor table of its own (but for the standard streams).
fn leave_descriptors() -> io::Result<Pid> {
    // SAFETY: the thread was just started and owns no descriptor; what it runs from here on opens none and uses none.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }?;
    // SAFETY: closes descriptors in this thread's own table only, where nothing refers to them.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    match closed {
        0 => Ok(rustix::thread::gettid()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn work(requests: &Mutex<Receiver<LookupRequest>>) {
    loop {
        let request = requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(request) = request else { return };
        // The one that waits may have given up.
        let _ = request.done.send(size(&request.path));
    }
}

fn size(path: &Path) -> Result<u64, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    Ok(rustix::fs::statx(CWD, path, flags, StatxFlags::SIZE)?.stx_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn threads_hold_no_descriptors_of_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"12345").unwrap();
        let _held = std::fs::File::open(&path).unwrap();
        let lookups = OwnLookups::start().unwrap();
        assert_eq!(lookups.size(path, LIMIT).unwrap(), 5);
        let missing = lookups.size(dir.path().join("none"), LIMIT).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
        for thread in &lookups.threads {
            assert!(lookups.is_own(*thread));
            let held = std::fs::read_dir(format!("/proc/self/task/{thread}/fd")).unwrap();
            let above = held
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .filter(|fd| fd.parse::<u32>().unwrap() > 2);
            assert_eq!(above.count(), 0);
        }
        assert!(!lookups.is_own(std::process::id()));
    }
}
