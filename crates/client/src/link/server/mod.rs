//! The server's end of the link: one socket for each member of the process.
//!
//! | part | what |
//! |---|---|
//! | `LinkServer` | starts and stops it |
//! | `acceptor` | one thread: accepts connections, as many as there may be, and detects the death of clients |
//! | `connection` | the packets of one connection, in a thread of its own |
//! | `session` | what one client process has open, and its calls |
//!
//! Only processes of the server's own user may connect: the socket's peer credentials (`SO_PEERCRED`) are checked before anything
//! is read. A request is checked whole before any part of it is used, and one that is not valid closes its connection. The death of
//! a client is detected by the first connection of its session, which closes. Where the kernel offers it, the end of its process is
//! watched too (a pidfd), because a forked child may keep that connection open.
mod acceptor;
mod connection;
mod session;

use super::address;
use acceptor::AcceptorHandle;
use forebay_server::Delegate;
use parking_lot::Mutex;
use session::SessionTable;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What clients of one server may take.
#[derive(Debug, Clone, Copy)]
pub struct LinkLimits {
    /// Connections at once: one for each session, and one for each call that is under way, or was lately.
    pub connections: usize,
    /// Open files of one session.
    pub files: usize,
    /// Teams that one session is in.
    pub teams: usize,
    /// How long an answer may take before a client asks what keeps it; how long a client may take to read one.
    pub deadline: Duration,
}

impl Default for LinkLimits {
    fn default() -> LinkLimits {
        LinkLimits {
            connections: 1024,
            files: 1 << 16,
            teams: 256,
            deadline: Duration::from_secs(30),
        }
    }
}

/// The link of one member, served until this value goes.
pub struct LinkServer {
    socket: PathBuf,
    sessions: Arc<SessionTable>,
    acceptor: AcceptorHandle,
    thread: Mutex<Option<JoinHandle<()>>>,
    stopped: AtomicBool,
}

impl LinkServer {
    /// Serves `delegate` at `socket`. The caller holds the lock of the store whose directory that is in: what is left there is a dead
    /// server's.
    ///
    /// # Errors
    /// If the socket cannot be made, or there is no thread.
    pub fn start(
        socket: &Path,
        delegate: Arc<Delegate>,
        limits: LinkLimits,
    ) -> io::Result<LinkServer> {
        let listening = address::listen(socket)?;
        let sessions = Arc::new(SessionTable::new(delegate, limits));
        let (acceptor, thread) = acceptor::open(listening, sessions.clone())?;
        Ok(LinkServer {
            socket: socket.to_path_buf(),
            sessions,
            acceptor,
            thread: Mutex::new(Some(thread)),
            stopped: AtomicBool::new(false),
        })
    }

    /// Client processes that are connected, and files that they have open.
    pub fn clients(&self) -> (usize, usize) {
        self.sessions.count()
    }

    /// Accepts nothing any more, ends all connections, and closes what they left open; waits for that at most `limit`.
    pub fn stop(&self, limit: Duration) {
        if self.stopped.swap(true, Ordering::SeqCst) {
            // The socket may be the next server's by now.
            return;
        }
        // A socket left behind is removed by the next server.
        let _ = std::fs::remove_file(&self.socket);
        self.acceptor.close();
        if let Some(thread) = self.thread.lock().take() {
            // It ends at once: it is told to, and it waits for nobody. A panic of it was printed.
            let _ = thread.join();
        }
        self.acceptor.forget();
        self.sessions.end_all(limit);
    }
}

impl Drop for LinkServer {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(5));
    }
}
