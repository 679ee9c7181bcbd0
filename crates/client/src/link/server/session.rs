//! What one client process has open, and its calls.
//!
//! Invariants:
//! - A file is closed only while no call uses it: what was written to it is published then, as a close does it.
//! - When a session has ended nothing is added to it any more; whatever it had goes, also if calls of it still run.
use super::LinkLimits;
use super::connection::ServedConnection;
use crate::embedded::{EmbeddedClient, EmbeddedFile};
use crate::link::request::{
    CallProgress, FileRequest, MAX_LOCATED_BYTES, MAX_LOCATED_RUNS, OpenPath, OpenReply,
    ReopenFile, Request, StridedRecords, TeamRequest, encode_reply,
};
use crate::link::shared_buffer::SharedBuffer;
use crate::link::wire::{MAX_INLINE_BYTES, SHARED_BYTES, Secret};
use crate::team::EmbeddedTeam;
use crate::{OpenOptions, TeamSpec};
use bytes::Bytes;
use forebay_server::delegate::{ChangeMark, DirectRead, Fallocate, SeekTarget};
use forebay_server::superblock::random_id;
use forebay_server::{Attr, Caller, Delegate, Error, Result};
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// All sessions of one link.
pub(super) struct SessionTable {
    pub delegate: Arc<Delegate>,
    pub limits: LinkLimits,
    copies: Arc<CopyBuffers>,
    open: Mutex<OpenSessions>,
    /// One has closed all that it had.
    closed: Condvar,
}

#[derive(Default)]
struct OpenSessions {
    by_secret: HashMap<Secret, Arc<Session>>,
    /// Those that are closing what they had.
    ending: usize,
    stopping: bool,
}

impl SessionTable {
    pub fn new(delegate: Arc<Delegate>, limits: LinkLimits) -> SessionTable {
        SessionTable {
            delegate,
            limits,
            copies: Arc::default(),
            open: Mutex::default(),
            closed: Condvar::new(),
        }
    }

    /// `None`: the link stops.
    pub fn begin(&self, process: u32) -> Option<Arc<Session>> {
        let session = Arc::new(Session {
            secret: random_id(),
            process,
            delegate: self.delegate.clone(),
            limits: self.limits,
            copies: self.copies.clone(),
            ended: AtomicBool::new(false),
            next: AtomicU64::new(1),
            resources: Mutex::new(Some(SessionResources::default())),
        });
        let mut open = self.open.lock();
        if open.stopping {
            return None;
        }
        open.by_secret.insert(session.secret, session.clone());
        Some(session)
    }

    pub fn find(&self, secret: &Secret) -> Option<Arc<Session>> {
        self.open.lock().by_secret.get(secret).cloned()
    }

    /// Sessions, those included that are closing what they had, and files that the others have open.
    pub fn count(&self) -> (usize, usize) {
        let (sessions, ending) = {
            let open = self.open.lock();
            let sessions: Vec<_> = open.by_secret.values().cloned().collect();
            (sessions, open.ending)
        };
        let files = |session: &Arc<Session>| {
            let resources = session.resources.lock();
            resources
                .as_ref()
                .map_or(0, |resources| resources.files.len())
        };
        let files = sessions.iter().map(files).sum();
        (sessions.len() + ending, files)
    }

    /// The client of a session is gone: what it had is closed on another thread.
    pub fn end(self: &Arc<SessionTable>, session: &Arc<Session>) {
        {
            let mut open = self.open.lock();
            if open.by_secret.remove(&session.secret).is_none() {
                return;
            }
            open.ending += 1;
        }
        let resources = session.end();
        let sessions = self.clone();
        let close = move || {
            resources.close();
            sessions.open.lock().ending -= 1;
            sessions.closed.notify_all();
        };
        let thread = std::thread::Builder::new().name("link end".into());
        if let Err(e) = thread.spawn(close) {
            // What the closure had is dropped with it, which closes it too.
            tracing::warn!("no thread for the end of a client: {e}");
            self.open.lock().ending -= 1;
            self.closed.notify_all();
        }
    }

