//! This process at one server: a connection that lasts as long as the session, and one for each call that is under way.
//!
//! Calls of several threads do not wait for each other: a call takes an idle connection, or opens one. What the process has open at
//! the server belongs to the session, and ends with it.
use super::connection::{BulkTransfer, Connection, ConnectionError, WELCOME_LIMIT};
use super::error::{CallError, LinkError};
use super::request::{CallFailure, CallProgress, Request};
use super::wire::ServedMember;
use forebay_server::delegate::{ChangeMark, SharedChangeCounters};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Calls of one process that can be under way at once.
const MAX_CONNECTIONS: usize = 128;
/// Connections that stay open without a call.
const MAX_IDLE: usize = 16;
/// How long a server that was there is taken to be: none starts in so short a time.
const SEEN_FOR: Duration = Duration::from_millis(1);
/// How often a request that has not arrived, though the server answers, is waited for once more.
const MAX_UNKNOWN: u32 = 3;

/// See the head of this file.
pub(super) struct LinkSession {
    socket: PathBuf,
    /// What the server said of it.
    pub served: ServedMember,
    /// Says by its end that the session has ended. A forked child closes it.
    liveness: Mutex<Option<Connection>>,
    connections: Mutex<ConnectionPool>,
    returned: Condvar,
    ended: AtomicBool,
    changes: OnceLock<Option<SharedChangeCounters>>,
    /// When the server was last seen to be there, since `began`.
    began: Instant,
    seen: AtomicU64,
}

#[derive(Default)]
struct ConnectionPool {
    /// The one used last is used next.
    idle: Vec<Connection>,
    open: usize,
}

/// A call that is not made, because the server has ended: it can be made at the next one.
pub(super) enum SessionError {
    NotMade,
    Failed(CallError),
}

/// Of a call on an open file, which is of its session.
impl From<SessionError> for CallError {
    fn from(error: SessionError) -> CallError {
        match error {
            SessionError::NotMade => LinkError::Stale.into(),
            SessionError::Failed(error) => error,
        }
    }
}

/// A request whose reply is taken later, or never: its connection is closed then.
pub(super) struct SentRead {
    session: Arc<LinkSession>,
    connection: Option<Connection>,
    number: u32,
}

impl SentRead {
    /// Waits for the reply; see [`LinkSession::call`].
    pub fn receive<T: DeserializeOwned>(
        mut self,
        into: &mut [u8],
    ) -> Result<(T, usize), SessionError> {
        let session = self.session.clone();
        let Some(mut connection) = self.connection.take() else {
            return Err(SessionError::NotMade);
        };
        let check = |connection, request| session.check(connection, request);
        let bulk = BulkTransfer::Read(into);
        let outcome = connection.finish(self.number, bulk, &check, read_reply);
        session.end_call(connection, outcome)
    }
}

impl Drop for SentRead {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.session.drop_connection(connection);
        }
    }
}

fn read_reply<T: DeserializeOwned>(head: &[u8]) -> Result<Result<T, CallFailure>, LinkError> {
    postcard::from_bytes(head).map_err(|_| LinkError::Unreadable("a reply"))
}

impl From<LinkError> for SessionError {
    fn from(error: LinkError) -> SessionError {
        SessionError::Failed(error.into())
    }
}

impl LinkSession {
    /// Begins a session.
    pub fn begin(socket: PathBuf) -> Result<LinkSession, LinkError> {
        let (liveness, served) = Connection::open(&socket, None, WELCOME_LIMIT)?;
        Ok(LinkSession {
            socket,
            served,
            liveness: Mutex::new(Some(liveness)),
            connections: Mutex::default(),
            returned: Condvar::new(),
            ended: AtomicBool::new(false),
            changes: OnceLock::new(),
            began: Instant::now(),
            seen: AtomicU64::new(0),
        })
    }

    /// Whether the server has ended it, as far as is known.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Closes the descriptors that a forked child has of its parent's session, as far as no other thread had them locked.
    pub fn forget_in_child(&self) {
        if let Some(mut liveness) = self.liveness.try_lock() {
            *liveness = None;
        }
        if let Some(mut connections) = self.connections.try_lock() {
            connections.idle.clear();
        }
    }

    /// Whether bytes that were read after this mark are still what a read returns: nothing has changed, and the server is there. For it
    /// is asked so often that no other server can have taken its place and changed the file meanwhile.
    pub fn is_current(&self, mark: ChangeMark) -> bool {
        let changes = self.changes.get().and_then(Option::as_ref);
        if self.is_ended() || !changes.is_some_and(|changes| changes.is_current(mark)) {
            return false;
        }
        let now = self.began.elapsed().as_micros() as u64;
        if now.saturating_sub(self.seen.load(Ordering::Relaxed)) < SEEN_FOR.as_micros() as u64 {
            return true;
        }
        let ended = self.find_end();
        self.seen.store(now, Ordering::Relaxed);
        !ended
    }

    /// Whether the server's change counters can be seen. Asked for once.
    pub fn has_change_counters(&self) -> bool {
        let ask = || {
            let mut memory = None;
            let asked = self.call::<()>(
                &Request::ChangeCounters,
                BulkTransfer::Descriptor(&mut memory),
            );
            asked.ok()?;
            SharedChangeCounters::new(&memory?).ok()
        };
        self.changes.get_or_init(ask).is_some()
    }

