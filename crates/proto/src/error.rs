//! What an operation can fail with. POSIX outcomes are plain numbers, so that they cost nothing and travel.
use rustix::io::Errno;

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// See the head of this file. `WireError` is its form on the wire.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The outcome POSIX names for this call.
    #[error("{0}")]
    Posix(Errno),
    /// The bytes at this address were given back; ask the index again.
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
    /// A commit's state changed while it was read; ask again (never leaves the delegate).
    #[error("the file changed while it was read")]
    Stale,
    /// The member's store failed.
    #[error(transparent)]
    Storage(#[from] forebay_storage::Error),
    /// Another member could not be reached.
    #[error(transparent)]
    Fabric(#[from] forebay_fabric::Error),
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
        failure: forebay_fabric::ring::Failure,
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
            Error::Corrupt(_) | Error::Storage(forebay_storage::Error::Corrupt { .. })
        )
    }

    /// The number a system call fails with.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Posix(e) => *e,
            Error::Storage(forebay_storage::Error::NoSpace { .. }) => Errno::NOSPC,
            Error::Storage(forebay_storage::Error::NoDescriptors { .. }) => Errno::NFILE,
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
