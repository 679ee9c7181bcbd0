//! The thread that accepts connections and detects the death of clients.
//!
//! Invariants: it never waits for a client or a member. One descriptor is held back, so that a process without descriptors can still
//! tell a client so.
use super::connection;
use super::session::{Session, SessionTable};
use crate::link::socket::PacketSocket;
use crate::link::wire::{Refusal, VERSION, Welcome};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long no connection is accepted after there was no descriptor, or no memory, for one.
const ACCEPT_PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// How long a send may take that nobody else waits for.
const REFUSAL_LIMIT: Duration = Duration::from_secs(1);
/// A call of a member of the same process runs on its caller's thread.
const STACK_BYTES: usize = 1 << 20;

/// Tells the thread something. Cheap to clone.
#[derive(Clone)]
pub(super) struct AcceptorHandle(Arc<AcceptorMessages>);

struct AcceptorMessages {
    wake: OwnedFd,
    closed: AtomicBool,
    /// Sessions that are to be watched from now on.
    new: Mutex<Vec<WatchedSession>>,
}

/// A client whose end is noticed.
pub(super) struct WatchedSession {
    pub session: Arc<Session>,
    /// Its first connection, on which nothing more is said.
    pub liveness: PacketSocket,
    /// Its process; `None`: the kernel does not show it.
    pub process: Option<OwnedFd>,
    pub _permit: Arc<()>,
}

impl AcceptorHandle {
    /// Has a session's end noticed.
    pub fn watch(&self, watched: WatchedSession) {
        self.0.new.lock().push(watched);
        self.wake();
    }

    /// Nothing is accepted any more.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Lets go of sessions that came when it was closed.
    pub fn forget(&self) {
        self.0.new.lock().clear();
    }

    fn wake(&self) {
        // Fails only if it was told so often that the number is at its end, and then it wakes anyway.
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
    }
}

/// Shows the end of a process; `None` where the kernel cannot, or does not see it.
pub(super) fn process_end(pid: Pid) -> Option<OwnedFd> {
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Starts the thread.
pub(super) fn open(
    listening: OwnedFd,
    sessions: Arc<SessionTable>,
) -> io::Result<(AcceptorHandle, JoinHandle<()>)> {
    let handle = AcceptorHandle(Arc::new(AcceptorMessages {
        wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        closed: AtomicBool::new(false),
        new: Mutex::default(),
    }));
    let acceptor = ClientAcceptor {
        handle: handle.clone(),
        listening,
        permits: Arc::new(()),
        sessions,
        watched: Vec::new(),
        reserve: None,
    };
    let thread = std::thread::Builder::new().name("link".into());
    let thread = thread
        .stack_size(STACK_BYTES)
        .spawn(move || acceptor.run())?;
    Ok((handle, thread))
}

/// What a wait has shown.
struct ReadySockets {
    connection: bool,
    /// Of the watched, in ascending order.
    ended: Vec<usize>,
}

struct ClientAcceptor {
    handle: AcceptorHandle,
    listening: OwnedFd,
    /// Each connection has a clone, and this thread alone makes them: there are as many connections as clones.
    permits: Arc<()>,
    sessions: Arc<SessionTable>,
    watched: Vec<WatchedSession>,
    reserve: Option<File>,
}

impl ClientAcceptor {
    fn run(mut self) {
        let mut paused = false;
        loop {
            self.hold_back();
            let ready = self.wait(paused);
            if self.handle.0.closed.load(Ordering::SeqCst) {
                return;
            }
            for at in ready.ended.into_iter().rev() {
                let watched = self.watched.swap_remove(at);
                self.sessions.end(&watched.session);
            }
            self.watched.append(&mut self.handle.0.new.lock());
            paused = ready.connection && !self.accept();
        }
    }

    fn hold_back(&mut self) {
        if self.reserve.is_none() {
            self.reserve = File::open("/dev/null").ok();
        }
    }

    /// Waits for a connection, the end of a client, or a word.
    fn wait(&self, paused: bool) -> ReadySockets {
        let mut fds = vec![PollFd::new(&self.handle.0.wake, PollFlags::IN)];
        let accepts = match paused {
            true => PollFlags::empty(),
            false => PollFlags::IN,
        };
        fds.push(PollFd::new(&self.listening, accepts));
        let mut owners = Vec::new();
        for (at, watched) in self.watched.iter().enumerate() {
            fds.push(PollFd::new(&watched.liveness, PollFlags::IN));
            owners.push(at);
            if let Some(process) = &watched.process {
                fds.push(PollFd::new(process, PollFlags::IN));
                owners.push(at);
            }
        }
        // An interrupted wait is as one in which nothing happened.
        let _ = poll(&mut fds, paused.then_some(&ACCEPT_PAUSE));
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        if is_ready(&fds[0]) {
            // Only how often it was woken is read.
            let _ = rustix::io::read(&self.handle.0.wake, &mut [0; 8]);
        }
        let connection = paused || is_ready(&fds[1]);
        let seen = fds[2..].iter().zip(owners).filter(|(fd, _)| is_ready(fd));
        let mut ended: Vec<usize> = seen.map(|(_, at)| at).collect();
        ended.dedup();
        ReadySockets { connection, ended }
    }

    /// Accepts one connection; `false`: there is no descriptor, or no memory, for one.
    fn accept(&mut self) -> bool {
        let accept = || rustix::net::accept_with(&self.listening, SocketFlags::CLOEXEC);
        let refused = match accept() {
            Ok(socket) => {
                let most = self.sessions.limits.connections;
                if Arc::strong_count(&self.permits) <= most {
                    return self.serve(socket, self.permits.clone());
                }
                let why = format!(
                    "it has {most} connections already; end a program that uses it, or raise its limit on open files (`ulimit -n`)"
                );
                Some((socket, why))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return true,
            Err(e) => {
                tracing::debug!("a connection of the link was not accepted: {e}");
                self.reserve = None;
                let why = format!("it cannot take a connection ({e}); try again");
                accept().ok().map(|socket| (socket, why))
            }
        };
        if let Some((socket, why)) = refused
            && let Ok(socket) = PacketSocket::new(socket, REFUSAL_LIMIT)
        {
            // Who is gone need not hear it.
            let _ = socket.send_now(&Welcome::Refused(Refusal::Full, VERSION, why).encode());
            return true;
        }
        false
    }

    fn serve(&self, socket: OwnedFd, permit: Arc<()>) -> bool {
        let (sessions, handle) = (self.sessions.clone(), self.handle.clone());
        let thread = std::thread::Builder::new().name("link client".into());
        let started = thread.stack_size(STACK_BYTES).spawn(move || {
            if let Err(e) = connection::serve(socket, permit, &sessions, &handle) {
                tracing::debug!("a connection of the link: {e}");
            }
        });
        if let Err(e) = &started {
            tracing::warn!("a connection of the link was dropped: {e}");
        }
        started.is_ok()
    }
}
