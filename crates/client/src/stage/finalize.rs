//! Finalises files written under temporary names, a batch at a time: checks each source again, syncs the files, verifies them if
//! asked, and renames them.
use super::batch::{WrittenBatch, WrittenFile};
use super::copy::copy_until_unchanged;
use super::endpoint::{ObjectRef, ObjectStat};
use super::error::{StageError, StageErrorContext};
use super::journal::TaskProgress;
use super::report::count;
use super::task::source_stamp;
use super::verify::{compare_bytes, compare_sums, void_damaged};
use super::worker::NodeWorker;
use rustix::io::Errno;
use std::io;

/// Adds a file to the batch, and finalises the batch if it is full.
pub fn add(worker: &NodeWorker, file: WrittenFile) {
    let options = &worker.run.options;
    let full = {
        let mut batch = worker.batch.lock();
        batch.bytes += file.bytes();
        batch.files.push(file);
        let full = batch.files.len() >= options.batch_files
            || batch.bytes >= options.batch_bytes
            || !options.sync;
        full.then(|| std::mem::take(&mut *batch))
    };
    if let Some(batch) = full {
        finalize(worker, batch);
    }
}

/// Finalises what is left. Also when the run was stopped: what is written is whole.
pub fn finalize_rest(worker: &NodeWorker) {
    let batch = std::mem::take(&mut *worker.batch.lock());
    finalize(worker, batch);
}

fn finalize(worker: &NodeWorker, mut batch: WrittenBatch) {
    let report = &worker.run.report;
    copy_changed_again(worker, &mut batch.files);
    let Some(first) = batch.files.first() else {
        return;
    };
    if worker.run.options.sync {
        let own_file = |f: &&WrittenFile| f.task.piece.is_none() || has_temporary_name(worker, f);
        let files = batch.files.iter().filter(own_file);
        let files: Vec<_> = files
            .map(|f| (f.task.folder.to.clone(), f.temporary.clone()))
            .collect();
        let synced = worker.to.sync(&files);
        // Which of them reached the disk is not known, so none of them gets its name.
        let path = first.task.target_path();
        if let Err(error) = synced.on_target("bring to disk what was written with", &path) {
            report.failed(&error);
            let text = "what was written could not be brought to disk; look at the target's disk, and run the same command again";
            report.fatal(text.into());
            return;
        }
    }
    for file in &batch.files {
        if let Err(error) = publish(worker, file) {
            void_damaged(worker, &file.task, &file.stat, &error);
            if file.task.piece.is_none() {
                // What failed must not stay in the way of room.
                let _ = worker.to.remove(&file.task.folder.to, &file.temporary);
            }
            worker.run.task_failed(&file.task, &error);
        }
    }
}

/// Whole files whose source has changed since are copied again. What cannot be, and what cannot be looked at, is taken out.
fn copy_changed_again(worker: &NodeWorker, files: &mut Vec<WrittenFile>) {
    let is_new = |file: &WrittenFile| file.task.piece.is_none() && file.sums.is_some();
    let new = files.iter().filter(|file| is_new(file));
    let places: Vec<ObjectRef> = new.map(|file| file.task.from.clone()).collect();
    let mut seen = worker.from.stat_many(&places).into_iter();
    files.retain_mut(|file| {
        let Some(seen) = is_new(file).then(|| seen.next()).flatten() else {
            return true;
        };
        let gone = |e: &io::Error| e.raw_os_error() == Some(Errno::STALE.raw_os_error());
        let no_answer = matches!(&seen, Err(e) if !gone(e) && e.kind() != io::ErrorKind::NotFound);
        let Err(error) = copy_again_if_changed(worker, file, seen) else {
            return true;
        };
        // After a stop, or where nobody answers, it stays: the next run finalises it if its source is still the same.
        if !worker.run.report.stopped() {
            if !no_answer {
                let _ = worker.to.remove(&file.task.folder.to, &file.temporary);
            }
            worker.run.task_failed(&file.task, &error);
        }
        false
    });
}

/// `seen`: its source just now.
fn copy_again_if_changed(
    worker: &NodeWorker,
    file: &mut WrittenFile,
    seen: io::Result<ObjectStat>,
) -> Result<(), StageError> {
    let now = seen.on_source("look again at", &file.task.source_path())?;
    if source_stamp(&now) != source_stamp(&file.stat) {
        let (stat, sums) = copy_until_unchanged(worker, &file.task, &file.temporary, now)?;
        (file.stat, file.sums) = (stat, Some(sums));
    }
    Ok(())
}

/// Whether a piece's file still has its temporary name.
fn has_temporary_name(worker: &NodeWorker, file: &WrittenFile) -> bool {
    let dir = &file.task.folder.to;
    worker.to.lookup(dir, &file.temporary).is_ok()
}

/// Verifies a file if asked, gives it its name, and notes that in the journal. A piece is only noted.
fn publish(worker: &NodeWorker, file: &WrittenFile) -> Result<(), StageError> {
    let (task, counters) = (&file.task, &worker.run.report.counters);
    if worker.run.options.verify {
        let name = match task.piece.is_none() || has_temporary_name(worker, file) {
            true => &file.temporary,
            false => &task.target,
        };
        let copy = worker.to.lookup(&task.folder.to, name);
        let (place, _) = copy.on_target("open", &task.target_path())?;
        match &file.sums {
            Some(sums) => compare_sums(worker, task, &place, sums)?,
            None => compare_bytes(worker, task, &place)?,
        }
    }
    let synced = worker.run.options.sync;
    if task.piece.is_some() {
        if file.sums.is_none() {
            count(&counters.kept_bytes, file.bytes());
        }
        return worker.note(task, &file.stat, TaskProgress::Done { synced });
    }
    worker.give_name(task, &file.temporary)?;
    worker.note(task, &file.stat, TaskProgress::Done { synced })?;
    if worker.run.options.verify {
        count(&counters.verified_files, 1);
    }
    if file.sums.is_some() {
        count(&counters.files, 1);
    } else {
        count(&counters.kept_files, 1);
        count(&counters.kept_bytes, file.bytes());
    }
    Ok(())
}
