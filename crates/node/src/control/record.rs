//! Recordings over the control socket: start, stop. See [`super`].
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What to record, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordSpec {
    /// The recording: the same for all servers that take part in it.
    pub id: u64,
    /// What to call it.
    pub name: String,
    /// Where each server makes a file for each of its mounts; on no mount of theirs.
    pub dir: PathBuf,
    /// Nanoseconds since 1970.
    pub begun: u64,
    /// Threads are ranks, instead of processes.
    pub threads: bool,
    /// The kernel is to keep nothing meanwhile.
    pub exact: bool,
    /// The process whose end ends the recording.
    pub asker: u32,
}

/// What a client asks about recordings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordRequest {
    /// Record every request of all mounts of the service.
    Start(RecordSpec),
    /// End it; the files are whole then.
    Stop {
        /// Which.
        id: u64,
    },
}

/// The file of one mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordPart {
    /// The file.
    pub path: PathBuf,
    /// The mount, as its own machine names it.
    pub mount: PathBuf,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordReply {
    /// To [`RecordRequest::Start`]; none if another server of the service has told of them.
    Started(Vec<RecordPart>),
    /// To [`RecordRequest::Stop`]: what is wrong with parts, as sentences for people.
    Stopped(Vec<String>),
}
