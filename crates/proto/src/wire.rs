//! What travels between members: a request to one part, a one-way message, an error in place of a reply.
//!
//! A head on the wire is the postcard form of [`Request`], or of `Result<Reply, WireError>` with the reply type of that request
//! (`call` draws both). Members of one service run the same version ([`VERSION`]), so heads carry no version of their own.
use crate::call::{Call, Reread, reread};
use crate::data::DataRequest;
use crate::files::FilesRequest;
use crate::locks::{GrantNotice, LocksRequest};
use crate::meta::{LeafRequest, OperationRequest};
use crate::{Attr, Error, Fid, Member};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Raised when any message changes its meaning; the handshake compares it.
pub const VERSION: u32 = 7;

/// A request to another member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// For operations of the namespace.
    Operations(OperationRequest),
    /// For the names and attributes that the member has.
    Leaf(LeafRequest),
    /// For file content and sequences.
    Files(FilesRequest),
    /// For log bytes.
    Data(DataRequest),
    /// For advisory locks.
    Locks(LocksRequest),
    /// For the kernel of the member's node, which has to drop what it holds. Answered once it has.
    Kernel(KernelInvalidation),
}

/// What the kernel of another node must not show any more as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelInvalidation {
    /// A file's bytes or size were changed, and published: as it is since.
    Changed(Attr),
    /// The directory was moved to another parent.
    Moved {
        /// Which.
        fid: Fid,
        /// Where it is now, from the root on.
        path: Vec<u8>,
    },
}

impl From<KernelInvalidation> for Request {
    fn from(request: KernelInvalidation) -> Request {
        Request::Kernel(request)
    }
}

impl Call for KernelInvalidation {
    type Reply = ();
}

impl Request {
    /// Reads the head of a reply to it, and writes it again: for tests of the encoding.
    ///
    /// # Errors
    /// When it is none.
    pub fn reread_reply(&self, head: &[u8]) -> postcard::Result<Reread> {
        match self {
            Request::Operations(request) => request.reread_reply(head),
            Request::Leaf(request) => request.reread_reply(head),
            Request::Files(request) => request.reread_reply(head),
            Request::Data(request) => request.reread_reply(head),
            Request::Locks(request) => request.reread_reply(head),
            Request::Kernel(_) => reread::<KernelInvalidation>(head),
        }
    }
}

/// A one-way message to another member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum OneWay {
    /// A lock that it waits for is there.
    Lock(GrantNotice),
}

/// An error as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireError {
    /// A POSIX outcome (also "no space" and "no descriptors" of a store).
    Errno(i32),
    /// See [`Error::Gone`].
    Gone {
        /// The member that answered so.
        member: u16,
        /// The log asked for.
        log: u64,
        /// The first address that is gone.
        addr: u64,
    },
    /// See [`Error::Corrupt`].
    Corrupt(String),
    /// See [`Error::Stale`].
    Stale,
    /// See [`Error::Refused`].
    Refused(String),
    /// The member could not reach that rank.
    Dead(u32),
    /// That rank did not answer the member in time.
    Deadline(u32, Duration),
    /// Anything else, as text.
    Other(String),
}

impl From<&Error> for WireError {
    fn from(error: &Error) -> WireError {
        use forebay_fabric::Error as Fabric;
        use forebay_storage::Error as Storage;
        match error {
            Error::Posix(e) => WireError::Errno(e.raw_os_error()),
            Error::Gone { member, log, addr } => WireError::Gone {
                member: *member,
                log: *log,
                addr: *addr,
            },
            Error::Corrupt(text) => WireError::Corrupt(text.clone()),
            Error::Stale => WireError::Stale,
            Error::Refused(text) => WireError::Refused(text.clone()),
            Error::Storage(Storage::NoSpace { .. }) => {
                WireError::Errno(Errno::NOSPC.raw_os_error())
            }
            Error::Storage(Storage::NoDescriptors { .. }) => {
                WireError::Errno(Errno::NFILE.raw_os_error())
            }
            Error::Storage(e @ Storage::Corrupt { .. }) => WireError::Corrupt(e.to_string()),
            Error::Fabric(Fabric::Dead(rank)) => WireError::Dead(*rank),
            Error::Fabric(Fabric::Deadline { rank, after }) => WireError::Deadline(*rank, *after),
            other => WireError::Other(other.to_string()),
        }
    }
}

impl WireError {
    /// The error as the asking member sees it; `member` answered.
    pub fn into_error(self, member: Member) -> Error {
        use forebay_fabric::Error as Fabric;
        match self {
            WireError::Errno(e) => match (1..4096).contains(&e) {
                true => Error::Posix(Errno::from_raw_os_error(e)),
                false => Error::Peer {
                    member,
                    reason: format!("answered with error number {e}, which is none"),
                },
            },
            WireError::Gone { member, log, addr } => Error::Gone { member, log, addr },
            WireError::Corrupt(text) => Error::Corrupt(text),
            WireError::Stale => Error::Stale,
            WireError::Refused(text) => Error::Refused(text),
            WireError::Dead(rank) => Error::Fabric(Fabric::Dead(rank)),
            WireError::Deadline(rank, after) => Error::Fabric(Fabric::Deadline { rank, after }),
            WireError::Other(reason) => Error::Peer { member, reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_that_is_none_is_the_peers_error() {
        for e in [0, -1, 4096, 65_537, i32::MIN, i32::MAX] {
            let error = WireError::Errno(e).into_error(3);
            assert!(matches!(error, Error::Peer { member: 3, .. }), "{error}");
        }
        let error = WireError::Errno(Errno::NOENT.raw_os_error()).into_error(3);
        assert!(matches!(error, Error::Posix(Errno::NOENT)), "{error}");
    }
}
