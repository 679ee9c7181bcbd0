//! What `files` and `outbox` ask of other members. A trait, so that tests can lose requests and replies.
use crate::{Error, Member, Peers, Result};
use forebay_proto::data::{DataReply, DataRequest};
use forebay_proto::files::{FilesReply, FilesRequest};
use std::time::Duration;

/// The other members as this part sees them. Never called while an inode's lock or a slice's lock is held.
pub trait ContentPeers: Send + Sync {
    /// This member.
    fn member(&self) -> Member;
    /// How many members the service has.
    fn members(&self) -> u16;
    /// How long a request to another member may take.
    fn deadline(&self) -> Duration;
    /// Asks the content side of member `to`.
    fn files(&self, to: Member, request: FilesRequest) -> Result<FilesReply>;
    /// Gives log bytes `(log, address, length)` of member `to` back (idempotent).
    fn free(&self, to: Member, ranges: Vec<(u64, u64, u64)>) -> Result<()>;
    /// All log bytes that member `to` has are on disk, with the records that find them.
    fn sync_data(&self, to: Member) -> Result<()>;
    /// Which of these log ranges `(log, address, length)` of member `to` can be read whole.
    fn readable(&self, to: Member, ranges: Vec<(u64, u64, u64)>) -> Result<Vec<bool>>;
}

impl ContentPeers for Peers {
    fn member(&self) -> Member {
        Peers::member(self)
    }
    fn members(&self) -> u16 {
        Peers::members(self)
    }
    fn deadline(&self) -> Duration {
        Peers::deadline(self)
    }
    fn files(&self, to: Member, request: FilesRequest) -> Result<FilesReply> {
        Peers::files(self, to, request)
    }
    fn free(&self, to: Member, ranges: Vec<(u64, u64, u64)>) -> Result<()> {
        match self.data(to, DataRequest::Free { ranges })?.0 {
            DataReply::Done => Ok(()),
            other => Err(Error::Peer {
                member: to,
                reason: format!("answered a free with {other:?}"),
            }),
        }
    }
    fn sync_data(&self, to: Member) -> Result<()> {
        match self.data(to, DataRequest::Sync)?.0 {
            DataReply::Done => Ok(()),
            other => Err(Error::Peer {
                member: to,
                reason: format!("answered a sync with {other:?}"),
            }),
        }
    }
    fn readable(&self, to: Member, ranges: Vec<(u64, u64, u64)>) -> Result<Vec<bool>> {
        let wanted = ranges.len();
        match self.data(to, DataRequest::Verify { ranges })?.0 {
            DataReply::Readable(readable) if readable.len() == wanted => Ok(readable),
            other => Err(Error::Peer {
                member: to,
                reason: format!("answered a question about {wanted} ranges with {other:?}"),
            }),
        }
    }
}
