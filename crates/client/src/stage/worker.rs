//! One node's part of a run: source, target, journal and batch; and the context that all parts in this process share.
//!
//! Invariant: a record of the journal is identified by its task and by a stamp of the source. The stamp of a piece also covers
//! the identity (number and time of creation) of the file that the piece is in: its temporary file, or the target once that is
//! whole. If that file was created again since, the record is ignored and the piece copied again; likewise where the target has
//! no times of creation.
use super::batch::WrittenBatch;
use super::endpoint::{CopyEndpoint, ObjectRef, ObjectStat, Xattr};
use super::error::{StageError, StageErrorContext};
use super::hash::StableHash;
use super::journal::{Journal, TaskProgress};
use super::options::{PathPair, StageOptions};
use super::report::StageReport;
use super::task::{CopyTask, source_stamp};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

/// What the nodes of this process share.
pub struct RunContext {
    /// The job's number.
    pub number: u64,
    /// What is copied.
    pub pairs: Vec<PathPair>,
    /// How.
    pub options: StageOptions,
    /// Nodes of all processes.
    pub nodes: u16,
    /// What the run tells.
    pub report: Arc<StageReport>,
    /// What the walk tells: the report, unless another process leads.
    pub walk_report: Arc<StageReport>,
    /// Large files, by key, of which a piece failed here; and by [`CopyTask::finished_key`] those that an earlier run has finished.
    pub broken: Mutex<BTreeSet<u64>>,
}

impl RunContext {
    /// Whether the run is to end.
    pub fn stopped(&self) -> bool {
        self.report.stopped() || self.walk_report.stopped()
    }

    /// A task failed. Of a large file's pieces only the first failure is reported.
    pub fn task_failed(&self, task: &CopyTask, error: &StageError) {
        if task.piece.is_none() || self.broken.lock().insert(task.key) {
            self.report.failed(error);
        }
    }
}

/// One node at work.
pub struct NodeWorker {
    /// What it shares with the others.
    pub run: Arc<RunContext>,
    /// Its member.
    pub node: u16,
    /// The source.
    pub from: Arc<dyn CopyEndpoint>,
    /// The target.
    pub to: Arc<dyn CopyEndpoint>,
    /// What earlier runs and this one have finished.
    pub journal: Journal,
    /// What is written and has no name yet.
    pub batch: Mutex<WrittenBatch>,
}

/// What the journal knows a copy by, besides its task.
#[derive(Clone, Copy)]
pub struct CopyStamp {
    /// The number in the journal.
    pub stamp: u64,
    /// Of a piece: the file that it is in has its own name already.
    pub finished: bool,
}

impl NodeWorker {
    /// Whether the target of a finished file is there as it was left.
    pub fn has_target(&self, task: &CopyTask) -> bool {
        let there = self.to.lookup(&task.folder.to, &task.target);
        there.is_ok_and(|(_, there)| there.same_content(&task.stat))
    }

    /// The stamp of a copy of this source; `None` for a piece without a file that it is in.
    pub fn copy_stamp(&self, task: &CopyTask, stat: &ObjectStat) -> Option<CopyStamp> {
        if task.piece.is_none() {
            let (stamp, finished) = (source_stamp(stat), false);
            return Some(CopyStamp { stamp, finished });
        }
        let dir = &task.folder.to;
        let (file, finished) = match self.to.lookup(dir, &task.temporary(self.run.number, true)) {
            Ok((_, file)) => (file, false),
            Err(_) => {
                let (_, target) = self.to.lookup(dir, &task.target).ok()?;
                (target.same_content(&task.stat).then_some(target)?, true)
            }
        };
        let created = file.created?;
        let hash = StableHash::new(source_stamp(stat))
            .number(file.id.0)
            .number(file.id.1)
            .number(created.secs as u64)
            .number(created.nanos.into());
        let stamp = hash.finish();
        Some(CopyStamp { stamp, finished })
    }

    /// Notes in the journal how far the copy of this source has come.
    ///
    /// # Errors
    /// A full store is reported as such: it must not end in copies that look unfinished.
    pub fn note(
        &self,
        task: &CopyTask,
        stat: &ObjectStat,
        progress: TaskProgress,
    ) -> Result<(), StageError> {
        let Some(known) = self.copy_stamp(task, stat) else {
            return Ok(());
        };
        let noted = self.journal.add(task.journal_key(), known.stamp, progress);
        noted.on_target("write the journal for", &task.target_path())
    }

    /// The source of a task as it is now.
    ///
    /// # Errors
    /// As the file system.
    pub fn stat_source(&self, task: &CopyTask) -> Result<ObjectStat, StageError> {
        let now = self.from.stat(&task.from);
        now.on_source("look again at", &task.source_path())
    }

    /// Gives what is written under a temporary name the name of the task.
    ///
    /// # Errors
    /// As the file system.
    pub fn give_name(&self, task: &CopyTask, temporary: &OsStr) -> Result<(), StageError> {
        let renamed = self.to.rename(&task.folder.to, temporary, &task.target);
        renamed.on_target("give its name to", &task.target_path())
    }

    /// The extended attributes of an object of the source, seen as `stat`.
    ///
    /// # Errors
    /// As the file system.
    pub fn read_xattrs(
        &self,
        from: &ObjectRef,
        path: &Path,
        stat: &ObjectStat,
    ) -> Result<Vec<Xattr>, StageError> {
        let read = stat.xattrs.then(|| self.from.xattrs(from)).transpose();
        let read = read.on_source("read attributes of", path)?;
        Ok(read.unwrap_or_default())
    }

    /// Brings every name that was given in the target to disk.
    ///
    /// # Errors
    /// As the file system.
    pub fn sync_names(&self) -> Result<(), StageError> {
        let first = self.run.pairs.first();
        let path = first.map(|pair| pair.to.clone()).unwrap_or_default();
        self.to
            .sync_names()
            .on_target("bring names to disk in", &path)
    }

    /// Gives an object of the target the attributes of its source, last seen as `stat`, and tells what could not be kept. Each
    /// with its path, for messages.
    ///
    /// # Errors
    /// As the file systems.
    pub fn copy_attributes(
        &self,
        (from, from_path): (&ObjectRef, &Path),
        (to, to_path): (&ObjectRef, &Path),
        stat: &ObjectStat,
    ) -> Result<(), StageError> {
        let xattrs = self.read_xattrs(from, from_path, stat)?;
        let set = self.to.set_attributes(to, stat, &xattrs);
        let lost = set.on_target("set attributes of", to_path)?;
        self.run.report.not_kept(to_path, &lost);
        Ok(())
    }
}
