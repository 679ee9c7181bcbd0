//! The report of a run, which grows while it goes on: counts, and a line for everything that failed, was skipped or not kept.
use super::endpoint::UnkeptAttribute;
use super::error::StageError;
use parking_lot::Mutex;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Lines kept; more are only counted (and are in the server's log).
const MAX_LINES: usize = 10_000;

/// Said once a run.
const OWNERS_NOT_KEPT: &str = "owners are not kept: only root may give files to others (said once)";

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of one moment. Bytes are those stored, without holes.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct StageCounts { $($(#[$doc])* pub $name: u64),* }
        /// The counters behind [`StageCounts`].
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub $name: AtomicU64),* }
        impl Counters {
            fn counts(&self) -> StageCounts {
                StageCounts { $($name: self.$name.load(Relaxed)),* }
            }
        }
        impl std::ops::AddAssign for StageCounts {
            fn add_assign(&mut self, other: StageCounts) {
                $(self.$name += other.$name;)*
            }
        }
    };
}
counts! {
    /// Files found so far.
    found_files,
    /// Bytes of these.
    found_bytes,
    /// 1 once everything is found.
    all_found,
    /// Files copied and renamed.
    files,
    /// Bytes copied.
    bytes,
    /// Files that an earlier run had finished.
    kept_files,
    /// Bytes of these.
    kept_bytes,
    /// Files (or kept ones) whose content was read again and is right.
    verified_files,
    /// Directories.
    directories,
    /// Symbolic links.
    symlinks,
    /// Further names of files.
    hard_links,
    /// Named pipes.
    fifos,
    /// Device files.
    devices,
    /// Names left out: sockets, devices that this user may not make.
    skipped,
    /// Names that failed.
    failed,
    /// Attributes that could not be kept.
    notes,
}

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LineKind {
    /// A name that was not copied because something failed.
    Failed,
    /// A name that is never copied.
    Skipped,
    /// A name that was copied, but for an attribute.
    Note,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportLine {
    /// What it is about.
    pub kind: LineKind,
    /// Which name, and what.
    pub text: String,
}

/// Why a run ended before its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// It was asked to.
    Cancelled,
    /// Nothing more can be done: what, and what next.
    Fatal(String),
}

/// See the head of this file. Shared by the run and those who watch it.
#[derive(Debug, Default)]
pub struct StageReport {
    pub(super) counters: Counters,
    lines: Mutex<Vec<ReportLine>>,
    stopped: AtomicBool,
    stop: Mutex<Option<StopReason>>,
    owner_noted: AtomicBool,
}

pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

impl StageReport {
    /// The counts now.
    pub fn counts(&self) -> StageCounts {
        self.counters.counts()
    }

    /// The lines from the `from`-th on, at most `most`.
    pub fn lines(&self, from: usize, most: usize) -> Vec<ReportLine> {
        let lines = self.lines.lock();
        lines.iter().skip(from).take(most).cloned().collect()
    }

    /// Asks the run to end soon; what is finished stays.
    pub fn cancel(&self) {
        self.end(StopReason::Cancelled);
    }

    /// Why the run ended, or is ending, before its end.
    pub fn stop(&self) -> Option<StopReason> {
        self.stop.lock().clone()
    }

    /// Whether it is to end.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Ends the run soon: nothing more can be done, and why.
    pub fn fatal(&self, text: String) {
        self.end(StopReason::Fatal(text));
    }

    fn end(&self, stop: StopReason) {
        self.stop.lock().get_or_insert(stop);
        self.stopped.store(true, Relaxed);
    }

    fn line(&self, kind: LineKind, text: String) {
        let mut lines = self.lines.lock();
        if lines.len() < MAX_LINES {
            lines.push(ReportLine { kind, text });
        }
    }

    /// A line of another process of the run. Its counts are told elsewhere.
    pub fn add_line(&self, line: ReportLine) {
        let owners = line.kind == LineKind::Note && line.text.ends_with(OWNERS_NOT_KEPT);
        if !owners || !self.owner_noted.swap(true, Relaxed) {
            self.line(line.kind, line.text);
        }
    }

    pub(super) fn skipped(&self, path: &Path, what: &str) {
        count(&self.counters.skipped, 1);
        self.line(LineKind::Skipped, format!("{}: {what}", path.display()));
    }

    /// An attribute that was not kept. That a plain user cannot give files away is said once.
    pub(super) fn not_kept(&self, path: &Path, lost: &[UnkeptAttribute]) {
        for what in lost {
            count(&self.counters.notes, 1);
            let text = match what {
                UnkeptAttribute::Owner if self.owner_noted.swap(true, Relaxed) => continue,
                UnkeptAttribute::Owner => String::from(OWNERS_NOT_KEPT),
                UnkeptAttribute::Xattr(name) => format!("not kept: attribute {name}"),
            };
            self.line(LineKind::Note, format!("{}: {text}", path.display()));
        }
    }

    /// A name failed; or, if the target takes nothing more, everything.
    pub(super) fn failed(&self, failure: &StageError) {
        if let StageError::Stopped = failure {
            return;
        }
        if let StageError::Io {
            path,
            error,
            target: true,
            ..
        } = failure
        {
            let end = match Errno::from_io_error(error) {
                Some(Errno::NOSPC) => "full",
                None if error.kind() == io::ErrorKind::StorageFull => "full",
                Some(Errno::DQUOT) => "over its quota",
                Some(Errno::ROFS) => "read-only",
                _ => "",
            };
            if !end.is_empty() {
                let next = match end {
                    "read-only" => "mount it for writing, or name another",
                    _ => "make room and run the same command again: what is finished is kept",
                };
                self.fatal(format!(
                    "the target is {end} (at {}); {next}",
                    path.display()
                ));
                return;
            }
        }
        count(&self.counters.failed, 1);
        self.line(LineKind::Failed, failure.to_string());
    }
}