    /// No session begins any more; all end. Waits until they have closed what they had, at most `limit`.
    pub fn end_all(self: &Arc<SessionTable>, limit: Duration) {
        let all: Vec<_> = {
            let mut open = self.open.lock();
            open.stopping = true;
            open.by_secret.values().cloned().collect()
        };
        for session in all {
            self.end(&session);
        }
        let until = Instant::now() + limit;
        let mut open = self.open.lock();
        let closed = &self.closed;
        closed.wait_while_until(&mut open, |open| open.ending > 0, until);
    }
}

/// See the head of this file.
pub(super) struct Session {
    pub secret: Secret,
    /// Of the client.
    process: u32,
    delegate: Arc<Delegate>,
    limits: LinkLimits,
    pub copies: Arc<CopyBuffers>,
    ended: AtomicBool,
    /// Numbers of files, teams and connections; 0 is none.
    next: AtomicU64,
    /// `None`: it has ended.
    resources: Mutex<Option<SessionResources>>,
}

/// What a session has.
#[derive(Default)]
pub(super) struct SessionResources {
    files: HashMap<u64, Arc<SessionFile>>,
    teams: HashMap<u64, Arc<Mutex<EmbeddedTeam>>>,
    connections: HashMap<u64, Arc<ServedConnection>>,
}

/// A file, and the calls that use it now.
struct SessionFile {
    file: EmbeddedFile,
    calls: RwLock<()>,
    /// It is being closed: waits for locks end.
    closing: AtomicBool,
}

impl SessionFile {
    fn new(file: EmbeddedFile) -> SessionFile {
        SessionFile {
            file,
            calls: RwLock::default(),
            closing: AtomicBool::new(false),
        }
    }

    /// Waits for the calls that use it, and closes it.
    fn close(&self) -> Result<()> {
        self.closing.store(true, Ordering::SeqCst);
        let _none = self.calls.write();
        self.file.close()
    }
}

impl SessionResources {
    fn close(self) {
        let mut files: Vec<_> = self.files.into_values().collect();
        // The owner of a directory that does not answer is not to keep other files from being closed.
        files.sort_by_key(|file| file.file.is_temporary());
        for file in files {
            if let Err(e) = file.close() {
                tracing::warn!("a file that an ended program had open: {e}");
            }
        }
        // Those in a call leave when it ends.
        drop(self.teams);
    }
}

/// A connection of a session, for as long as it is served.
pub(super) struct JoinedConnection<'a> {
    session: &'a Session,
    pub number: u64,
}

impl Drop for JoinedConnection<'_> {
    fn drop(&mut self) {
        if let Some(resources) = self.session.resources.lock().as_mut() {
            resources.connections.remove(&self.number);
        }
    }
}

/// A reply.
pub(super) struct ServedReply {
    pub head: Vec<u8>,
    pub bytes: ReplyBytes,
}

/// The bytes that come with it.
pub(super) enum ReplyBytes {
    Inline(Bytes),
    /// So many are in the shared buffer.
    Shared(u32),
}

impl ServedReply {
    pub fn of<T: Serialize>(reply: &Result<T>) -> ServedReply {
        ServedReply {
            head: encode_reply(reply),
            bytes: ReplyBytes::Inline(Bytes::new()),
        }
    }
}

