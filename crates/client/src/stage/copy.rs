//! Copies one file, or one piece of a large one, to its temporary name. Links, pipes and devices get their own names at once.
use super::batch::{ChunkChecksum, WrittenFile};
use super::endpoint::{CHUNK, ObjectStat, SourceFile, TargetFile};
use super::error::{StageError, StageErrorContext};
use super::journal::TaskProgress;
use super::report::count;
use super::task::{CopyTask, source_stamp};
use super::verify::{compare_bytes, void_damaged};
use super::worker::NodeWorker;
use forebay_server::Kind;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::ops::Range;

/// How often a file that changes under the copy is begun again.
const MAX_COPY_TRIES: usize = 3;
/// Shorter runs of bytes are not worth reserving room for.
const MIN_RESERVED_BYTES: u64 = 4 << 20;

/// Does what the task says, or finds that an earlier run has. Gives what is written under a temporary name now.
pub fn copy_task(worker: &NodeWorker, task: &CopyTask) -> Result<Option<WrittenFile>, StageError> {
    if task.stat.kind != Kind::File {
        return make_special(worker, task).map(|()| None);
    }
    let run = &worker.run;
    let temporary = task.temporary(run.number, task.piece.is_some());
    let known = worker.copy_stamp(task, &task.stat);
    let noted = known.and_then(|known| worker.journal.find(task.journal_key(), known.stamp));
    match noted {
        Some(TaskProgress::Done { .. }) if task.piece.is_none() && worker.has_target(task) => {
            return keep_finished(worker, task).map(|()| None);
        }
        Some(TaskProgress::Done { .. }) if task.piece.is_some() => {
            if known.is_some_and(|known| known.finished) {
                run.broken.lock().insert(task.finished_key());
            }
            return Ok(Some(WrittenFile::kept(task, temporary)));
        }
        Some(_) => {
            if let Ok((_, there)) = worker.to.lookup(&task.folder.to, &temporary)
                && (task.piece.is_some() || there.same_content(&task.stat))
            {
                return Ok(Some(WrittenFile::kept(task, temporary)));
            }
        }
        None => {}
    }
    let written = match &task.piece {
        Some(piece) => {
            let sums = copy_range(worker, task, &task.stat, &temporary, piece.range.clone());
            WrittenFile::new(task, temporary, task.stat.clone(), sums?)
        }
        None => match copy_as_walked(worker, task, &temporary) {
            Ok((stat, sums)) => WrittenFile::new(task, temporary, stat, sums),
            Err(error) => {
                // It may not even have been made.
                let _ = worker.to.remove(&task.folder.to, &temporary);
                return Err(error);
            }
        },
    };
    if let Some(hook) = &run.options.hook {
        let temporary = task.folder.to_path.join(&written.temporary);
        hook(&task.target_path(), &temporary);
    }
    worker.note(task, &written.stat, TaskProgress::Written)?;
    Ok(Some(written))
}

/// A whole file that an earlier run has finished.
fn keep_finished(worker: &NodeWorker, task: &CopyTask) -> Result<(), StageError> {
    let counters = &worker.run.report.counters;
    if worker.run.options.verify {
        let target = worker.to.lookup(&task.folder.to, &task.target);
        let (place, _) = target.on_target("open", &task.target_path())?;
        compare_bytes(worker, task, &place)
            .inspect_err(|error| void_damaged(worker, task, &task.stat, error))?;
        count(&counters.verified_files, 1);
    }
    count(&counters.kept_files, 1);
    count(&counters.kept_bytes, task.stat.bytes_to_copy());
    Ok(())
}

/// Copies a whole file with the attributes that the walk saw. Whether it has changed since is asked for a batch of files at once.
fn copy_as_walked(
    worker: &NodeWorker,
    task: &CopyTask,
    temporary: &OsStr,
) -> Result<(ObjectStat, Vec<ChunkChecksum>), StageError> {
    let stat = task.stat.clone();
    match copy_range(worker, task, &stat, temporary, 0..stat.size) {
        Err(StageError::Changed { .. }) => {
            copy_until_unchanged(worker, task, temporary, worker.stat_source(task)?)
        }
        copied => Ok((stat, copied?)),
    }
}

/// Copies a whole file, last seen as `stat`, with its attributes; again if it changes meanwhile. Gives the attributes it was
/// copied with.
pub fn copy_until_unchanged(
    worker: &NodeWorker,
    task: &CopyTask,
    temporary: &OsStr,
    mut stat: ObjectStat,
) -> Result<(ObjectStat, Vec<ChunkChecksum>), StageError> {
    for _ in 0..MAX_COPY_TRIES {
        let copied = copy_range(worker, task, &stat, temporary, 0..stat.size);
        let after = worker.stat_source(task)?;
        let same = source_stamp(&after) == source_stamp(&stat);
        match copied {
            Ok(sums) if same => return Ok((stat, sums)),
            Err(StageError::Changed { .. }) | Ok(_) => stat = after,
            Err(other) => return Err(other),
        }
    }
    let path = task.source_path();
    Err(StageError::Changed { path })
}

