//! Calls on paths of the mount by the process that serves it. They update state of the kernel for which FUSE has no notification: a
//! look-up, for one, gives it a smaller file size. Where the kernel keeps size and times of a file itself (the writeback cache), a
//! look-up does not change them; a truncate and a `utimensat` made in the same way do.
//!
//! Invariants:
//! - The calls run on threads of their own, which hold no descriptor of the connection: their descriptor table is not
//!   shared with the process, and empty. So when the process is killed, the connection closes even while a look-up waits
//!   for an answer, and the look-up ends. (A thread that shares the table would keep the process from ending.)
//! - Threads that answer requests never wait for a look-up.
//! - A look-up that waits for a member holds up no other: with all threads busy another one is started, up to [`MAX_THREADS`].
//!   Each is answered within the service's deadline, so even these are free again by then. A look-up that nobody waits for any
//!   more is not made.
use forebay_server::Time;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{AtFlags, CWD, Mode, StatxFlags, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

/// Threads from the start on; more end once they have been idle for [`IDLE_THREAD_LIFE`].
const USUAL_THREADS: usize = 4;
const MAX_THREADS: usize = 64;
const IDLE_THREAD_LIFE: Duration = Duration::from_secs(10);
/// Stack of a thread; it does little.
const SELF_CALL_STACK: usize = 128 << 10;

type LookUp = fn(&Path) -> Result<u64, Errno>;

/// What the kernel is to have of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelAttributes {
    /// Bytes. `None`: its own size is right, and so is a later time.
    pub size: Option<u64>,
    pub atime: Time,
    pub mtime: Time,
}

/// What is done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelfCall {
    /// A look-up of the path, which does not follow a link at its end.
    LookUp,
    /// A look-up; then size and times are set where the kernel's differ.
    SetAttributes(KernelAttributes),
    /// The same; then the kernel hands over all that it has of the file: dirty pages, and their time. It does so before it asks for
    /// another mode, whatever that is.
    WriteBack,
}

struct SelfCallRequest {
    path: PathBuf,
    call: SelfCall,
    until: Instant,
    done: SyncSender<Result<u64, Errno>>,
}

/// What the threads share.
#[derive(Default)]
struct SelfCallQueue {
    waiting: VecDeque<SelfCallRequest>,
    /// Threads that wait for a request.
    idle: usize,
    /// Numbers of the threads, as in requests.
    threads: Vec<u32>,
    /// Threads that have been started and are not among `threads` yet.
    starting: usize,
    ended: bool,
}

struct SelfCallsShared {
    queue: Mutex<SelfCallQueue>,
    wake: Condvar,
    look_up: LookUp,
}

/// See the head of this file. The threads end when it is dropped.
pub(crate) struct SelfCalls(Arc<SelfCallsShared>);

impl Drop for SelfCalls {
    fn drop(&mut self) {
        self.0.queue.lock().ended = true;
        self.0.wake.notify_all();
    }
}

impl SelfCalls {
    /// Starts the threads.
    ///
    /// # Errors
    /// No threads, or no descriptor tables of their own (a filter of system calls).
    pub fn start() -> io::Result<SelfCalls> {
        SelfCalls::with(size)
    }