impl Session {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// `None`: it has ended.
    pub fn join(&self, connection: &Arc<ServedConnection>) -> Option<JoinedConnection<'_>> {
        let number = self.number();
        let mut resources = self.resources.lock();
        let connections = &mut resources.as_mut()?.connections;
        connections.insert(number, connection.clone());
        let session = self;
        Some(JoinedConnection { session, number })
    }

    /// Ends it: calls that wait are given up, and no more come. What it had.
    fn end(&self) -> SessionResources {
        self.ended.store(true, Ordering::SeqCst);
        let resources = self.resources.lock().take().unwrap_or_default();
        for connection in resources.connections.values() {
            connection.socket.end();
        }
        resources
    }

    /// Carries a request out.
    pub fn answer(
        &self,
        request: Request<'_>,
        bytes: &[u8],
        shared: Option<&SharedBuffer>,
    ) -> ServedReply {
        match request {
            Request::Path(caller, call) => ServedReply {
                head: call.answer(&self.client(caller)),
                bytes: ReplyBytes::Inline(Bytes::new()),
            },
            Request::Open(caller, open) => ServedReply::of(&self.open(caller, open)),
            Request::Reopen(caller, reopen) => ServedReply::of(&self.reopen(caller, reopen)),
            Request::File(file, request) => self.file_call(file, request, bytes, shared),
            Request::Join(caller, join) => ServedReply::of(&self.join_team(caller, &join)),
            Request::Team(team, request) => self.team_call(team, request),
            Request::Progress(connection, request) => {
                ServedReply::of(&Ok(self.progress(connection, request)))
            }
            // Answered by the connection, which has the buffer, and sends descriptors.
            Request::ShareBuffer | Request::ChangeCounters | Request::Segment(_) => {
                ServedReply::of(&Err::<(), _>(Errno::INVAL.into()))
            }
        }
    }

    /// The memory of the server's change counters.
    pub fn change_counters(&self) -> BorrowedFd<'_> {
        self.delegate.change_counters().as_fd()
    }

    /// A segment file of the server.
    pub fn segment(&self, number: u32) -> Result<File> {
        self.delegate.open_segment(number)
    }

    fn client(&self, caller: Caller) -> EmbeddedClient {
        EmbeddedClient::new(self.delegate.clone(), caller)
    }

    fn progress(&self, connection: u64, request: u32) -> CallProgress {
        let resources = self.resources.lock();
        let connection = resources
            .as_ref()
            .and_then(|resources| resources.connections.get(&connection));
        let Some(connection) = connection else {
            return CallProgress::Unknown;
        };
        let answered = connection.answered.load(Ordering::SeqCst);
        let begun = connection.begun.load(Ordering::SeqCst);
        match request {
            _ if request == begun && request != answered => CallProgress::Working,
            _ if request == answered => CallProgress::Answered,
            _ => CallProgress::Unknown,
        }
    }

    fn open(&self, caller: Caller, open: OpenPath<'_>) -> Result<OpenReply> {
        self.check_room()?;
        let (path, options) = opening(&open);
        self.add(self.client(caller).open(path, &options)?)
    }

    fn reopen(&self, caller: Caller, reopen: ReopenFile) -> Result<OpenReply> {
        self.check_room()?;
        let flags = OpenOptions::from_bits(reopen.options, 0).effective()?;
        self.add(self.client(caller).reopen(reopen.fid, flags)?)
    }

    /// Before a file is opened, and perhaps made.
    fn check_room(&self) -> Result<()> {
        let resources = self.resources.lock();
        match resources.as_ref() {
            Some(resources) if resources.files.len() < self.limits.files => Ok(()),
            Some(_) => Err(Errno::MFILE.into()),
            None => Err(Errno::NOTCONN.into()),
        }
    }

    fn add(&self, file: EmbeddedFile) -> Result<OpenReply> {
        let (number, fid) = (self.number(), file.fid());
        let mut resources = self.resources.lock();
        // The file is closed after the lock is given back.
        let files = &mut resources.as_mut().ok_or(Errno::NOTCONN)?.files;
        files.insert(number, Arc::new(SessionFile::new(file)));
        Ok(OpenReply { file: number, fid })
    }

    fn find(&self, file: u64) -> Result<Arc<SessionFile>> {
        let resources = self.resources.lock();
        let file = resources
            .as_ref()
            .and_then(|resources| resources.files.get(&file));
        Ok(file.cloned().ok_or(Errno::BADF)?)
    }

    fn remove(&self, file: u64) -> Result<Arc<SessionFile>> {
        let mut resources = self.resources.lock();
        let file = resources
            .as_mut()
            .and_then(|resources| resources.files.remove(&file));
        Ok(file.ok_or(Errno::BADF)?)
    }

    fn file_call(
        &self,
        number: u64,
        request: FileRequest,
        bytes: &[u8],
        shared: Option<&SharedBuffer>,
    ) -> ServedReply {
        if request == FileRequest::Close {
            return ServedReply::of(&self.remove(number).and_then(|file| file.close()));
        }
        let found = match self.find(number) {
            Ok(found) => found,
            Err(e) => return ServedReply::of(&Err::<(), _>(e)),
        };
        let _call = found.calls.read();
        let file = &found.file;
        match request {
            FileRequest::Read { offset, len } => match read(file, offset, len, shared) {
                Ok(bytes) => ServedReply {
                    bytes,
                    ..ServedReply::of(&Ok(()))
                },
                Err(e) => ServedReply::of(&Err::<(), _>(e)),
            },
            FileRequest::ReadAhead(records) => match read_ahead(file, &records, shared) {
                Ok((bytes, mark)) => ServedReply {
                    bytes,
                    ..ServedReply::of(&Ok(mark))
                },
                Err(e) => ServedReply::of(&Err::<(), _>(e)),
            },
            FileRequest::Write { offset } => {
                let written = file.write(bytes, offset);
                ServedReply::of(&written.and_then(|()| file.show_elsewhere()))
            }
            FileRequest::Commit => ServedReply::of(&file.commit()),
            FileRequest::SetLen(len) => ServedReply::of(&file.set_len(len)),
            FileRequest::Attributes => ServedReply::of(&file.attr()),
            FileRequest::Allocate {
                punch,
                zero,
                keep_size,
                offset,
                len,
            } => {
                let what = Fallocate {
                    punch,
                    zero,
                    keep_size,
                };
                ServedReply::of(&file.allocate(what, offset, len))
            }
            FileRequest::Seek { offset, hole } => {
                let target = match hole {
                    true => SeekTarget::Hole,
                    false => SeekTarget::Data,
                };
                ServedReply::of(&file.seek(offset, target))
            }
            FileRequest::Lock { lock, wait } => {
                let mut goes_on =
                    || !self.ended.load(Ordering::SeqCst) && !found.closing.load(Ordering::SeqCst);
                let wait: Option<&mut dyn FnMut() -> bool> = match wait {
                    true => Some(&mut goes_on),
                    false => None,
                };
                ServedReply::of(&file.lock(&lock, self.process, wait))
            }
            FileRequest::Unlock { space, range } => ServedReply::of(&file.unlock(space, range)),
            FileRequest::TestLock(lock) => ServedReply::of(&file.test_lock(&lock, self.process)),
            FileRequest::Locate { records, most } => {
                let most = most.min(MAX_LOCATED_RUNS) as usize;
                ServedReply::of(&locate(file, &records, most))
            }
            FileRequest::CountReads { reads, bytes } => {
                file.count_reads(reads, bytes);
                ServedReply::of(&Ok(()))
            }
            // Answered above.
            FileRequest::Close => ServedReply::of(&Ok(())),
        }
    }

    fn join_team(&self, caller: Caller, join: &TeamSpec) -> Result<u64> {
        let teams = |resources: &Option<SessionResources>| {
            resources.as_ref().map(|resources| resources.teams.len())
        };
        match teams(&self.resources.lock()) {
            Some(teams) if teams < self.limits.teams => {}
            Some(_) => return Err(Errno::MFILE.into()),
            None => return Err(Errno::NOTCONN.into()),
        }
        let team = self.client(caller).team(join)?;
        let number = self.number();
        let mut resources = self.resources.lock();
        let teams = &mut resources.as_mut().ok_or(Errno::NOTCONN)?.teams;
        teams.insert(number, Arc::new(Mutex::new(team)));
        Ok(number)
    }

    fn team_call(&self, number: u64, request: TeamRequest<'_>) -> ServedReply {
        let team = {
            let mut resources = self.resources.lock();
            let teams = resources.as_mut().map(|resources| &mut resources.teams);
            match request {
                TeamRequest::Leave => teams.and_then(|teams| teams.remove(&number)),
                _ => teams.and_then(|teams| teams.get(&number).cloned()),
            }
        };
        let Some(team) = team else {
            return ServedReply::of(&Err::<(), _>(Errno::NOTCONN.into()));
        };
        match request {
            TeamRequest::Stat { path } => {
                let path = Path::new(OsStr::from_bytes(path));
                ServedReply::of(&team.lock().stat(path))
            }
            TeamRequest::Open(open) => {
                let (path, options) = opening(&open);
                let room = self.check_room();
                // The others are not to wait for one that may not: it opens, and closes at once.
                let opened = team.lock().open_file(path, &options);
                ServedReply::of(&opened.and_then(|file| room.and_then(|()| self.add(file))))
            }
            TeamRequest::Close { file } => ServedReply::of(&self.team_close(&team, file)),
            TeamRequest::Leave => {
                drop(team);
                ServedReply::of(&Ok(()))
            }
        }
    }

    fn team_close(&self, team: &Mutex<EmbeddedTeam>, file: u64) -> Result<Attr> {
        match self.remove(file) {
            Ok(file) => {
                file.closing.store(true, Ordering::SeqCst);
                let _none = file.calls.write();
                team.lock().close_file(&file.file)
            }
            Err(e) => {
                team.lock().skip();
                Err(e)
            }
        }
    }
}

