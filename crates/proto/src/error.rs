//! Errors of operations, and their form on the wire. POSIX outcomes are plain error numbers, the same at every member.
use crate::Member;
use forebay_fabric::Error as Fabric;
use forebay_storage::Error as Storage;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// See the head of this file. [`WireError`] is its form on the wire.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The outcome POSIX names for this call.
    #[error("{0}")]
    Posix(Errno),
    /// What was given is not possible (`EINVAL`); the text says what is.
    #[error("{0}")]
    Invalid(String),
    /// The bytes at this address were freed; ask the index again.
    #[error("log {log} address {addr} of member {member} was given back")]
    Gone {
        /// Whose log.
        member: u16,
        /// Which log.
        log: u64,
        /// The first address that is gone.
        addr: u64,
    },
    /// Stored bytes are not what was written. Reads answer `EIO`.
    #[error("{0}")]
    Corrupt(String),
    /// A read, or the plan of a commit, is from an outdated view of the file; ask anew and plan again (callers of a delegate never
    /// see it).
    #[error("the file changed while it was read")]
    Replan,
    /// The member's store failed.
    #[error(transparent)]
    Storage(#[from] Storage),
    /// Another member could not be reached.
    #[error(transparent)]
    Fabric(#[from] Fabric),
    /// Another member failed in a way that has no kind of its own here.
    #[error("member {member}: {reason}")]
    Peer {
        /// Which member.
        member: u16,
        /// What it said.
        reason: String,
    },
    /// A call that a team makes together failed; the others of the team hear so too.
    #[error(
        "call {round} of team {number}: {failure}; see that all clients of the team make the same calls, about at the same time, and form a team with a new number if they do not go on alike"
    )]
    Team {
        /// The team.
        number: u32,
        /// Which call.
        round: u64,
        /// Why.
        failure: forebay_fabric::ring::CollectiveFailure,
    },
    /// The number of a team that is to be formed is another one's whose clients have not left yet.
    #[error(
        "team {0}: its number is another team's; wait until that has left, or choose a new one"
    )]
    TeamTaken(u32),
    /// Anything the user must act on; the text says what to do.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// Whether stored bytes are not what was written, which costs what needs them.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Error::Corrupt(_) | Error::Storage(Storage::Corrupt { .. })
        )
    }

    /// The number a system call fails with.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Posix(e) => *e,
            Error::Invalid(_) => Errno::INVAL,
            Error::Storage(Storage::NoSpace { .. }) => Errno::NOSPC,
            Error::Storage(Storage::NoDescriptors { .. }) => Errno::NFILE,
            Error::TeamTaken(_) => Errno::BUSY,
            _ => Errno::IO,
        }
    }
}

impl From<Errno> for Error {
    fn from(e: Errno) -> Error {
        Error::Posix(e)
    }
}

/// Keeps the text, with the kind of the number that the system call fails with.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error {
            Error::Posix(errno) => errno.into(),
            other => {
                let kind = io::Error::from(other.errno()).kind();
                io::Error::new(kind, other)
            }
        }
    }
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
    /// See [`Error::Replan`].
    Replan,
    /// See [`Error::Refused`].
    Refused(String),
    /// See [`Error::Invalid`].
    Invalid(String),
    /// The member could not reach that rank.
    Dead(u32),
    /// That rank did not answer the member in time.
    Deadline(u32, Duration),
    /// Anything else, as text.
    Other(String),
}

impl From<&Error> for WireError {
    fn from(error: &Error) -> WireError {
        match error {
            Error::Posix(_)
            | Error::Storage(Storage::NoSpace { .. } | Storage::NoDescriptors { .. }) => {
                WireError::Errno(error.errno().raw_os_error())
            }
            Error::Gone { member, log, addr } => WireError::Gone {
                member: *member,
                log: *log,
                addr: *addr,
            },
            Error::Corrupt(text) => WireError::Corrupt(text.clone()),
            Error::Replan => WireError::Replan,
            Error::Refused(text) => WireError::Refused(text.clone()),
            Error::Invalid(text) => WireError::Invalid(text.clone()),
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
            WireError::Replan => Error::Replan,
            WireError::Refused(text) => Error::Refused(text),
            WireError::Invalid(text) => Error::Invalid(text),
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
