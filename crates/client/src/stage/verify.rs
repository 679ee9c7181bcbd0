//! Compares copies with their sources, and marks damaged ones to be copied again.
use super::batch::ChunkChecksum;
use super::endpoint::{CHUNK, ObjectRef, ObjectStat};
use super::error::{StageError, StageErrorContext};
use super::journal::TaskProgress;
use super::task::CopyTask;
use super::worker::NodeWorker;

/// What was found damaged is copied again by the next run.
pub fn void_damaged(worker: &NodeWorker, task: &CopyTask, stat: &ObjectStat, error: &StageError) {
    if !matches!(error, StageError::Differs { .. }) {
        return;
    }
    let stamp = worker.copy_stamp(task, stat);
    let mut noted = worker.note(task, stat, TaskProgress::Void);
    if stamp.is_some_and(|stamp| stamp.finished) {
        // It is not whole: the next run goes on with it, and copies this piece only.
        let temporary = task.temporary(worker.run.number, true);
        let (dir, path) = (&task.folder.to, task.target_path());
        let renamed = worker.to.rename(dir, &task.target, &temporary);
        noted = noted.and(renamed.on_target("take its name from", &path));
    }
    if let Err(error) = noted {
        worker.run.report.failed(&error);
    }
}

/// Reads the copy again and compares it with the checksums of what was read from the source.
pub fn compare_sums(
    worker: &NodeWorker,
    task: &CopyTask,
    copy: &ObjectRef,
    sums: &[ChunkChecksum],
) -> Result<(), StageError> {
    let path = task.target_path();
    let mut file = worker.to.open(copy, true).on_target("open again", &path)?;
    for sum in sums {
        let bytes = file
            .read(sum.offset, sum.len)
            .on_target("read again", &path)?;
        if bytes.len() as u64 != sum.len || forebay_checksum::crc32c(bytes) != sum.crc {
            let (offset, len) = (sum.offset, sum.len);
            return Err(StageError::Differs { path, offset, len });
        }
    }
    Ok(())
}

/// Reads source and copy, and compares all bytes of the task.
pub fn compare_bytes(
    worker: &NodeWorker,
    task: &CopyTask,
    copy: &ObjectRef,
) -> Result<(), StageError> {
    let (path, from_path) = (task.target_path(), task.source_path());
    let range = task.range();
    let mut source = worker
        .from
        .open(&task.from, false)
        .on_source("open", &from_path)?;
    let mut file = worker.to.open(copy, true).on_target("open again", &path)?;
    let mut at = range.start;
    while at < range.end {
        if worker.run.report.stopped() {
            return Err(StageError::Stopped);
        }
        let len = CHUNK.min(range.end - at);
        let want = source.read(at, len).on_source("read", &from_path)?;
        let mut have = file.read(at, len).on_target("read again", &path)?.to_vec();
        // The end of a large file's copy may be a hole that has not been made yet.
        if task.piece.is_some() {
            have.resize(len as usize, 0);
        }
        if want != have {
            let offset = at;
            return Err(StageError::Differs { path, offset, len });
        }
        at += len;
    }
    Ok(())
}
