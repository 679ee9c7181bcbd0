//! A connection to the kernel: what both agree on at its start, the threads that read requests, its end, and notices.
use super::arguments::{Arguments, request};
use super::caller_processor::CallerProcessor;
use super::dispatch::{Handler, dispatch};
use super::kept_reply::keep_reply;
use super::kernel_config::{ARGUMENTS, KernelConfig, MAJOR};
use super::opcode;
use super::readers::{BacklogDetector, RequestReaders};
use super::reply::{OUT_HEAD, PendingReply, Reply};
use super::request_polling::{AnswerTimer, RequestPolling};
use super::types::InitFlags;
use forebay_server::Fid;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test fails by panicking.
mod tests;

/// Older kernels have shorter ones.
const MIN_MINOR_VERSION: u32 = 23;
/// The shortest buffer that the kernel reads requests into.
const MIN_READ_BUFFER: usize = 8192;
/// `_IOR(229, 0, u32)`: joins a descriptor of `/dev/fuse` to a connection.
const CLONE: libc::Ioctl = 0x8004_e500;
const INVAL_INODE: u32 = 2;
const INVAL_ENTRY: u32 = 3;
/// Of [`INVAL_ENTRY`].
const EXPIRE_ONLY: u32 = 1 << 0;
const STORE: u32 = 4;
/// The most numbers that a notice begins with, bytes.
const NOTICE: usize = 24;
const NO_TIME: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Which threads of a mount read requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadingRule {
    /// All.
    All,
    /// One while one thread of a program asks, or programs make nothing but small writes (`readers`).
    OneIfEnough,
}

/// A connection that has agreed with the kernel, and answers nothing yet.
pub(crate) struct Session<H> {
    handler: Arc<H>,
    device: Arc<OwnedFd>,
    /// Bytes that a thread reads into.
    buffer: usize,
    /// Only this user is answered, unless none is named.
    owner: Option<u32>,
}

impl<H: Handler> Session<H> {
    /// Waits for the kernel's first request, and agrees. `owner`: whom alone the mount is for.
    ///
    /// # Errors
    /// A kernel too old, or one that lacks what the handler needs; a mount that has ended.
    pub fn handshake(handler: H, device: OwnedFd, owner: Option<u32>) -> io::Result<Session<H>> {
        let device = Arc::new(device);
        let mut buffer = vec![0; MIN_READ_BUFFER];
        loop {
            let Some(bytes) = next(&device, &mut buffer)? else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            let broken = || io::Error::other("the kernel's first request is not of this protocol");
            let (opcode, head, arguments) = request(bytes).ok_or_else(broken)?;
            let reply = PendingReply::new(head.unique, &device);
            let mut args = Arguments(arguments);
            let mut number = || args.n4().map_err(|_| broken());
            let (major, minor) = (number()?, number()?);
            if opcode != opcode::INIT {
                return Err(broken());
            }
            if major > MAJOR {
                // It asks again in the version that it is told.
                let versions = [MAJOR.to_ne_bytes(), 0u32.to_ne_bytes()].concat();
                reply.give(&versions);
                continue;
            }
            if major < MAJOR || minor < MIN_MINOR_VERSION {
                reply.error(Errno::PROTO);
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!(
                        "the kernel speaks FUSE {major}.{minor}; 7.{MIN_MINOR_VERSION} is needed (Linux 3.15)"
                    ),
                ));
            }
            let (most_readahead, low) = (number()?, number()?);
            let low = InitFlags::from_bits_retain(low.into());
            let high = match low.contains(InitFlags::FUSE_INIT_EXT) {
                true => u64::from(number()?) << 32,
                false => 0,
            };
            let offered = low | InitFlags::from_bits_retain(high);
            let always = InitFlags::FUSE_MAX_PAGES | InitFlags::FUSE_INIT_EXT;
            let mut config = KernelConfig::new(offered, always, most_readahead);
            handler.init(&mut config)?;
            Reply::from(reply).answer(Ok(&config));
            return Ok(Session {
                handler: Arc::new(handler),
                device,
                buffer: (config.max_write as usize + ARGUMENTS).max(MIN_READ_BUFFER),
                owner,
            });
        }
    }

    /// What tells the kernel of changes.
    pub fn notifier(&self) -> Notifier {
        Notifier(self.device.clone())
    }

    /// Answers requests with so many threads until the mount ends. The thread that waits for them ends with what ended the mount, if
    /// not an unmount. `rule`: which of them read requests.
    ///
    /// # Errors
    /// No more threads, or no more descriptors.
    pub fn spawn(
        self,
        threads: usize,
        rule: ReadingRule,
    ) -> io::Result<JoinHandle<io::Result<()>>> {
        let mut devices = vec![self.device.clone()];
        for _ in 1..threads {
            devices.push(Arc::new(joined(&self.device)?));
        }
        let one_if_enough = rule == ReadingRule::OneIfEnough;
        let readers = one_if_enough.then(Arc::<RequestReaders>::default);
        let start = move || {
            let run = |(number, device)| {
                let thread = AnsweringThread {
                    handler: self.handler.clone(),
                    device,
                    buffer: self.buffer,
                    owner: self.owner,
                };
                let readers = readers.clone();
                std::thread::Builder::new()
                    .name(format!("fuse-{number}"))
                    .spawn(move || match readers {
                        Some(readers) => thread.answer_unless_parked(&readers),
                        None => thread.answer_all(),
                    })
            };
            let threads: Vec<_> = devices.into_iter().enumerate().map(run).collect();
            let mut result = Ok(());
            for thread in threads {
                result = result.and(thread.and_then(join));
            }
            self.handler.destroy();
            result
        };
        let thread = std::thread::Builder::new().name("fuse".into());
        thread.spawn(start)
    }
}

