//! The messages of [`super`]: requests and replies between the server processes of one service.
use crate::control::{RecordRequest, StageJob, StageSpec};
use forebay_client::stage::{PartSummary, ReportLine, StageCounts, StopReason};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What one server asks another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum PeerRequest {
    /// What it holds and does: the status of that process alone.
    Status,
    /// About its part of a stage job.
    Stage(PartRequest),
    /// To begin or end a recording of its own mounts.
    Record(RecordRequest),
    /// What speaks against stopping: a sentence for people, if anything does.
    Busy {
        /// The machine of the process that wants it stopped.
        host: String,
        /// That process.
        asker: u32,
    },
}

/// The reply to a request; an error is a sentence for people.
pub type PeerReply = Result<serde_json::Value, String>;

/// What one server asks another about stage jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum PartRequest {
    /// Paths on its machine that are no plain directories: `Vec<PathBuf>`.
    Places,
    /// Start your part; nothing is answered.
    Start(Box<PartSpec>),
    /// How far is your part, with its lines from the `from`-th on: a [`PartProgress`].
    Look {
        /// Of the job.
        job: u64,
        /// Lines known already.
        from: usize,
    },
    /// End your part soon; look on. Nothing is answered.
    Cancel {
        /// Of the job.
        job: u64,
    },
    /// Nobody looks at your part any more; nothing is answered.
    End {
        /// Of the job.
        job: u64,
        /// Everything is copied: forget what is finished, too.
        done: bool,
    },
    /// The jobs that you lead, and what earlier runs left with you: `Vec<ListedJob>`.
    List,
    /// Forget what is finished of jobs that do not run with you; nothing is answered.
    Forget,
    /// End a job that you lead; nothing is answered.
    CancelJob {
        /// Its number.
        job: u64,
    },
}

/// A part to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PartSpec {
    /// Number of the job.
    pub job: u64,
    /// What and how.
    pub spec: StageSpec,
    /// Paths that the walk must not enter, the same for all.
    pub avoid: Vec<PathBuf>,
}

/// How far a part is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PartProgress {
    /// What it has done, without what the walk found.
    pub counts: StageCounts,
    /// Those asked for.
    pub lines: Vec<ReportLine>,
    /// Why it ended, or is ending, before its end.
    pub stop: Option<StopReason>,
    /// It does nothing any more.
    pub ended: bool,
    /// What it leaves, once it has ended; nothing if it broke.
    pub left: Option<PartSummary>,
}

/// A job in a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListedJob {
    /// The same whenever and wherever the same is copied.
    pub key: u64,
    /// Seconds since it began.
    pub age: f64,
    /// As it is shown.
    pub job: StageJob,
}
