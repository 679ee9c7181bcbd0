//! Staging: files and trees between a plain directory and the service, without a mount, by all nodes at once.
//!
//! ```text
//! walk (every process, same order) -> node of each task -> queue -> copy to a temporary name -> batch: look again, sync, verify, rename
//!                                                                         |  journal: written              journal: done
//! then, at one node: whole large files renamed, hard links, attributes of directories, a last sync
//! ```
//!
//! | file | what |
//! |---|---|
//! | `tree`, `plain`, `service`, `opened` | the two sides behind the same calls |
//! | `task`, `walk`, `partition` | what there is to do, in which order, by which node |
//! | `copy` | one file, or one piece of a large one |
//! | `land` | making what is written durable and giving it its name |
//! | `finish` | what must wait until everything else is done |
//! | `journal` | going on after an interruption |
//! | `job`, `report`, `manifest` | a whole run, what it tells, what it is told |
//!
//! Invariants:
//! - Nothing has its own name before it is whole; and, unless told not to sync, before its bytes are on disk.
//! - Every process that sees the same source assigns each task to the same node: the member that stores most of its bytes,
//!   or one by hash. So each node can run its own part ([`Job::parts`]), and one of them the end ([`Job::finish`]).
//! - A file that fails is named, and the rest goes on. A target that is full or read-only ends the run.
//! - Memory does not grow with files: queues, batches and the lines of the report are bounded. It grows with directories (their
//!   paths), with names of files that have several, and by 16 bytes a finished file when a run is resumed.

mod copy;
mod finish;
mod hash;
mod job;
mod journal;
mod land;
mod manifest;
mod opened;
mod partition;
mod plain;
mod queue;
mod report;
mod service;
mod task;
mod tree;
mod walk;

pub use job::{Direction, Job, Left, Local, Options, Outcome, Pair, Parts, job_number};
pub use journal::{forget, left};
pub use manifest::{ManifestError, parse as parse_manifest};
pub use report::{Counts, Line, LineKind, Report, Stop};
