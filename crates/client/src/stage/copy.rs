//! Copying one file, or one piece of a large one, to its temporary name; links and pipes at once to their own.
use super::hash::Hash;
use super::job::{Job, Side};
use super::journal::Progress;
use super::land::{self, Ready, Sum};
use super::report::{Step, Trouble, count};
use super::task::{Task, stamp};
use super::tree::{CHUNK, SourceFile, Stat, TargetFile, What};
use rustix::io::Errno;
use std::ops::Range;

/// How often a file that changes under the copy is begun again.
const TRIES: usize = 3;
/// Shorter runs of bytes are not worth reserving room for.
const RESERVE: u64 = 4 << 20;

/// Does what the task says, or finds that an earlier run has.
pub fn one(job: &Job, side: &Side, task: &Task) -> Result<(), Trouble> {
    if task.stat.what != What::File {
        return special(job, side, task);
    }
    let temporary = task.temporary(job.number, task.piece.is_some());
    let known = mark(job, side, task, &task.stat);
    let noted = known.and_then(|known| side.journal.find(task.record(), known.stamp));
    match noted {
        Some(Progress::Done { .. }) if task.piece.is_some() || is_there(side, task) => {
            if task.piece.is_none() {
                return kept(job, side, task);
            }
            if known.is_some_and(|known| known.finished) {
                job.broken.lock().insert(task.finished());
            }
            let ready = Ready::kept(task, temporary);
            return land::push(job, side, ready);
        }
        Some(_) => {
            if let Ok((_, there)) = side.to.child(&task.folder.to, &temporary)
                && (task.piece.is_some() || there.same_content(&task.stat))
            {
                return land::push(job, side, Ready::kept(task, temporary));
            }
        }
        None => {}
    }
    let ready = match &task.piece {
        Some(piece) => {
            let sums = bytes(job, side, task, &task.stat, &temporary, piece.range.clone());
            Ready::new(task, temporary, task.stat.clone(), sums?)
        }
        None => match as_seen(job, side, task, &temporary) {
            Ok((stat, sums)) => Ready::new(task, temporary, stat, sums),
            Err(trouble) => {
                // It may not even have been made.
                let _ = side.to.remove(&task.folder.to, &temporary);
                return Err(trouble);
            }
        },
    };
    if let Some(hook) = &job.options.hook {
        hook(
            &task.target_path(),
            &task.folder.to_path.join(&ready.temporary),
        );
    }
    note(job, side, task, &ready.stat, Progress::Written)?;
    land::push(job, side, ready)
}

/// Whether the target of a finished file is there as it was left.
pub(super) fn is_there(side: &Side, task: &Task) -> bool {
    let there = side.to.child(&task.folder.to, &task.target);
    there.is_ok_and(|(_, there)| there.same_content(&task.stat))
}

/// What the journal knows a copy by.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    stamp: u64,
    /// Of a piece: the file that it is in has its own name already.
    pub finished: bool,
}

/// The mark of a copy of this source. A piece is in one file only: under its temporary name, or under its own once it is whole.
/// If somebody has begun another, what the journal says of the piece is of no use, and it is copied again. So it is where the
/// target does not tell files apart for ever.
pub(super) fn mark(job: &Job, side: &Side, task: &Task, stat: &Stat) -> Option<Mark> {
    if task.piece.is_none() {
        let (stamp, finished) = (stamp(stat), false);
        return Some(Mark { stamp, finished });
    }
    let dir = &task.folder.to;
    let (there, finished) = match side.to.child(dir, &task.temporary(job.number, true)) {
        Ok((_, there)) => (there, false),
        Err(_) => {
            let (_, there) = side.to.child(dir, &task.target).ok()?;
            (there.same_content(&task.stat).then_some(there)?, true)
        }
    };
    let born = there.born?;
    let hash = Hash::new(stamp(stat)).number(there.id.0).number(there.id.1);
    let stamp = hash
        .number(born.secs as u64)
        .number(born.nanos.into())
        .end();
    Some(Mark { stamp, finished })
}

/// A whole file that an earlier run has finished.
fn kept(job: &Job, side: &Side, task: &Task) -> Result<(), Trouble> {
    if job.options.verify {
        let (place, _) = side
            .to
            .child(&task.folder.to, &task.target)
            .to("open", &task.target_path())?;
        land::compare(job, side, task, &place)
            .inspect_err(|trouble| land::disown(job, side, task, &task.stat, trouble))?;
        count(&job.report.counters.verified_files, 1);
    }
    count(&job.report.counters.kept_files, 1);
    count(&job.report.counters.kept_bytes, task.stat.data());
    Ok(())
}

pub(super) fn note(
    job: &Job,
    side: &Side,
    task: &Task,
    stat: &Stat,
    progress: Progress,
) -> Result<(), Trouble> {
    let Some(known) = mark(job, side, task, stat) else {
        return Ok(());
    };
    let noted = side.journal.add(task.record(), known.stamp, progress);
    // A full store must not end in copies that look unfinished: it is told as what it is.
    noted.to("write the journal for", &task.target_path())
}

/// Copies a whole file with the attributes that the walk saw. Whether it has changed is asked for many together, before they
/// land.
fn as_seen(
    job: &Job,
    side: &Side,
    task: &Task,
    temporary: &std::ffi::OsStr,
) -> Result<(Stat, Vec<Sum>), Trouble> {
    let stat = task.stat.clone();
    match bytes(job, side, task, &stat, temporary, 0..stat.size) {
        Err(Trouble::Changed { path }) => {
            let now = side.from.stat(&task.from).from("look again at", &path)?;
            whole(job, side, task, temporary, now)
        }
        copied => Ok((stat, copied?)),
    }
}