/// What a request asks to be opened, and how.
fn opening<'a>(open: &OpenPath<'a>) -> (&'a Path, OpenOptions) {
    let options = OpenOptions::from_bits(open.options, open.mode);
    (Path::new(OsStr::from_bytes(open.path)), options)
}

/// Reads what fits the packet into it, and more into the shared buffer.
fn read(
    file: &EmbeddedFile,
    offset: u64,
    len: u32,
    shared: Option<&SharedBuffer>,
) -> Result<ReplyBytes> {
    if len as usize > max_reply_bytes(shared) {
        return Err(Errno::INVAL.into());
    }
    reply_bytes(file.read(offset, len)?, shared)
}

/// Reads records of which a client keeps what it has not asked for yet.
fn read_ahead(
    file: &EmbeddedFile,
    records: &StridedRecords,
    shared: Option<&SharedBuffer>,
) -> Result<(ReplyBytes, Option<ChangeMark>)> {
    if records.bytes() > max_reply_bytes(shared) {
        return Err(Errno::INVAL.into());
    }
    let (bytes, mark) = file.read_ahead(&records.ranges().ok_or(Errno::INVAL)?)?;
    Ok((reply_bytes(bytes, shared)?, mark))
}

/// Where the bytes of records lie.
fn locate(
    file: &EmbeddedFile,
    records: &StridedRecords,
    most: usize,
) -> Result<Option<DirectRead>> {
    if records.bytes() > MAX_LOCATED_BYTES as usize {
        return Err(Errno::INVAL.into());
    }
    file.locate(&records.ranges().ok_or(Errno::INVAL)?, most)
}

