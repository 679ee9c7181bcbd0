//! What members say to each other. One enum per part, so that each part owns its words; bulk bytes travel beside.
//!
//! A head on the wire is the postcard form of [`Request`], or of `Result<Reply, WireError>`. Members of one service run
//! the same version ([`VERSION`]), so heads carry no version of their own.
use crate::data::{DataReply, DataRequest};
use crate::files::{FilesReply, FilesRequest};
use crate::locks::{LocksReply, LocksRequest};
use crate::meta::{MetaReply, MetaRequest};
use crate::{Error, Member};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Raised when any message changes its meaning; the handshake compares it.
pub const VERSION: u32 = 6;

/// A request to another member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// For the namespace.
    Meta(MetaRequest),
    /// For file content and sequences.
    Files(FilesRequest),
    /// For log bytes.
    Data(DataRequest),
    /// For advisory locks.
    Locks(LocksRequest),
    /// For the kernel of the member's node, which has to hear of this. Answers `Renewed` afterwards.
    Renew(KernelNews),
}

/// What the kernel of another node may keep as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelNews {
    /// A file's bytes or size were changed, and published: as it is since.
    Changed(crate::Attr),
    /// The directory was moved to another parent.
    Moved {
        /// Which.
        fid: crate::Fid,
        /// Where it is now, from the root on.
        path: Vec<u8>,
    },
}

/// The answer to the request of the same name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// From the namespace.
    Meta(MetaReply),
    /// From file content and sequences.
    Files(FilesReply),
    /// From the data plane; its bytes are the bulk of the message.
    Data(DataReply),
    /// From the keeper of locks.
    Locks(LocksReply),
    /// The kernel has heard of it.
    Renewed,
}

/// A one-way message to another member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum OneWay {
    /// A lock that it waits for is there.
    Lock(crate::locks::Notice),
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
