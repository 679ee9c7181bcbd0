//! This process at one server: a connection that lasts as long as the session, and one for each call that is under way.
//!
//! Calls of several threads do not wait for each other: a call takes an idle connection, or opens one. What the process has open at
//! the server belongs to the session, and ends with it.
use super::connection::{BulkTransfer, Connection, ConnectionError, WELCOME_LIMIT};
use super::error::{CallError, LinkError};
use super::request::{CallFailure, CallProgress, FileRequest, Request};
use super::segment_files::SegmentFiles;
use super::wire::ServedMember;
use forebay_server::delegate::{ChangeMark, SharedChangeCounters};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Calls of one process that can be under way at once.
const MAX_CONNECTIONS: usize = 128;
/// Those of them that may wait without limit, for a lock or for others of a team: what ends their waiting may be a call too.
const MAX_OPEN_ENDED: usize = MAX_CONNECTIONS - MAX_SENT_READS - 8;
/// Connections that stay open without a call.
const MAX_IDLE: usize = 16;
/// How often the server is looked for while bytes that were read ahead are given out: no server restarts in so short a time.
const LIVENESS_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Requests that may be under way without a call that waits for them: each has a connection.
const MAX_SENT_READS: usize = 8;
/// Memory of bytes that were read ahead and not given out yet, of all files; above it, windows stay small.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// Memory for where bytes of open files lie (`located_windows`), of all files.
pub(super) const MAX_LOCATED_MEMORY: usize = 32 << 20;
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
    /// An open-ended call has ended.
    open_ended: Condvar,
    ended: AtomicBool,
    changes: OnceLock<SharedChangeCounters>,
    began: Instant,
    /// When the server was last seen to be there, in microseconds since `began`.
    last_liveness_check: AtomicU64,
    sent_reads: AtomicUsize,
    kept_bytes: AtomicUsize,
    /// Memory of located windows of all files.
    located_memory: AtomicUsize,
    /// Of the server.
    pub segments: SegmentFiles,
}

#[derive(Default)]
struct ConnectionPool {
    /// The one used last is used next.
    idle: Vec<Connection>,
    open: usize,
    /// Open-ended calls under way.
    open_ended: usize,
    /// Files that could not be closed, because no connection could be had.
    deferred_closes: Vec<u64>,
}

/// Counts an open-ended call until it is dropped.
struct OpenEndedCall<'a>(&'a LinkSession);

impl Drop for OpenEndedCall<'_> {
    fn drop(&mut self) {
        self.0.connections.lock().open_ended -= 1;
        self.0.open_ended.notify_one();
    }
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