    fn with(look_up: LookUp) -> io::Result<SelfCalls> {
        let self_calls = SelfCalls(Arc::new(SelfCallsShared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            look_up,
        }));
        let (ready, started) = channel();
        for _ in 0..USUAL_THREADS {
            self_calls.0.queue.lock().starting += 1;
            self_calls.0.start_thread(Some(ready.clone()))?;
        }
        for _ in 0..USUAL_THREADS {
            started.recv().map_err(io::Error::other)??;
        }
        Ok(self_calls)
    }

    /// Looks the path up, without following a link at its end. The size that the kernel has then, bytes; it is asked for
    /// again only if the look-up did not bring it.
    ///
    /// # Errors
    /// As `lstat`; also when there is no answer within `limit`.
    pub fn size(&self, path: PathBuf, limit: Duration) -> io::Result<u64> {
        self.call(path, SelfCall::LookUp, limit)
    }

    /// Makes a call with a path. The mount knows its requests by their thread, and changes nothing. The size that the kernel had before,
    /// bytes.
    ///
    /// # Errors
    /// As `lstat`, `truncate`, `utimensat` and `chmod`; also when there is no answer within `limit`.
    pub fn call(&self, path: PathBuf, call: SelfCall, limit: Duration) -> io::Result<u64> {
        let (done, answer) = sync_channel(1);
        let more = {
            let mut queue = self.0.queue.lock();
            let until = Instant::now() + limit;
            queue.waiting.push_back(SelfCallRequest {
                path,
                call,
                until,
                done,
            });
            let few = queue.threads.len() + queue.starting < MAX_THREADS;
            let more = queue.waiting.len() > queue.idle + queue.starting && few;
            queue.starting += usize::from(more);
            more
        };
        self.0.wake.notify_one();
        if more && let Err(error) = self.0.start_thread(None) {
            tracing::warn!(%error, "no more threads for look-ups: they wait for each other");
        }
        match answer.recv_timeout(limit) {
            Ok(found) => Ok(found?),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Whether the thread with this number, as in a request, is one of these.
    pub fn is_own(&self, thread: u32) -> bool {
        self.0.queue.lock().threads.contains(&thread)
    }
}

impl SelfCallsShared {
    /// One more, which is counted as starting. `ready` hears whether it began.
    fn start_thread(
        self: &Arc<SelfCallsShared>,
        ready: Option<Sender<io::Result<()>>>,
    ) -> io::Result<()> {
        let shared = self.clone();
        let run = move || {
            let begun = unshare_and_close_descriptors(close_range);
            let failed = begun.as_ref().err().map(io::Error::to_string);
            let number = rustix::thread::gettid().as_raw_nonzero().get();
            {
                let mut queue = shared.queue.lock();
                queue.starting -= 1;
                if failed.is_none() {
                    queue.threads.push(number.unsigned_abs());
                }
            }
            if let Some(ready) = ready {
                // The one that started it waits for it.
                let _ = ready.send(begun);
            }
            match failed {
                Some(error) => tracing::warn!(error, "a thread for look-ups cannot begin"),
                None => shared.work(number.unsigned_abs()),
            }
        };
        let thread = std::thread::Builder::new().name("own lookup".into());
        match thread.stack_size(SELF_CALL_STACK).spawn(run) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.queue.lock().starting -= 1;
                Err(error)
            }
        }
    }

    fn work(&self, number: u32) {
        while let Some(request) = self.next(number) {
            if Instant::now() < request.until {
                // The one that waits may have given up.
                let answer = match request.call {
                    SelfCall::LookUp => (self.look_up)(&request.path),
                    SelfCall::SetAttributes(attributes) => adopt(&request.path, attributes),
                    SelfCall::WriteBack => write_back(&request.path),
                };
                let _ = request.done.send(answer);
            }
        }
    }

    /// The next request; `None`: the thread ends, and is not among the threads any more.
    fn next(&self, number: u32) -> Option<SelfCallRequest> {
        let mut queue = self.queue.lock();
        let mut waited = false;
        loop {
            if let Some(request) = queue.waiting.pop_front() {
                return Some(request);
            }
            if queue.ended || waited && queue.threads.len() > USUAL_THREADS {
                queue.threads.retain(|thread| *thread != number);
                return None;
            }
            queue.idle += 1;
            waited = self.wake.wait_for(&mut queue, IDLE_THREAD_LIFE).timed_out();
            queue.idle -= 1;
        }
    }
}

/// Gives the calling thread an empty descriptor table of its own (but for the standard streams).
fn unshare_and_close_descriptors(close_range: fn() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: the thread was just started and owns no descriptor; what it runs from here on opens none and uses none.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }?;
    match close_range() {
        // Linux before 5.9.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => close_listed(),
        closed => closed,
    }
}

fn close_range() -> io::Result<()> {
    // SAFETY: closes descriptors in this thread's own table only, where nothing refers to them.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Closes one by one what `/proc` lists of this thread's own table.
fn close_listed() -> io::Result<()> {
    let listed = std::fs::read_dir("/proc/thread-self/fd")?;
    let numbers = listed.map(|entry| Ok(entry?.file_name().to_str().and_then(|n| n.parse().ok())));
    // All of them first: the listing has a descriptor itself, which is closed then.
    let numbers: Vec<Option<libc::c_int>> = numbers.collect::<io::Result<_>>()?;
    for number in numbers.into_iter().flatten().filter(|number| *number > 2) {
        // SAFETY: as in `close_range`. It fails for the descriptor of the listing only.
        unsafe { libc::close(number) };
    }
    Ok(())
}

fn size(path: &Path) -> Result<u64, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    Ok(rustix::fs::statx(CWD, path, flags, StatxFlags::SIZE)?.stx_size)
}