/// What one call may read.
fn max_reply_bytes(shared: Option<&SharedBuffer>) -> usize {
    match shared {
        Some(_) => SHARED_BYTES,
        None => MAX_INLINE_BYTES,
    }
}

fn reply_bytes(bytes: Bytes, shared: Option<&SharedBuffer>) -> Result<ReplyBytes> {
    match shared {
        Some(shared) if bytes.len() > MAX_INLINE_BYTES => {
            let copied = shared.write(&bytes);
            let failed = |e| Error::Refused(format!("the link's memory: {e}"));
            copied.map_err(failed)?;
            Ok(ReplyBytes::Shared(bytes.len() as u32))
        }
        _ => Ok(ReplyBytes::Inline(bytes)),
    }
}

/// Memory into which bytes of shared buffers are copied. As many are kept as calls need them at once, up to a few.
#[derive(Default)]
pub(super) struct CopyBuffers(Mutex<Vec<Vec<u8>>>);

impl CopyBuffers {
    /// How many are kept.
    const MAX_KEPT: usize = 8;

    /// One of [`SHARED_BYTES`]. What is in it is of no meaning.
    pub fn take(&self) -> Vec<u8> {
        let kept = self.0.lock().pop();
        kept.unwrap_or_else(|| vec![0; SHARED_BYTES])
    }

    pub fn give_back(&self, buffer: Vec<u8>) {
        let mut kept = self.0.lock();
        if kept.len() < CopyBuffers::MAX_KEPT {
            kept.push(buffer);
        }
    }
}
