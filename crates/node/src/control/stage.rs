//! Stage jobs over the control socket: start, look, cancel. See [`super`].
use forebay_client::stage::{ReportLine, StageCounts};
use serde::{Deserialize, Serialize};

/// What to copy, and how. Paths are absolute; those in the service begin at its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageSpec {
    /// Into the service; else out of it.
    pub into: bool,
    /// Sources, and the names they get.
    pub pairs: Vec<(String, String)>,
    /// Reads every copy again.
    pub verify: bool,
    /// Brings everything to disk.
    pub sync: bool,
    /// Goes on when the process that asked has ended.
    pub background: bool,
    /// Files in flight at each node; 0: as many as suit the service.
    pub jobs: u16,
}

/// What a client asks about stage jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageRequest {
    /// Starts a job.
    Start(Box<StageSpec>),
    /// One job, with its lines from the `from`-th on.
    Look {
        /// Its number in this service's run.
        job: u64,
        /// Lines known already.
        from: usize,
    },
    /// All jobs.
    List,
    /// Forgets what is finished of jobs that do not run: they are unfinished no longer.
    Forget,
    /// Ends a job soon; what is finished stays.
    Cancel {
        /// Its number.
        job: u64,
    },
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum StageReply {
    /// To `Start`, with the job's number; and to `Cancel`.
    Job(u64),
    /// To `Look`.
    Seen(Box<StageJob>),
    /// To `List`, and to `Forget`.
    Jobs(Vec<StageJob>),
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageState {
    /// It runs.
    Running,
    /// Everything is copied.
    Done,
    /// Everything but what its lines name.
    Failed,
    /// It ended before its end; the same command goes on.
    Stopped,
    /// An earlier run of the service was cut off in it, or left some of it; the same command goes on.
    Unfinished,
}

/// A job as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageJob {
    /// Its number in this service's run; 0 for an unfinished one of an earlier run.
    pub job: u64,
    /// Direction, source and target, for people.
    pub what: String,
    /// How far it is.
    pub state: StageState,
    /// Why it was stopped.
    pub why: Option<String>,
    /// It goes on when the process that asked has ended.
    pub background: bool,
    /// Seconds it runs, or ran.
    pub seconds: f64,
    /// What it has done.
    pub counts: StageCounts,
    /// What failed, was skipped, or not kept: those asked for.
    pub lines: Vec<ReportLine>,
}
