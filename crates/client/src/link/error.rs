//! What can go wrong between a client and its server, apart from what the server answers.
use super::wire::{Refusal, VERSION};
use rustix::io::Errno;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a call did not get an answer over the link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Nobody listens at the socket.
    #[error("no server answers at {} ({source}); start one with `forebay mount` or `forebay run`", socket.display())]
    NotRunning {
        /// The socket, or the directory where none was found.
        socket: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Nothing says which server is meant.
    #[error("the variable is not set; start the program with `forebay run`, or set it to a store")]
    NoVariable,
    /// The server does not serve this client.
    #[error("the server at {} refuses: {why}", socket.display())]
    Refused {
        /// The socket.
        socket: PathBuf,
        /// What it said, with what to do.
        why: String,
        /// The number that the call fails with.
        errno: Errno,
    },
    /// The connection ended during the call.
    #[error(
        "the server at {} ended during the call, which may have been carried out; look, and call again", socket.display()
    )]
    Ended {
        /// The socket.
        socket: PathBuf,
    },
    /// The same, as the connection knows it.
    #[error("the server closed the connection")]
    Closed,
    /// The file or team was opened at a server that has ended since.
    #[error("it was opened at a server that has ended since; open it again")]
    Stale,
    /// The server does not answer, though it has not ended.
    #[error(
        "the server at {} has not answered for {} s; see its log, and whether it is stopped", socket.display(), after.as_secs_f32()
    )]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// How long it was waited for.
        after: Duration,
    },
    /// All connections that this process may have are in use.
    #[error("this process has {0} calls to its server under way, and may have no more; try again")]
    Busy(usize),
    /// All connections with which it may wait for locks or teams are in use.
    #[error(
        "this process has {0} calls that wait for locks or for others of a team, and may have no more; try again"
    )]
    ManyWait(usize),
    /// The server answers something that is no answer.
    #[error("the server's answer cannot be read ({0}); use the library of the server's release")]
    Unreadable(&'static str),
    /// A path, name or value is longer than the link carries.
    #[error("it is longer than the {0} bytes that one call carries; make it shorter")]
    TooLong(usize),
    /// The call works in the process of the server only.
    #[error("{0} works only in the process of the server; use `forebay stage` or the mount")]
    EmbeddedOnly(&'static str),
    /// A system call of this process failed.
    #[error("this process cannot use its link to the server: {0}; see its limits (`ulimit -n`)")]
    Local(#[source] io::Error),
}

impl LinkError {
    /// The number that the call fails with.
    pub fn errno(&self) -> Errno {
        match self {
            LinkError::NotRunning { source, .. } => match Errno::from_io_error(source) {
                Some(Errno::NOENT) | None => Errno::CONNREFUSED,
                Some(errno) => errno,
            },
            LinkError::NoVariable => Errno::NOENT,
            LinkError::Refused { errno, .. } => *errno,
            LinkError::Ended { .. } | LinkError::Closed => Errno::NOTCONN,
            LinkError::Stale => Errno::STALE,
            LinkError::Silent { .. } => Errno::TIMEDOUT,
            LinkError::Busy(_) | LinkError::ManyWait(_) => Errno::AGAIN,
            LinkError::Unreadable(_) => Errno::PROTO,
            LinkError::TooLong(_) => Errno::TOOBIG,
            LinkError::EmbeddedOnly(_) => Errno::OPNOTSUPP,
            LinkError::Local(source) => Errno::from_io_error(source).unwrap_or(Errno::IO),
        }
    }

    pub(super) fn refused(socket: PathBuf, why: Refusal, version: u32, text: String) -> LinkError {
        let (why, errno) = match why {
            Refusal::Version => (
                format!(
                    "it speaks version {version} of the link, and this library version {VERSION}; use the library of the server's release"
                ),
                Errno::PROTO,
            ),
            Refusal::User => (text, Errno::PERM),
            Refusal::Full => (text, Errno::AGAIN),
            Refusal::UnknownSession => (text, Errno::STALE),
            Refusal::NoHello => (text, Errno::PROTO),
            Refusal::Stopping => (text, Errno::CONNREFUSED),
        };
        LinkError::Refused { socket, why, errno }
    }
}

/// Why a call failed, by either backend.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error(transparent)]
    Service(#[from] forebay_server::Error),
    #[error(transparent)]
    Link(#[from] LinkError),
}
