//! What `files` and the outbox ask of other members. A trait, so that tests can lose requests and replies.
use crate::data::proto::{DataReply, DataRequest};
use crate::files::proto::{FilesReply, FilesRequest};
use crate::{Error, Member, Peers, Result};
use std::time::Duration;

/// The other members as this part sees them. Never called while an inode's lock or a slice's lock is held.
pub trait Links: Send + Sync {
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
}

impl Links for Peers {
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
}
