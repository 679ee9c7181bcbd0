//! Small reads of one open file, pipelined: a buffer of bytes that came ahead, and one request for the next ones on its way.
//!
//! Invariant: bytes of a reply that was asked for before the read began are given out only if the file's change counter still has the
//! value that came with them (their *mark*).
use super::connection::BulkTransfer;
use super::direct_read::DirectReader;
use super::error::{CallError, LinkError};
use super::read_ahead::ReadAhead;
use super::request::{FileRequest, Request, StridedRecords};
use super::session::{LinkSession, SentRead};
use forebay_server::delegate::ChangeMark;
use std::sync::Arc;

/// Strided records that do not lie together are read directly one by one if they have this length: shorter ones cost less if many of them come
/// in one reply, because each direct read verifies a piece of 4 KiB.
const MIN_DIRECT_RECORD: usize = 2048;

/// See the head of this file.
#[derive(Default)]
pub(super) struct ReadPipeline {
    ahead: ReadAhead,
    /// The records behind those that came last.
    next: Option<(StridedRecords, SentRead)>,
    /// Of the session's memory.
    counted: usize,
}

/// StridedRecords that came: which, the mark of before they were read, and their bytes.
type ReceivedRecords = (StridedRecords, Option<ChangeMark>, usize);

impl ReadPipeline {
    /// Reads, if what is asked for came ahead, or is asked for with what follows; `None`: it is to be asked for alone.
    pub fn read(
        &mut self,
        session: &Arc<LinkSession>,
        file: u64,
        direct: &DirectReader,
        into: &mut [u8],
        offset: u64,
    ) -> Result<Option<usize>, CallError> {
        if into.is_empty() {
            return Ok(None);
        }
        if (self.ahead).take(into, offset, |mark| session.is_current(mark)) {
            return Ok(Some(into.len()));
        }
        let sent = self.next.take();
        let may_grow = session.has_room_ahead();
        let records = self.ahead.next_records(offset, into.len(), may_grow);
        self.count_kept(session);
        let Some(records) = records else {
            return Ok(None);
        };
        if !session.has_change_counters() {
            self.ahead.back_off();
            return Ok(None);
        }
        let sent = sent.filter(|(sent, _)| sent.continues(&records));
        let mut received = sent.and_then(|sent| self.receive(session, sent));
        let mut by_server = true;
        if received.is_none() {
            received = self.read_directly(session, file, direct, records)?;
            by_server = received.is_none();
        }
        if received.is_none()
            && records.count > 1
            && into.len() >= MIN_DIRECT_RECORD
            && direct.is_ready()
        {
            self.ahead.drop_unfilled();
            self.count_kept(session);
            return Ok(None);
        }
        let reply = match received {
            Some(reply) => reply,
            None => {
                let bulk = BulkTransfer::Read(self.ahead.buffer(&records));
                let request = Request::File(file, FileRequest::ReadAhead(records));
                match session.call_on_file(&request, bulk) {
                    Ok((mark, came)) => (records, mark, came),
                    // Damage in what follows, perhaps, or no memory to share: the read itself may be well.
                    Err(CallError::Service(_) | CallError::Link(LinkError::Local(_))) => {
                        self.ahead.back_off();
                        self.count_kept(session);
                        return Ok(None);
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let (records, mark, came) = reply;
        let first = self.ahead.fill(records, came, mark, into);
        self.count_kept(session);
        // What this process reads itself, it reads when it wants it: the kernel reads ahead.
        let may_follow = may_grow && by_server && direct.leaves_next_to_server();
        let following = self.ahead.following().filter(|_| may_follow);
        self.next = following.and_then(|records| {
            let request = Request::File(file, FileRequest::ReadAhead(records));
            let sent = session.begin_read(&request, records.bytes())?;
            Some((records, sent))
        });
        Ok(Some(first))
    }

    /// Gives up what is on its way.
    pub fn drop_sent(&mut self) {
        self.next = None;
    }

    /// Gives up what was read ahead, and the connection by which more is on its way.
    pub fn end(&mut self, session: &LinkSession) {
        (self.ahead, self.next) = Default::default();
        self.count_kept(session);
    }

    fn count_kept(&mut self, session: &LinkSession) {
        let kept = self.ahead.kept_bytes();
        session.keep_bytes(self.counted, kept);
        self.counted = kept;
    }

    /// Records that this process can read itself.
    fn read_directly(
        &mut self,
        session: &LinkSession,
        file: u64,
        direct: &DirectReader,
        records: StridedRecords,
    ) -> Result<Option<ReceivedRecords>, CallError> {
        let read = if records.count == 1 {
            let buffer = self.ahead.buffer(&records);
            direct.read_large(session, file, buffer, records.start)?
        } else {
            let Some(window) = direct.locate_records(session, file, records)? else {
                return Ok(None);
            };
            let buffer = self.ahead.buffer(&records);
            direct.read_records(session, file, &window, buffer)
        };
        let is_whole = read.ends || read.len == records.bytes();
        Ok(is_whole.then_some((records, read.mark, read.len)))
    }

    /// What was on its way, unless it is older than the read that now wants it, or failed: then that one is asked for.
    fn receive(
        &mut self,
        session: &LinkSession,
        (records, sent): (StridedRecords, SentRead),
    ) -> Option<ReceivedRecords> {
        let (mark, came) = sent.receive(self.ahead.buffer(&records)).ok()?;
        let mark: Option<ChangeMark> = mark;
        let current = mark.is_some_and(|mark| session.is_current(mark));
        current.then_some((records, mark, came))
    }
}