/// Copies a whole file, last seen as `stat`, with its attributes; again if it changes meanwhile. Gives the attributes it was
/// copied with.
pub fn whole(
    job: &Job,
    side: &Side,
    task: &Task,
    temporary: &std::ffi::OsStr,
    mut stat: Stat,
) -> Result<(Stat, Vec<Sum>), Trouble> {
    let path = task.source_path();
    for _ in 0..TRIES {
        let copied = bytes(job, side, task, &stat, temporary, 0..stat.size);
        let after = side.from.stat(&task.from).from("look again at", &path)?;
        let same = stamp(&after) == stamp(&stat);
        match copied {
            Ok(sums) if same => return Ok((stat, sums)),
            Err(Trouble::Changed { .. }) | Ok(_) => stat = after,
            Err(other) => return Err(other),
        }
    }
    Err(Trouble::Changed { path })
}

/// Copies the stored bytes of a range. A whole file begins empty, and gets its length and attributes.
fn bytes(
    job: &Job,
    side: &Side,
    task: &Task,
    stat: &Stat,
    temporary: &std::ffi::OsStr,
    range: Range<u64>,
) -> Result<Vec<Sum>, Trouble> {
    let (from_path, to_path) = (task.source_path(), task.target_path());
    let is_whole = task.piece.is_none();
    let xattrs = match is_whole && stat.xattrs {
        true => side
            .from
            .xattrs(&task.from)
            .from("read attributes of", &from_path)?,
        false => Vec::new(),
    };
    let created = side.to.create(&task.folder.to, temporary, is_whole);
    let mut target = created.to("create", &to_path)?;
    let mut sums = Vec::new();
    let mut end = 0;
    if !range.is_empty() {
        // Of pieces, only the end looks again.
        let source = match is_whole {
            true => side.from.peek(&task.from, stat),
            false => side.from.open(&task.from, false),
        };
        let mut source = source.from("open", &from_path)?;
        let mut at = range.start;
        while at < range.end {
            let data = match stat.sparse() {
                true => source
                    .data(at, range.end)
                    .from("look for holes in", &from_path)?,
                false => Some(at..range.end),
            };
            let Some(data) = data else { break };
            stretch(
                job,
                task,
                &mut *source,
                &mut *target,
                data.clone(),
                &mut sums,
            )?;
            (at, end) = (data.end, data.end);
        }
    }
    let attributes = match is_whole {
        true => {
            if end < stat.size {
                target
                    .set_len(stat.size)
                    .to("set the length of", &to_path)?;
            }
            Some((stat, &xattrs[..]))
        }
        false => None,
    };
    let notes = target.finish(attributes).to("finish", &to_path)?;
    job.report.notes(&to_path, &notes);
    Ok(sums)
}

/// Copies bytes without holes, in calls that end at multiples of [`CHUNK`].
fn stretch(
    job: &Job,
    task: &Task,
    source: &mut dyn SourceFile,
    target: &mut dyn TargetFile,
    data: Range<u64>,
    sums: &mut Vec<Sum>,
) -> Result<(), Trouble> {
    if data.end - data.start >= RESERVE {
        target
            .reserve(data.clone())
            .to("reserve room for", &task.target_path())?;
    }
    let mut at = data.start;
    while at < data.end {
        if job.report.stopped() {
            return Err(Trouble::Stopped);
        }
        let len = (CHUNK - at % CHUNK).min(data.end - at);
        let bytes = source.read(at, len).from("read", &task.source_path())?;
        if bytes.len() as u64 != len {
            let path = task.source_path();
            return Err(Trouble::Changed { path });
        }
        target.write(at, bytes).to("write", &task.target_path())?;
        if job.options.verify {
            sums.push(Sum {
                offset: at,
                len,
                crc: crc32c::crc32c(bytes),
            });
        }
        count(&job.report.counters.bytes, len);
        at += len;
    }
    Ok(())
}

/// A symbolic link, a named pipe or a device file.
fn special(job: &Job, side: &Side, task: &Task) -> Result<(), Trouble> {
    let (from_path, to_path) = (task.source_path(), task.target_path());
    let (dir, temporary) = (&task.folder.to, task.temporary(job.number, false));
    // Left by a run that was cut off just here.
    let _ = side.to.remove(dir, &temporary);
    let (place, counter) = if task.stat.what == What::Symlink {
        let says = side
            .from
            .read_link(&task.from)
            .from("read the link", &from_path)?;
        let made = side.to.symlink(dir, &temporary, &says);
        (
            made.to("make the link", &to_path)?,
            &job.report.counters.symlinks,
        )
    } else {
        let device = task.stat.what != What::Fifo;
        let made = match side.to.node(dir, &temporary, &task.stat) {
            Err(e) if device && e.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
                let what = "a device, which only root can make; not copied";
                job.report.skipped(&from_path, what);
                return Ok(());
            }
            made => made,
        };
        let (step, counter) = match device {
            true => ("make the device", &job.report.counters.devices),
            false => ("make the pipe", &job.report.counters.fifos),
        };
        (made.to(step, &to_path)?, counter)
    };
    let finish = || -> Result<(), Trouble> {
        let xattrs = side
            .from
            .xattrs(&task.from)
            .from("read attributes of", &from_path)?;
        let set = side.to.set_attributes(&place, &task.stat, &xattrs);
        let notes = set.to("set attributes of", &to_path)?;
        job.report.notes(&to_path, &notes);
        side.to
            .rename(dir, &temporary, &task.target)
            .to("give its name to", &to_path)
    };
    finish().inspect_err(|_| {
        let _ = side.to.remove(dir, &temporary);
    })?;
    count(counter, 1);
    Ok(())
}