/// A request whose reply is taken later, or never: its connection is closed then, if the reply is not there yet.
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
        self.session.sent_reads.fetch_sub(1, Ordering::Relaxed);
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        match connection.has_skipped_reply(self.number) {
            true => self.session.give_back(connection),
            false => self.session.drop_connection(connection),
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
            open_ended: Condvar::new(),
            ended: AtomicBool::new(false),
            changes: OnceLock::new(),
            began: Instant::now(),
            last_liveness_check: AtomicU64::new(0),
            sent_reads: AtomicUsize::new(0),
            kept_bytes: AtomicUsize::new(0),
            located_memory: AtomicUsize::new(0),
            segments: SegmentFiles::default(),
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
        self.segments.clear();
    }

    /// Whether bytes that were read after this mark are still what a read returns: nothing has changed, and the server is there. The socket
    /// is checked once a millisecond; no server restarts faster.
    pub fn is_current(&self, mark: ChangeMark) -> bool {
        let changes = self.changes.get();
        if self.is_ended() || !changes.is_some_and(|changes| changes.is_current(mark)) {
            return false;
        }
        let now = self.micros();
        let last = self.last_liveness_check.load(Ordering::Relaxed);
        if now.saturating_sub(last) < LIVENESS_CHECK_INTERVAL.as_micros() as u64 {
            return true;
        }
        let ended = self.find_end();
        self.last_liveness_check.store(now, Ordering::Relaxed);
        !ended
    }

    /// Whether the server's change counters can be seen. Asked for until they are.
    pub fn has_change_counters(&self) -> bool {
        if self.changes.get().is_some() {
            return true;
        }
        let ask = || {
            let mut memory = None;
            let asked = self.call::<()>(
                &Request::ChangeCounters,
                BulkTransfer::Descriptor(&mut memory),
            );
            asked.ok()?;
            SharedChangeCounters::new(&memory?).ok()
        };
        if let Some(changes) = ask() {
            // If another thread was faster, its own are kept: they are as good.
            let _ = self.changes.set(changes);
        }
        self.changes.get().is_some()
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
        let is_open_ended = request.is_open_ended();
        let _counted = is_open_ended.then(|| self.begin_open_ended()).transpose()?;
        self.call_over(self.take()?, request, bulk)
    }

    fn call_over<T: DeserializeOwned>(
        &self,
        mut connection: Connection,
        request: &Request<'_>,
        bulk: BulkTransfer<'_>,
    ) -> Result<(T, usize), SessionError> {
        let outcome = connection.call(request, bulk, &|c, n| self.check(c, n), read_reply);
        self.end_call(connection, outcome)
    }

    /// Makes a call if a connection can be had without waiting. `None`: none can.
    pub fn call_at_once(&self, request: &Request<'_>) -> Option<()> {
        let connection = self.take_now()?;
        let called = self.call_over::<()>(connection, request, BulkTransfer::None);
        // What fails here will fail for the next call too, and be told there.
        drop(called);
        Some(())
    }

    /// Closes a file. If no connection can be had for that, the next call that has one closes it, when it is done.
    pub fn close_file(&self, file: u64) -> Result<(), CallError> {
        if self.is_ended() {
            return Err(LinkError::Stale.into());
        }
        let connection = self.take().inspect_err(|_| self.defer_close(file))?;
        let close = Request::File(file, FileRequest::Close);
        let ((), _) = self.call_over(connection, &close, BulkTransfer::None)?;
        Ok(())
    }

    /// Has the next call close a file, when it is done. A file that is closed already is left alone.
    pub fn defer_close(&self, file: u64) {
        if self.is_ended() {
            return;
        }
        self.connections.lock().deferred_closes.push(file);
        // All other calls may have ended meanwhile.
        if let Some(connection) = self.take_now() {
            self.give_back(connection);
        }
    }

    fn begin_open_ended(&self) -> Result<OpenEndedCall<'_>, SessionError> {
        let end = Instant::now() + self.deadline();
        let mut connections = self.connections.lock();
        while connections.open_ended >= MAX_OPEN_ENDED {
            if self
                .open_ended
                .wait_until(&mut connections, end)
                .timed_out()
            {
                return Err(LinkError::ManyWait(MAX_OPEN_ENDED).into());
            }
        }
        connections.open_ended += 1;
        Ok(OpenEndedCall(self))
    }

    /// A call on an open file, which is of this session.
    pub fn call_on_file<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        bulk: BulkTransfer<'_>,
    ) -> Result<(T, usize), CallError> {
        Ok(self.call(request, bulk)?)
    }

    /// Sends a request with whose reply at most `bytes` come, and does not wait for it. `None`: it cannot be made so now, without
    /// waiting for a connection.
    pub fn begin_read(self: &Arc<Self>, request: &Request<'_>, bytes: usize) -> Option<SentRead> {
        let count = &self.sent_reads;
        let mut sent = SentRead {
            session: self.clone(),
            connection: None,
            number: 0,
        };
        // Counted out when it is dropped.
        if count.fetch_add(1, Ordering::Relaxed) >= MAX_SENT_READS || self.is_ended() {
            return None;
        }
        let connection = sent.connection.insert(self.take_now()?);
        // The next call finds out what is the matter.
        sent.number = connection
            .begin_read(request, bytes, &|c, n| self.check(c, n))
            .ok()?;
        Some(sent)
    }

    /// Whether more than small windows may be kept of what is read ahead.
    pub fn has_room_ahead(&self) -> bool {
        self.kept_bytes.load(Ordering::Relaxed) < MAX_KEPT_BYTES
    }

    /// Whether more windows may be kept.
    pub fn has_room_for_located(&self) -> bool {
        self.located_memory.load(Ordering::Relaxed) <= MAX_LOCATED_MEMORY
    }

    /// A file keeps windows of `now` bytes in place of `before`.
    pub fn count_located(&self, before: usize, now: usize) {
        self.located_memory.fetch_add(now, Ordering::Relaxed);
        self.located_memory.fetch_sub(before, Ordering::Relaxed);
    }

    /// Microseconds since it began.
    pub fn micros(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// A file keeps `now` bytes in place of `before`.
    pub fn keep_bytes(&self, before: usize, now: usize) {
        self.kept_bytes.fetch_add(now, Ordering::Relaxed);
        self.kept_bytes.fetch_sub(before, Ordering::Relaxed);
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
            self.segments.clear();
        }
        ended
    }

    fn open(&self) -> Result<(Connection, ServedMember), LinkError> {
        Connection::open(&self.socket, Some(self.served.session), self.deadline())
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(u64::from(self.served.deadline_ms).max(1))
    }

    /// An idle connection, or a new one; `None` if one had to be waited for, or cannot be made.
    fn take_now(&self) -> Option<Connection> {
        {
            let mut connections = self.connections.lock();
            if let Some(connection) = connections.idle.pop() {
                return Some(connection);
            }
            if connections.open >= MAX_CONNECTIONS {
                return None;
            }
            connections.open += 1;
        }
        self.open_counted().ok()
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
        self.open_counted()
    }

    /// A new connection, which was counted.
    fn open_counted(&self) -> Result<Connection, SessionError> {
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

    fn give_back(&self, mut connection: Connection) {
        loop {
            let Some(file) = self.connections.lock().deferred_closes.pop() else {
                break;
            };
            let close = Request::File(file, FileRequest::Close);
            let check = |c, n| self.check(c, n);
            let closed = connection.call(&close, BulkTransfer::None, &check, read_reply::<()>);
            // Whoever closed it was told that it failed.
            if let Err(ConnectionError::Unsent | ConnectionError::Broken(_)) = closed {
                if !self.find_end() {
                    self.connections.lock().deferred_closes.push(file);
                }
                return self.drop_connection(connection);
            }
        }
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