/// Copies the stored bytes of a range. A whole file begins empty, and gets its length and attributes.
fn copy_range(
    worker: &NodeWorker,
    task: &CopyTask,
    stat: &ObjectStat,
    temporary: &OsStr,
    range: Range<u64>,
) -> Result<Vec<ChunkChecksum>, StageError> {
    let (from_path, to_path) = (task.source_path(), task.target_path());
    let is_whole = task.piece.is_none();
    let xattrs = match is_whole {
        true => worker.read_xattrs(&task.from, &from_path, stat)?,
        false => Vec::new(),
    };
    let created = worker
        .to
        .create(&task.folder.to, temporary, &task.target, is_whole);
    let mut target = created.on_target("create", &to_path)?;
    let mut sums = Vec::new();
    let mut end = 0;
    if !range.is_empty() {
        // Of pieces, only the end looks again.
        let source = match is_whole {
            true => worker.from.open_seen(&task.from, stat),
            false => worker.from.open(&task.from, false),
        };
        let mut source = source.on_source("open", &from_path)?;
        let mut at = range.start;
        while at < range.end {
            let data = match stat.is_sparse() {
                true => source.next_data(at, range.end),
                false => Ok(Some(at..range.end)),
            };
            let Some(data) = data.on_source("look for holes in", &from_path)? else {
                break;
            };
            (at, end) = (data.end, data.end);
            copy_data(worker, task, (&mut *source, &mut *target), data, &mut sums)?;
        }
    }
    let attributes = match is_whole {
        true => {
            if end < stat.size {
                let set = target.set_len(stat.size);
                set.on_target("set the length of", &to_path)?;
            }
            Some((stat, &xattrs[..]))
        }
        false => None,
    };
    let notes = target.finish(attributes).on_target("finish", &to_path)?;
    worker.run.report.not_kept(&to_path, &notes);
    Ok(sums)
}

/// Copies bytes without holes, in calls that end at multiples of [`CHUNK`].
fn copy_data(
    worker: &NodeWorker,
    task: &CopyTask,
    (source, target): (&mut dyn SourceFile, &mut dyn TargetFile),
    data: Range<u64>,
    sums: &mut Vec<ChunkChecksum>,
) -> Result<(), StageError> {
    if data.end - data.start >= MIN_RESERVED_BYTES {
        let reserved = target.reserve(data.clone());
        reserved.on_target("reserve room for", &task.target_path())?;
    }
    let mut at = data.start;
    while at < data.end {
        if worker.run.report.stopped() {
            return Err(StageError::Stopped);
        }
        let len = (CHUNK - at % CHUNK).min(data.end - at);
        let read = source.read(at, len);
        let bytes = read.on_source("read", &task.source_path())?;
        if bytes.len() as u64 != len {
            let path = task.source_path();
            return Err(StageError::Changed { path });
        }
        let written = target.write(at, bytes);
        written.on_target("write", &task.target_path())?;
        if worker.run.options.verify {
            sums.push(ChunkChecksum {
                offset: at,
                len,
                crc: forebay_checksum::crc32c(bytes),
            });
        }
        count(&worker.run.report.counters.bytes, len);
        at += len;
    }
    Ok(())
}

/// A symbolic link, a named pipe or a device file.
fn make_special(worker: &NodeWorker, task: &CopyTask) -> Result<(), StageError> {
    let (from_path, to_path) = (task.source_path(), task.target_path());
    let (dir, temporary) = (&task.folder.to, task.temporary(worker.run.number, false));
    let counters = &worker.run.report.counters;
    // Left by a run that was cut off just here.
    let _ = worker.to.remove(dir, &temporary);
    let (place, counter) = if task.stat.kind == Kind::Symlink {
        let says = worker.from.read_link(&task.from);
        let says = says.on_source("read the link", &from_path)?;
        let made = worker.to.symlink(dir, &temporary, &says);
        (
            made.on_target("make the link", &to_path)?,
            &counters.symlinks,
        )
    } else {
        let device = task.stat.kind != Kind::Fifo;
        let made = match worker.to.mknod(dir, &temporary, &task.stat) {
            Err(e) if device && e.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
                let what = "a device, which only root can make; not copied";
                worker.run.report.skipped(&from_path, what);
                return Ok(());
            }
            made => made,
        };
        let (step, counter) = match device {
            true => ("make the device", &counters.devices),
            false => ("make the pipe", &counters.fifos),
        };
        (made.on_target(step, &to_path)?, counter)
    };
    let finish = || -> Result<(), StageError> {
        worker.copy_attributes((&task.from, &from_path), (&place, &to_path), &task.stat)?;
        worker.give_name(task, &temporary)
    };
    finish().inspect_err(|_| {
        let _ = worker.to.remove(dir, &temporary);
    })?;
    count(counter, 1);
    Ok(())
}
