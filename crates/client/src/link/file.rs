//! An open file of a process that is not the server.
//!
//! A forked child opens the file again by its id at its first call: its handle and locks are independent of the parent's. A file that has
//! lost its last name and that the parent has closed cannot be opened again.
use super::LinkClient;
use super::connection::BulkTransfer;
use super::direct_read::{DirectReader, MIN_BYTES};
use super::error::CallError;
use super::process_local::ProcessLocal;
use super::read_pipeline::ReadPipeline;
use super::request::{FileRequest, OpenReply, ReopenFile, Request};
use super::session::LinkSession;
use super::wire::SHARED_BYTES;
use crate::OpenOptions;
use crate::embedded::FileLock;
use bytes::Bytes;
use forebay_server::delegate::{Fallocate, SeekTarget};
use forebay_server::proto::locks::{HeldLock, LockSpace};
use forebay_server::{Attr, Fid};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// See the head of this file.
pub(crate) struct LinkFile {
    client: LinkClient,
    fid: Fid,
    /// As it is opened again.
    options: u32,
    opened: ProcessLocal<OnceLock<OpenedInProcess>>,
}

struct OpenedInProcess {
    session: Arc<LinkSession>,
    file: u64,
    open: AtomicBool,
    pipeline: Mutex<ReadPipeline>,
    direct: DirectReader,
}

impl LinkFile {
    pub(super) fn new(
        client: LinkClient,
        session: Arc<LinkSession>,
        opened: OpenReply,
        options: &OpenOptions,
    ) -> LinkFile {
        let again = OpenOptions {
            flags: options.handle_flags(),
            ..OpenOptions::new()
        };
        LinkFile {
            client,
            fid: opened.fid,
            options: again.bits(),
            opened: ProcessLocal::new(OnceLock::from(OpenedInProcess::new(session, opened.file))),
        }
    }

    fn opened(&self) -> Result<&OpenedInProcess, CallError> {
        let here = self.opened.get(|_| OnceLock::new());
        if let Some(opened) = here.get() {
            return Ok(opened);
        }
        let again = ReopenFile {
            fid: self.fid,
            options: self.options,
        };
        let (opened, session): (OpenReply, _) = self
            .client
            .call(&Request::Reopen(self.client.caller, again))?;
        let opened = OpenedInProcess::new(session, opened.file);
        // If another thread was faster, this one is closed again.
        Ok(here.get_or_init(|| opened))
    }

    fn call<T: DeserializeOwned>(
        &self,
        request: FileRequest,
        bulk: BulkTransfer<'_>,
    ) -> Result<T, CallError> {
        Ok(self.opened()?.call(request, bulk)?.0)
    }

    /// Reads into the first bytes of `into`; how many came.
    pub fn read_into(&self, into: &mut [u8], offset: u64) -> Result<usize, CallError> {
        self.opened()?.read_into(into, offset)
    }

    pub fn read(&self, offset: u64, len: u32) -> Result<Bytes, CallError> {
        let mut bytes = vec![0; len as usize];
        let came = self.read_into(&mut bytes, offset)?;
        bytes.truncate(came);
        Ok(bytes.into())
    }

    pub fn write(&self, data: &[u8], offset: u64) -> Result<(), CallError> {
        self.call(FileRequest::Write { offset }, BulkTransfer::Write(data))
    }

    pub fn commit(&self) -> Result<(), CallError> {
        self.call(FileRequest::Commit, BulkTransfer::None)
    }

    pub fn set_len(&self, len: u64) -> Result<(), CallError> {
        self.call(FileRequest::SetLen(len), BulkTransfer::None)
    }

    pub fn attr(&self) -> Result<Attr, CallError> {
        self.call(FileRequest::Attributes, BulkTransfer::None)
    }

    pub fn allocate(&self, what: Fallocate, offset: u64, len: u64) -> Result<(), CallError> {
        self.call(FileRequest::allocate(what, offset, len), BulkTransfer::None)
    }

    pub fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64, CallError> {
        let hole = target == SeekTarget::Hole;
        self.call(FileRequest::Seek { offset, hole }, BulkTransfer::None)
    }

    pub fn lock(&self, lock: FileLock, wait: bool) -> Result<(), CallError> {
        self.call(FileRequest::Lock { lock, wait }, BulkTransfer::None)
    }

    pub fn unlock(&self, space: LockSpace, range: Range<u64>) -> Result<(), CallError> {
        self.call(FileRequest::Unlock { space, range }, BulkTransfer::None)
    }

    pub fn test_lock(&self, lock: FileLock) -> Result<Option<HeldLock>, CallError> {
        self.call(FileRequest::TestLock(lock), BulkTransfer::None)
    }