    /// Makes a call; the reply, and how many bytes came with it. `NotMade` only if the server has ended before it got the request.
    pub fn call<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        bulk: BulkTransfer<'_>,
    ) -> Result<(T, usize), SessionError> {
        if self.is_ended() {
            return Err(SessionError::NotMade);
        }
        let mut connection = self.take()?;
        let outcome = connection.call(request, bulk, &|c, n| self.check(c, n), read_reply);
        self.end_call(connection, outcome)
    }

    /// A call on an open file, which is of this session.
    pub fn call_on_file<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        bulk: BulkTransfer<'_>,
    ) -> Result<(T, usize), CallError> {
        Ok(self.call(request, bulk)?)
    }

    /// Sends a request with whose reply at most `bytes` come, and does not wait for it. `None`: it cannot be made so now.
    pub fn begin_read(self: &Arc<Self>, request: &Request<'_>, bytes: usize) -> Option<SentRead> {
        let mut connection = match self.is_ended() {
            true => return None,
            false => self.take().ok()?,
        };
        match connection.begin_read(request, bytes, &|c, n| self.check(c, n)) {
            Ok(number) => Some(SentRead {
                session: self.clone(),
                connection: Some(connection),
                number,
            }),
            // The next call finds out what is the matter.
            Err(_) => {
                self.drop_connection(connection);
                None
            }
        }
    }

    fn end_call<T>(
        &self,
        connection: Connection,
        outcome: Result<(Result<T, CallFailure>, usize), ConnectionError>,
    ) -> Result<(T, usize), SessionError> {
        match outcome {
            Ok((reply, came)) => {
                self.give_back(connection);
                let failed = |failure: CallFailure| {
                    let error = failure.into_error(self.served.member);
                    SessionError::Failed(error.into())
                };
                Ok((reply.map_err(failed)?, came))
            }
            Err(ConnectionError::Refused(error)) => {
                self.give_back(connection);
                Err(error.into())
            }
            Err(ConnectionError::Unsent) => {
                self.drop_connection(connection);
                match self.find_end() {
                    true => Err(SessionError::NotMade),
                    false => Err(self.ended_error().into()),
                }
            }
            Err(ConnectionError::Broken(LinkError::Closed)) => {
                self.drop_connection(connection);
                self.find_end();
                Err(self.ended_error().into())
            }
            Err(ConnectionError::Broken(error)) => {
                self.drop_connection(connection);
                Err(error.into())
            }
        }
    }

    fn ended_error(&self) -> LinkError {
        LinkError::Ended {
            socket: self.socket.clone(),
        }
    }

    /// Whether the session has ended; all its connections go then.
    fn find_end(&self) -> bool {
        let ended = self
            .liveness
            .lock()
            .as_ref()
            .is_none_or(Connection::is_ended);
        if ended {
            self.ended.store(true, Ordering::SeqCst);
            self.connections.lock().idle.clear();
        }
        ended
    }

    fn open(&self) -> Result<(Connection, ServedMember), LinkError> {
        Connection::open(&self.socket, Some(self.served.session), self.deadline())
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(u64::from(self.served.deadline_ms).max(1))
    }

    fn take(&self) -> Result<Connection, SessionError> {
        let end = Instant::now() + self.deadline();
        {
            let mut connections = self.connections.lock();
            loop {
                if let Some(connection) = connections.idle.pop() {
                    return Ok(connection);
                }
                if connections.open < MAX_CONNECTIONS {
                    connections.open += 1;
                    break;
                }
                if self.returned.wait_until(&mut connections, end).timed_out() {
                    return Err(LinkError::Busy(MAX_CONNECTIONS).into());
                }
            }
        }
        let opened = self
            .open()
            .and_then(|(connection, _)| connection.limit(self.deadline()).map(|()| connection));
        opened.map_err(|error| {
            self.count_out();
            match (&error, self.find_end()) {
                // Another server may be there, or none.
                (_, true) => SessionError::NotMade,
                (_, false) => error.into(),
            }
        })
    }

    fn give_back(&self, connection: Connection) {
        let mut connections = self.connections.lock();
        if connections.idle.len() >= MAX_IDLE || self.is_ended() {
            drop(connections);
            return self.drop_connection(connection);
        }
        connections.idle.push(connection);
        drop(connections);
        self.returned.notify_one();
    }

    fn drop_connection(&self, connection: Connection) {
        drop(connection);
        self.count_out();
    }

    fn count_out(&self) {
        self.connections.lock().open -= 1;
        self.returned.notify_one();
    }

    /// A reply has not come in time: asks, by another connection, whether the request is being carried out.
    fn check(&self, connection: u64, request: u32) -> Result<(), LinkError> {
        let silent = || LinkError::Silent {
            socket: self.socket.clone(),
            after: 2 * self.deadline(),
        };
        if self.find_end() {
            return Err(LinkError::Closed);
        }
        let mut asking = match self.open() {
            Ok((asking, _)) => asking,
            // It answers, if only that it has no connection left.
            Err(LinkError::Refused { errno, .. }) if errno == Errno::AGAIN => return Ok(()),
            Err(error) => return Err(error),
        };
        asking.limit(self.deadline())?;
        let give_up = |_, _| Err(silent());
        for _ in 0..MAX_UNKNOWN {
            let request = Request::Progress(connection, request);
            let progress = asking.call(&request, BulkTransfer::None, &give_up, read_reply);
            match progress {
                Ok((Ok(CallProgress::Working | CallProgress::Answered), _)) => return Ok(()),
                Ok(_) => std::thread::sleep(self.deadline() / MAX_UNKNOWN),
                Err(ConnectionError::Broken(error) | ConnectionError::Refused(error)) => {
                    return Err(error);
                }
                Err(ConnectionError::Unsent) => return Err(LinkError::Closed),
            }
        }
        Err(silent())
    }
}
