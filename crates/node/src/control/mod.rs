//! The control socket of a running service: `STORE/control`, one JSON object a line, both ways.
//!
//! ```text
//! client: {"forebay":1,"program":"0.1.0"}                  server: {"forebay":1,"program":"0.1.0","pid":4711}
//! client: "Status" | {"Stop":{"force":false}}              server: {"Status":{...}} | {"Stopped":{"dead":[]}} | {"Refused":"..."}
//! client: {"Stage":"List"} | {"Stage":{"Look":...}} ...    server: {"Stage":{"Jobs":[...]}} ...
//! client: {"Record":{"Start":{...}}} ...                   server: {"Record":{"Started":[...]}} ...
//! client: {"Recode":{"fid":65537,"place":{...}}}           server: {"Recoded":{"report":{...},"next":{...}}}
//! ```
//!
//! Invariants: a server answers only its own user and root, by the kernel's credentials of the peer. A client asks only a server of
//! the store's owner, by the same credentials and by the owner of the socket. A peer of another protocol version is refused, with
//! both versions. Every read has a limit.
mod client;
mod listener;
mod record;
mod stage;
mod status;
mod store_holder;

pub use client::{ConnectError, ControlClient};
pub use listener::{ControlHandler, Listener, remove_left};
pub use record::{RecordPart, RecordReply, RecordRequest, RecordSpec};
pub use stage::{StageJob, StageReply, StageRequest, StageSpec, StageState};
pub use status::{
    Health, MemberEntry, MissingMember, MountStatus, PeerHealth, ProcessStatus, Rates, Status,
};
pub use store_holder::store_holder;

use forebay_server::delegate::{RecodeCursor, RecodeStep};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Version of the protocol.
pub const VERSION: u32 = 1;

/// Longest line, but for the first: the pairs of a long manifest.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// File name of the socket in the store's directory.
const SOCKET_NAME: &str = "control";

/// The first line of both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Protocol version: [`VERSION`].
    pub forebay: u32,
    /// Version of the program.
    pub program: String,
    /// Process id of the server; 0 from a client.
    #[serde(default)]
    pub pid: u32,
}

impl Hello {
    fn own(pid: u32) -> Hello {
        Hello {
            forebay: VERSION,
            program: env!("CARGO_PKG_VERSION").to_string(),
            pid,
        }
    }
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlRequest {
    /// What `forebay status` shows.
    Status,
    /// Commit, unmount, close.
    Stop {
        /// Also if files are open.
        force: bool,
    },
    /// About stage jobs.
    Stage(StageRequest),
    /// About recordings.
    Record(RecordRequest),
    /// A step of encoding a file again.
    Recode {
        /// The file: its inode number.
        fid: u64,
        /// Where the step begins.
        place: RecodeCursor,
    },
}

/// A member that the others have declared dead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadMember {
    /// Its number.
    pub member: u16,
    /// The name of its machine, as the machine itself says it.
    pub host: String,
    /// Its process there.
    pub pid: u32,
}

/// What the server answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ControlReply {
    /// To [`ControlRequest::Status`].
    Status(Box<Status>),
    /// To [`ControlRequest::Stop`]: unmounted, closed and unlocked.
    Stopped {
        /// Members that had been declared dead: whether their processes have ended is not known to the service.
        dead: Vec<DeadMember>,
    },
    /// To [`ControlRequest::Stage`].
    Stage(StageReply),
    /// To [`ControlRequest::Record`].
    Record(RecordReply),
    /// To [`ControlRequest::Recode`].
    Recoded(RecodeStep),
    /// Why not, and what to do.
    Refused(String),
}

/// A path to the socket that is short enough for any store: socket addresses end at 107 bytes.
///
/// The open directory must live as long as the path is used.
fn address(store: &Path) -> std::io::Result<(File, PathBuf)> {
    let directory = File::open(store)?;
    let path = PathBuf::from(format!(
        "/proc/self/fd/{}/{SOCKET_NAME}",
        directory.as_raw_fd()
    ));
    Ok((directory, path))
}