/// Sets the size and times of the file at this path where the kernel's differ from `wanted`. Returns the size that the kernel had.
fn adopt(path: &Path, wanted: KernelAttributes) -> Result<u64, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let mask = StatxFlags::SIZE | StatxFlags::MTIME;
    let had = rustix::fs::statx(CWD, path, flags, mask)?;
    let mtime = Time {
        secs: had.stx_mtime.tv_sec,
        nanos: had.stx_mtime.tv_nsec,
    };
    let cut = wanted.size.filter(|size| *size != had.stx_size);
    if let Some(size) = cut {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
        let size = libc::off_t::try_from(size).map_err(|_| Errno::FBIG)?;
        // SAFETY: the name ends in a zero and lives through the call.
        if unsafe { libc::truncate(name.as_ptr(), size) } < 0 {
            return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
    }
    // The kernel takes the time of a truncate for that of a change.
    let right = match wanted.size {
        Some(_) => mtime == wanted.mtime,
        None => mtime >= wanted.mtime,
    };
    if cut.is_some() || !right {
        let timespec = |time: Time| Timespec {
            tv_sec: time.secs,
            tv_nsec: time.nanos.into(),
        };
        let times = Timestamps {
            // Tells this call from those by which the kernel hands over the time that it keeps: these name no time of access.
            last_access: timespec(wanted.atime),
            last_modification: timespec(wanted.mtime),
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(had.stx_size)
}

fn write_back(path: &Path) -> Result<u64, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let had = rustix::fs::statx(CWD, path, flags, StatxFlags::SIZE | StatxFlags::MODE)?;
    rustix::fs::chmod(path, Mode::from_raw_mode(u32::from(had.stx_mode) & 0o7777))?;
    Ok(had.stx_size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const LIMIT: Duration = Duration::from_secs(60);

    /// Descriptors of a thread above the standard streams.
    fn held(thread: u32) -> usize {
        let held = std::fs::read_dir(format!("/proc/self/task/{thread}/fd")).unwrap();
        held.map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|fd| fd.parse::<u32>().unwrap() > 2)
            .count()
    }

    #[test]
    fn threads_hold_no_descriptors_of_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"12345").unwrap();
        let _held = std::fs::File::open(&path).unwrap();
        let self_calls = SelfCalls::start().unwrap();
        assert_eq!(self_calls.size(path, LIMIT).unwrap(), 5);
        let missing = self_calls.size(dir.path().join("none"), LIMIT).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
        let threads = self_calls.0.queue.lock().threads.clone();
        // One more, if none of them waited for a request yet.
        assert!(threads.len() >= USUAL_THREADS);
        for thread in threads {
            assert!(self_calls.is_own(thread));
            assert_eq!(held(thread), 0);
        }
        assert!(!self_calls.is_own(std::process::id()));
    }

    #[test]
    fn a_kernel_without_close_range_leaves_no_descriptors_either() {
        let file = tempfile::tempfile().unwrap();
        let thread = std::thread::spawn(|| {
            unshare_and_close_descriptors(|| Err(io::Error::from_raw_os_error(libc::ENOSYS)))
                .unwrap();
            held(rustix::thread::gettid().as_raw_nonzero().get() as u32)
        });
        // The listing's own.
        assert_eq!(thread.join().unwrap(), 1);
        assert!(file.metadata().is_ok(), "the process keeps its own");
        let refused = std::thread::spawn(|| {
            unshare_and_close_descriptors(|| Err(io::Error::from_raw_os_error(libc::EPERM)))
        });
        assert!(refused.join().unwrap().is_err());
    }

    #[test]
    fn a_file_gets_the_size_and_times_that_it_lacks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"12345").unwrap();
        let time = |secs, nanos| Time { secs, nanos };
        let wanted = KernelAttributes {
            size: Some(3),
            atime: time(7, 8),
            mtime: time(-9, 10),
        };
        let self_calls = SelfCalls::start().unwrap();
        for had in [5, 3] {
            let call = SelfCall::SetAttributes(wanted);
            assert_eq!(self_calls.call(path.clone(), call, LIMIT).unwrap(), had);
            let now = rustix::fs::stat(&path).unwrap();
            assert_eq!((now.st_size, now.st_mtime, now.st_mtime_nsec), (3, -9, 10));
        }
        let earlier = KernelAttributes {
            size: None,
            mtime: time(-10, 0),
            ..wanted
        };
        let call = SelfCall::SetAttributes(earlier);
        assert_eq!(self_calls.call(path.clone(), call, LIMIT).unwrap(), 3);
        assert_eq!(rustix::fs::stat(&path).unwrap().st_mtime, -9);
        let calls = [
            SelfCall::LookUp,
            SelfCall::SetAttributes(wanted),
            SelfCall::WriteBack,
        ];
        for call in calls {
            let missing = self_calls.call(dir.path().join("none"), call, LIMIT);
            assert_eq!(missing.unwrap_err().raw_os_error(), Some(libc::ENOENT));
        }
        assert_eq!(
            self_calls.call(path, SelfCall::WriteBack, LIMIT).unwrap(),
            3
        );
    }

    #[test]
    fn look_ups_that_get_no_answer_hold_up_no_other() {
        static RELEASED: AtomicBool = AtomicBool::new(false);
        fn look_up(path: &Path) -> Result<u64, Errno> {
            while path == Path::new("stuck") && !RELEASED.load(Ordering::SeqCst) {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            Ok(7)
        }
        let self_calls = Arc::new(SelfCalls::with(look_up).unwrap());
        let stuck: Vec<_> = (0..3 * USUAL_THREADS)
            .map(|_| {
                let self_calls = self_calls.clone();
                std::thread::spawn(move || self_calls.size("stuck".into(), LIMIT))
            })
            .collect();
        let all = self_calls.size("free".into(), LIMIT);
        assert_eq!(all.unwrap(), 7);
        let late = self_calls.size("stuck".into(), Duration::from_millis(1));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        RELEASED.store(true, Ordering::SeqCst);
        for thread in stuck {
            assert_eq!(thread.join().unwrap().unwrap(), 7);
        }
        assert!(self_calls.0.queue.lock().threads.len() <= MAX_THREADS);
    }
}