/// Waits for the end of a thread.
pub(crate) fn join(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    let failed = |_| Err(io::Error::other("a thread of the mount failed"));
    thread.join().unwrap_or_else(failed)
}

/// Another descriptor of the same connection, so that threads do not wait for each other.
fn joined(device: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let new = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    let source = device.as_raw_fd() as u32;
    // SAFETY: the request reads four bytes, which `source` has; both descriptors are open during the call.
    match unsafe { libc::ioctl(new.as_raw_fd(), CLONE, &raw const source) } {
        0 => Ok(new),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The next request; `None`: the mount has ended.
fn next<'a>(device: &OwnedFd, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(len) => return Ok(buffer.get(..len)),
            // NOENT: the request was given up before it was read.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::NODEV) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_read(bytes: &[u8]) -> bool {
    request(bytes).is_some_and(|(opcode, _, _)| opcode == opcode::READ)
}

/// A thread that reads requests and has them answered.
struct AnsweringThread<H> {
    handler: Arc<H>,
    device: Arc<OwnedFd>,
    /// Bytes that it reads into.
    buffer: usize,
    owner: Option<u32>,
}

impl<H: Handler> AnsweringThread<H> {
    /// Reads all the time, until the mount has ended.
    fn answer_all(&self) -> io::Result<()> {
        let mut buffer = vec![0; self.buffer];
        while let Some(bytes) = next(&self.device, &mut buffer)? {
            if !self.answer(bytes, |_, _, _| None::<fn(&dyn Fn())>)? {
                break;
            }
        }
        Ok(())
    }

    /// Reads but where one thread is enough and another one reads.
    fn answer_unless_parked(&self, readers: &RequestReaders) -> io::Result<()> {
        let answered = self.read_unless_parked(readers);
        readers.threads.end();
        answered
    }

    fn read_unless_parked(&self, readers: &RequestReaders) -> io::Result<()> {
        let (mut buffer, mut looks) = (vec![0; self.buffer], BacklogDetector::default());
        let (mut polling, mut processor) = (RequestPolling::default(), CallerProcessor::new());
        readers.threads.begin();
        loop {
            let one_asks = readers.one_asks();
            if one_asks && !processor.is_shared() {
                let since = Instant::now();
                polling.poll(|| since.elapsed(), || self.is_asked());
            }
            let Some(bytes) = next(&self.device, &mut buffer)? else {
                break;
            };
            processor.request_taken();
            let timer = (one_asks && is_read(bytes)).then(AnswerTimer::start);
            let has_slept = || timer.as_ref().is_some_and(AnswerTimer::has_slept);
            let (looks, turns) = (&mut looks, &mut processor);
            let took = move |opcode, caller, arguments: &[u8]| {
                readers.request_taken(looks, (opcode, caller), arguments, || self.is_asked());
                let shares = readers.is_alone() && turns.serves(caller, &readers.idle_replies);
                let turns = shares.then_some(turns)?;
                // Others may have come while it was answered.
                Some(
                    move |send: &dyn Fn()| match has_slept() || !readers.is_alone() {
                        true => send(),
                        false => {
                            let send_and_yield = || {
                                send();
                                readers.idle_replies.sent();
                                rustix::thread::sched_yield();
                                !self.is_asked()
                            };
                            let is_alone = || readers.is_alone();
                            turns.send(send_and_yield, is_alone, &readers.idle_replies);
                        }
                    },
                )
            };
            let goes_on = self.answer(bytes, took)?;
            polling.answered(has_slept());
            let one_waits = || self.one_waits(readers);
            if !goes_on || !readers.answered(one_waits, || processor.unbind()) {
                break;
            }
        }
        Ok(())
    }

    /// Whether a request waits where no thread has read for a while. If one is kept from running in the idle policy, that ends.
    fn one_waits(&self, readers: &RequestReaders) -> bool {
        let waits = self.is_asked();
        readers.idle_replies.end(waits);
        waits
    }

    /// Whether a request waits to be read.
    fn is_asked(&self) -> bool {
        let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
        matches!(rustix::event::poll(&mut fds, Some(&NO_TIME)), Ok(1..))
    }

    /// Has a request answered. Before that `took` is called with its opcode, the calling thread and its arguments; what it returns sends
    /// the reply once all else is done. `false`: it was the last one.
    fn answer<S: FnOnce(&dyn Fn())>(
        &self,
        bytes: &[u8],
        took: impl FnOnce(u32, u32, &[u8]) -> Option<S>,
    ) -> io::Result<bool> {
        let Some((opcode, head, arguments)) = request(bytes) else {
            return Err(io::Error::other("the kernel sent what is no request"));
        };
        if opcode == opcode::DESTROY {
            PendingReply::new(head.unique, &self.device).give(&[]);
            return Ok(false);
        }
        let send = took(opcode, head.pid, arguments);
        let (handler, owner) = (&*self.handler, self.owner);
        let answer = || dispatch(handler, &self.device, opcode, &head, arguments, owner);
        match send {
            Some(send) => keep_reply(head.unique, &self.device, answer, send),
            None => answer(),
        }
        Ok(true)
    }
}

/// Tells the kernel of what it keeps and should not, and gives it what it should keep.
#[derive(Clone)]
pub(crate) struct Notifier(Arc<OwnedFd>);

impl Notifier {
    /// The pages of a file are old from `offset` on, `len` bytes (0: to the end; a negative offset: none, only the attributes). Pages
    /// that the kernel has not written back yet it writes back first. `false`: it does not know the file.
    ///
    /// # Errors
    /// The mount has ended.
    pub fn inval_inode(&self, fid: Fid, offset: i64, len: i64) -> io::Result<bool> {
        let numbers = [fid.0, offset as u64, len as u64].map(u64::to_ne_bytes);
        self.send(INVAL_INODE, numbers.as_flattened(), &[])
    }

    /// A name in a directory is old.
    ///
    /// # Errors
    /// The mount has ended, or the directory is busy.
    pub fn inval_entry(&self, parent: Fid, name: &OsStr) -> io::Result<()> {
        self.entry(parent, name, 0)
    }

    /// Puts bytes of a file into the page cache, in place of what is there: whole pages, or up to the file's end. Waits for the pages that
    /// are being read. Makes the kernel's size of the file larger if they reach beyond it.
    ///
    /// # Errors
    /// The mount has ended; the kernel does not know the file, or has no memory.
    pub fn store(&self, fid: Fid, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let len = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let place = [fid.0, offset].map(u64::to_ne_bytes);
        let len = [len, 0].map(u32::to_ne_bytes);
        let mut what = [0; 24];
        what[..16].copy_from_slice(place.as_flattened());
        what[16..].copy_from_slice(len.as_flattened());
        self.write(STORE, &what, bytes)
    }

    /// A name in a directory is to be looked up again before it is used again; it may turn out to be right. Only where the kernel
    /// offers `FUSE_HAS_EXPIRE_ONLY`.
    ///
    /// # Errors
    /// The mount has ended, or the directory is busy.
    pub fn expire_entry(&self, parent: Fid, name: &OsStr) -> io::Result<()> {
        self.entry(parent, name, EXPIRE_ONLY)
    }

    fn entry(&self, parent: Fid, name: &OsStr, flags: u32) -> io::Result<()> {
        let len = [name.len() as u32, flags].map(u32::to_ne_bytes);
        let head = [&parent.0.to_ne_bytes()[..], len.as_flattened()].concat();
        let name = [name.as_bytes(), &[0]].concat();
        self.send(INVAL_ENTRY, &head, &name).map(drop)
    }

    /// False: the kernel does not know the file, or the name.
    fn send(&self, code: u32, what: &[u8], name: &[u8]) -> io::Result<bool> {
        match self.write(code, what, name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn write(&self, code: u32, what: &[u8], more: &[u8]) -> io::Result<()> {
        let (mut head, len) = ([0; OUT_HEAD + NOTICE], OUT_HEAD + what.len());
        head[..4].copy_from_slice(&((len + more.len()) as u32).to_ne_bytes());
        head[4..8].copy_from_slice(&code.to_ne_bytes());
        head[OUT_HEAD..len].copy_from_slice(what);
        // The kernel takes each part by itself, so there are as few as can be.
        rustix::io::writev(&self.0, &[&head[..len], more].map(IoSlice::new))?;
        Ok(())
    }
}
