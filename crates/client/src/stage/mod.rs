//! Staging: files and trees between a plain directory and the service, without a mount, by all nodes at once.
//!
//! ```text
//! walk (every process, same order) -> node of each task -> queue -> copy to a temporary name -> batch: check again, sync, verify, rename
//!                                                                         |  journal: written               journal: done
//! then, at one node: whole large files renamed, hard links, attributes of directories, a last sync
//! ```
//!
//! | file | what |
//! |---|---|
//! | `run` | a whole run: threads, queues, the parts and the end |
//! | `walk`, `task` | what there is to do, in which order, by which node |
//! | `copy` | one file, or one piece of a large one |
//! | `finalize`, `batch`, `verify` | making what is written durable, comparing it with its source, giving it its name |
//! | `finish` | what must wait until everything else is done |
//! | `worker`, `journal` | one node: its endpoints and its batch; what it has finished, so that a run can go on after an interruption |
//! | `endpoint`, `local_fs`, `service` | the source and the target of a copy, behind the same calls |
//! | `hash` | a hash that is the same on every node: names of temporary files and journal records |
//! | `options`, `manifest`, `report`, `error` | the input of a run, and its report |
//!
//! Invariants:
//! - Nothing has its own name before it is whole; and, unless told not to sync, before its bytes are on disk.
//! - Every process that sees the same source assigns each task to the same node: the member that stores most of its bytes,
//!   or one by hash. So each node can run its own part ([`StageRun::parts`]), and one of them the end ([`StageRun::finish`]).
//! - A file that fails is named, and the rest goes on. A target that is full or read-only ends the run.
//! - Memory does not grow with files: queues, batches and the lines of the report are bounded. It grows with directories (their
//!   paths), with names of files that have several, and by 16 bytes a finished file when a run is resumed.

mod batch;
mod copy;
mod endpoint;
mod error;
mod finalize;
mod finish;
mod hash;
mod journal;
mod local_fs;
mod manifest;
mod options;
mod report;
mod run;
mod service;
mod task;
mod verify;
mod walk;
mod worker;

pub use finish::PartSummary;
pub use journal::{forget, unfinished};
pub use manifest::{ManifestError, parse as parse_manifest};
pub use options::{Direction, PathPair, StageOptions, job_number};
pub use report::{LineKind, ReportLine, StageCounts, StageReport, StopReason};
pub use run::{LocalNode, PartResult, StageOutcome, StageRun};
