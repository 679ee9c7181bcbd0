//! Finishes a run once everything is copied: renames large files, makes hard links, and sets attributes of directories.
use super::endpoint::{ListedName, ObjectRef, ObjectStat};
use super::error::{StageError, StageErrorContext};
use super::journal::TaskProgress;
use super::report::count;
use super::task::{CopyTask, DirectoryPair, HardLink, is_temporary, source_stamp};
use super::walk::{NAMES_PER_LOOKUP, WalkResult};
use super::worker::NodeWorker;
use forebay_server::Kind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;

/// What the parts of a process leave that the end must know. Grows with large files that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSummary {
    /// Large files, by key, of which a piece failed; and, by another key of theirs, those that an earlier run has finished. Those of all processes together decide.
    pub broken: BTreeSet<u64>,
    /// Of what the walk saw, and which node each task is of.
    pub digest: u64,
    /// The first name that the walk of a process that does not lead could not look at.
    pub walk_failure: Option<String>,
    /// No earlier run has left anything.
    pub fresh: bool,
    /// Names that failed in other processes.
    pub failed: u64,
}

/// Does it, naming what fails. `all`: what the parts of all processes left.
pub fn finish(
    worker: &NodeWorker,
    found: &WalkResult,
    all: &PartSummary,
) -> Result<(), StageError> {
    let (run, broken) = (&worker.run, &all.broken);
    let tell = |done: Result<(), StageError>| {
        if let Err(error) = done {
            run.report.failed(&error);
        }
        match run.report.stopped() {
            true => Err(StageError::Stopped),
            false => Ok(()),
        }
    };
    let (unfinished, whole): (Vec<&CopyTask>, Vec<&CopyTask>) = found
        .large
        .iter()
        .partition(|task| broken.contains(&task.key));
    for task in whole {
        let finished = broken.contains(&task.finished_key());
        tell(finish_large(worker, task, finished))?;
    }
    for link in &found.links {
        tell(make_link(worker, link))?;
    }
    // The next run goes on with these.
    let kept = unfinished.iter().map(|t| t.temporary(run.number, true));
    let kept: BTreeSet<OsString> = kept.collect();
    let kept = (!all.fresh).then_some(&kept);
    // From the bottom up: taking rights away from a directory must not lock out what is below it.
    for folders in found.folders.rchunks(NAMES_PER_LOOKUP) {
        let places: Vec<ObjectRef> = folders.iter().map(|f| f.from.clone()).collect();
        let seen = worker.from.stat_many(&places);
        for (folder, seen) in folders.iter().zip(seen).rev() {
            tell(finish_directory(worker, folder, seen, kept))?;
        }
    }
    if run.options.sync {
        tell(worker.sync_names())?;
    }
    Ok(())
}

/// Gives a large file, whose pieces are all written, its length, attributes and name.
fn finish_large(worker: &NodeWorker, task: &CopyTask, finished: bool) -> Result<(), StageError> {
    let (path, dir) = (task.target_path(), &task.folder.to);
    let counters = &worker.run.report.counters;
    let temporary = task.temporary(worker.run.number, true);
    let found = worker.to.lookup(dir, &temporary);
    if (finished || found.is_err()) && worker.has_target(task) {
        // An earlier run was cut off after this step; or one process has begun it again, not knowing that it was finished: there is
        // a journal that knows.
        if found.is_ok() {
            let _ = worker.to.remove(dir, &temporary);
        }
        count(&counters.kept_files, 1);
        return Ok(());
    }
    let (place, written) = found.on_target("find what was written of", &path)?;
    if source_stamp(&worker.stat_source(task)?) != source_stamp(&task.stat) {
        let path = task.source_path();
        // The next run begins it again under another temporary name.
        let _ = worker.to.remove(dir, &temporary);
        return Err(StageError::Changed { path });
    }
    if written.size != task.stat.size {
        let file = worker.to.create(dir, &temporary, &task.target, false);
        let mut file = file.on_target("open", &path)?;
        let set = file.set_len(task.stat.size);
        set.on_target("set the length of", &path)?;
        file.finish(None).on_target("finish", &path)?;
    }
    let from_path = task.source_path();
    worker.copy_attributes((&task.from, &from_path), (&place, &path), &task.stat)?;
    if worker.run.options.sync {
        let file = [(dir.clone(), temporary.clone())];
        worker.to.sync(&file).on_target("bring to disk", &path)?;
    }
    worker.give_name(task, &temporary)?;
    let synced = worker.run.options.sync;
    worker.note(task, &task.stat, TaskProgress::Done { synced })?;
    count(&counters.files, 1);
    if worker.run.options.verify {
        count(&counters.verified_files, 1);
    }
    Ok(())
}

/// Gives a copied file its further name.
fn make_link(worker: &NodeWorker, link: &HardLink) -> Result<(), StageError> {
    let (path, dir) = (link.task.target_path(), &link.task.folder.to);
    let (folder, name) = &link.first;
    let first = worker.to.lookup(&folder.to, name);
    let (first, stat) = first.on_target("find the first name of", &path)?;
    if !stat.same_content(&link.task.stat) {
        // The first name was not copied: what has it is something older.
        return Err(StageError::Uncopied { path });
    }
    let there = worker.to.lookup(dir, &link.task.target);
    if !there.is_ok_and(|(_, there)| there.id == stat.id) {
        let temporary = link.task.temporary(worker.run.number, false);
        // Left by a run that was cut off just here.
        let _ = worker.to.remove(dir, &temporary);
        let linked = worker.to.link(&first, dir, &temporary);
        linked.on_target("link", &path)?;
        worker.give_name(&link.task, &temporary)?;
    }
    count(&worker.run.report.counters.hard_links, 1);
    Ok(())
}

/// Removes the temporary files that cut-off runs left in a directory, but for those that are `kept` (all, if that is not said), and
/// gives it the attributes of its source, `seen` just now.
fn finish_directory(
    worker: &NodeWorker,
    folder: &DirectoryPair,
    seen: io::Result<ObjectStat>,
    kept: Option<&BTreeSet<OsString>>,
) -> Result<(), StageError> {
    let path = &folder.to_path;
    if let Some(kept) = kept {
        for ListedName { name, .. } in worker.to.list(&folder.to).on_target("list", path)? {
            if is_temporary(&name, worker.run.number) && !kept.contains(&name) {
                worker
                    .to
                    .remove(&folder.to, &name)
                    .on_target("remove a leftover in", path)?;
            }
        }
    }
    let stat = seen.on_source("look again at", &folder.from_path)?;
    debug_assert_eq!(stat.kind, Kind::Dir);
    worker.copy_attributes((&folder.from, &folder.from_path), (&folder.to, path), &stat)
}