    /// Commits and closes; only the first call of a process does anything. A child that did not use the file has nothing to close.
    pub fn close(&self) -> Result<(), CallError> {
        match self.opened.own().and_then(OnceLock::get) {
            Some(opened) => opened.close(),
            None => Ok(()),
        }
    }

    /// Its number in this session, which is the caller's to close from now on; `None` if it is of another one, or closed.
    pub(super) fn take_from(&self, session: &Arc<LinkSession>) -> Option<u64> {
        let opened = self.opened.own().and_then(OnceLock::get)?;
        if let Some(mut pipeline) = opened.pipeline.try_lock() {
            pipeline.end(&opened.session);
        }
        opened.direct.end(&opened.session, opened.file);
        let taken =
            Arc::ptr_eq(&opened.session, session) && opened.open.swap(false, Ordering::SeqCst);
        taken.then_some(opened.file)
    }
}

impl OpenedInProcess {
    fn new(session: Arc<LinkSession>, file: u64) -> OpenedInProcess {
        OpenedInProcess {
            session,
            file,
            open: AtomicBool::new(true),
            pipeline: Mutex::default(),
            direct: DirectReader::default(),
        }
    }

    fn read_into(&self, into: &mut [u8], offset: u64) -> Result<usize, CallError> {
        if into.len() >= MIN_BYTES {
            if let Some(mut pipeline) = self.pipeline.try_lock() {
                // Its connection is of use to others.
                pipeline.drop_sent();
            }
            let read = (self.direct).read_large(&self.session, self.file, into, offset)?;
            if read.ends || read.len == into.len() {
                return Ok(read.len);
            }
            let (rest, at) = (
                &mut into[read.len..],
                offset.saturating_add(read.len as u64),
            );
            return Ok(read.len + self.read_by_server(rest, at)?);
        }
        // Of threads that read at once, one goes on where it was, and the others ask.
        if let Some(mut pipeline) = self.pipeline.try_lock()
            && let Some(came) =
                pipeline.read(&self.session, self.file, &self.direct, into, offset)?
        {
            return Ok(came);
        }
        match (self.direct).read_small(&self.session, self.file, into, offset)? {
            Some(came) => Ok(came),
            None => self.read_piece(into, offset),
        }
    }

    fn read_by_server(&self, into: &mut [u8], offset: u64) -> Result<usize, CallError> {
        match into.len() > SHARED_BYTES {
            true => self.read_long(into, offset),
            false => self.read_piece(into, offset),
        }
    }

    fn read_piece(&self, into: &mut [u8], offset: u64) -> Result<usize, CallError> {
        let len = into.len() as u32;
        let read = FileRequest::Read { offset, len };
        let ((), came) = self.call(read, BulkTransfer::Read(into))?;
        Ok(came)
    }

    /// Reads more than one call carries: the next piece is asked for before the one before it is taken.
    fn read_long(&self, into: &mut [u8], offset: u64) -> Result<usize, CallError> {
        let begin = |offset: u64, piece: &[u8]| {
            let len = piece.len() as u32;
            let request = Request::File(self.file, FileRequest::Read { offset, len });
            self.session.begin_read(&request, piece.len())
        };
        let mut pieces = into.chunks_mut(SHARED_BYTES).peekable();
        let (mut done, mut sent) = (0, None);
        while let Some(piece) = pieces.next() {
            let at = offset.saturating_add(done as u64);
            let behind = at.saturating_add(piece.len() as u64);
            let next = pieces.peek().and_then(|piece| begin(behind, piece));
            let came = match std::mem::replace(&mut sent, next) {
                Some(sent) => sent.receive::<()>(piece).map_err(CallError::from)?.1,
                None => self.read_piece(piece, at)?,
            };
            done += came;
            if came < piece.len() {
                // Taken, so that its connection is of use again: it comes from behind the end.
                let rest = pieces.next();
                if let Some((sent, piece)) = sent.zip(rest) {
                    let _ = sent.receive::<()>(piece);
                }
                break;
            }
        }
        Ok(done)
    }

    fn call<T: DeserializeOwned>(
        &self,
        request: FileRequest,
        bulk: BulkTransfer<'_>,
    ) -> Result<(T, usize), CallError> {
        let request = Request::File(self.file, request);
        self.session.call_on_file(&request, bulk)
    }

    fn close(&self) -> Result<(), CallError> {
        // A connection that it keeps may be the last.
        if let Some(mut pipeline) = self.pipeline.try_lock() {
            pipeline.end(&self.session);
        }
        if self.open.load(Ordering::SeqCst) {
            self.direct.end(&self.session, self.file);
        }
        match self.open.swap(false, Ordering::SeqCst) {
            true => self.session.close_file(self.file),
            false => Ok(()),
        }
    }
}

impl Drop for OpenedInProcess {
    fn drop(&mut self) {
        // A caller who needs the outcome calls `close`. The parent's one is not dropped in a child.
        let _ = self.close();
    }
}
