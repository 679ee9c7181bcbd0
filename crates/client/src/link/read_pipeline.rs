//! Small reads of one open file: what came ahead, and the request for what follows, which is on its way meanwhile.
//!
//! Invariant: bytes are given out only with a mark that is current after the read has begun.
use super::connection::BulkTransfer;
use super::error::{CallError, LinkError};
use super::read_ahead::ReadAhead;
use super::request::{FileRequest, Records, Request};
use super::session::{LinkSession, SentRead};
use forebay_server::delegate::ChangeMark;
use std::sync::Arc;

/// See the head of this file.
#[derive(Default)]
pub(super) struct ReadPipeline {
    ahead: ReadAhead,
    /// The records behind those that came last.
    next: Option<(Records, SentRead)>,
}

/// Records that came: which, the mark of before they were read, and their bytes.
type Reply = (Records, Option<ChangeMark>, usize);

impl ReadPipeline {
    /// Reads, if what is asked for came ahead, or is asked for with what follows; `None`: it is to be asked for alone.
    pub fn read(
        &mut self,
        session: &Arc<LinkSession>,
        file: u64,
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
        let Some(records) = self.ahead.next_records(offset, into.len()) else {
            return Ok(None);
        };
        if !session.has_change_counters() {
            return Ok(None);
        }
        let sent = sent.filter(|(sent, _)| sent.goes_on_as(&records));
        let reply = match sent.and_then(|sent| self.receive(session, sent)) {
            Some(reply) => reply,
            None => {
                let bulk = BulkTransfer::Read(self.ahead.buffer(&records));
                let request = Request::File(file, FileRequest::ReadAhead(records));
                match session.call_on_file(&request, bulk) {
                    Ok((mark, came)) => (records, mark, came),
                    // Memory to share, perhaps, which a smaller read needs not.
                    Err(CallError::Link(LinkError::Local(_))) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        };
        let (records, mark, came) = reply;
        let first = self.ahead.fill(records, came, mark, into);
        self.next = self.ahead.following().and_then(|records| {
            let request = Request::File(file, FileRequest::ReadAhead(records));
            let sent = session.begin_read(&request, records.bytes())?;
            Some((records, sent))
        });
        Ok(Some(first))
    }

    /// What was on its way, unless it is older than the read that now wants it, or failed: then that one is asked for.
    fn receive(
        &mut self,
        session: &LinkSession,
        (records, sent): (Records, SentRead),
    ) -> Option<Reply> {
        let (mark, came) = sent.receive(self.ahead.buffer(&records)).ok()?;
        let mark: Option<ChangeMark> = mark;
        let current = mark.is_some_and(|mark| session.is_current(mark));
        current.then_some((records, mark, came))
    }
}
