//! Landing: of what is written under temporary names it is asked whether its source is still the same; then it is brought to
//! disk in batches, verified if asked, and gets its names.
use super::copy::{mark, note, whole};
use super::job::{Job, Side};
use super::journal::Progress;
use super::report::{Step, Trouble, count};
use super::task::{Task, stamp};
use super::tree::{CHUNK, Place, Stat};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;

/// A checksum of some bytes of a file, as they were read from the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    /// Where.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// CRC32C.
    pub crc: u32,
}

/// A file or piece that is written.
pub struct Ready {
    task: Task,
    /// What it is called now.
    pub temporary: OsString,
    /// The attributes it was copied with.
    pub stat: Stat,
    /// `None`: an earlier run has written it.
    sums: Option<Vec<Sum>>,
}

impl Ready {
    /// Written just now.
    pub fn new(task: &Task, temporary: OsString, stat: Stat, sums: Vec<Sum>) -> Ready {
        Ready {
            task: task.clone(),
            temporary,
            stat,
            sums: Some(sums),
        }
    }

    /// Written by an earlier run.
    pub fn kept(task: &Task, temporary: OsString) -> Ready {
        Ready {
            task: task.clone(),
            temporary,
            stat: task.stat.clone(),
            sums: None,
        }
    }

    fn data(&self) -> u64 {
        match &self.task.piece {
            // Of a sparse file it is not known which pieces have how much.
            Some(piece) if !self.stat.sparse() => piece.range.end - piece.range.start,
            Some(_) => 0,
            None => self.stat.data(),
        }
    }
}

/// A node's batch.
#[derive(Default)]
pub struct Lander(Mutex<Batch>);

#[derive(Default)]
struct Batch {
    ready: Vec<Ready>,
    bytes: u64,
}

/// Adds to the batch; lands it if it is full.
pub fn push(job: &Job, side: &Side, ready: Ready) -> Result<(), Trouble> {
    let batch = {
        let mut batch = side.lander.0.lock();
        batch.bytes += ready.data();
        batch.ready.push(ready);
        let full = batch.ready.len() >= job.options.batch_files
            || batch.bytes >= job.options.batch_bytes
            || !job.options.sync;
        full.then(|| std::mem::take(&mut *batch))
    };
    if let Some(batch) = batch {
        land(job, side, batch);
    }
    Ok(())
}

/// Lands what is left. Also when the run was stopped: what is written is whole.
pub fn rest(job: &Job, side: &Side) {
    let batch = std::mem::take(&mut *side.lander.0.lock());
    land(job, side, batch);
}

fn land(job: &Job, side: &Side, mut batch: Batch) {
    keep_unchanged(job, side, &mut batch.ready);
    if batch.ready.is_empty() {
        return;
    }
    if job.options.sync {
        let in_place = |r: &&Ready| r.task.piece.is_none() || is_unfinished(side, r);
        let files: Vec<_> = batch
            .ready
            .iter()
            .filter(in_place)
            .map(|r| (r.task.folder.to.clone(), r.temporary.clone()))
            .collect();
        if let Err(e) = side.to.sync(&files) {
            // Which of them reached the disk is not known, so none of them gets its name.
            let path = batch.ready[0].task.target_path();
            job.report.failed(&match Err::<(), _>(e)
                .to("bring to disk what was written with", &path)
            {
                Err(trouble) => trouble,
                Ok(()) => return,
            });
            let text = "what was written could not be brought to disk; look at the target's disk, and run the same command again";
            job.report.fatal(text.into());
            return;
        }
    }
    for ready in &batch.ready {
        if let Err(trouble) = settle(job, side, ready) {
            disown(job, side, &ready.task, &ready.stat, &trouble);
            if ready.task.piece.is_none() {
                // What failed must not stay in the way of room.
                let _ = side.to.remove(&ready.task.folder.to, &ready.temporary);
            }
            job.broke(&ready.task, &trouble);
        }
    }
}

/// Whole files whose source has changed since are copied again. What cannot be, and what cannot be looked at, is taken out.
fn keep_unchanged(job: &Job, side: &Side, batch: &mut Vec<Ready>) {
    let is_new = |ready: &Ready| ready.task.piece.is_none() && ready.sums.is_some();
    let new = batch.iter().filter(|ready| is_new(ready));
    let places: Vec<Place> = new.map(|ready| ready.task.from.clone()).collect();
    let mut seen = side.from.again(&places).into_iter();
    batch.retain_mut(|ready| {
        let Some(seen) = is_new(ready).then(|| seen.next()).flatten() else {
            return true;
        };
        let gone = |e: &io::Error| e.raw_os_error() == Some(Errno::STALE.raw_os_error());
        let silent = matches!(&seen, Err(e) if !gone(e) && e.kind() != io::ErrorKind::NotFound);
        let Err(trouble) = renew(job, side, ready, seen) else {
            return true;
        };
        // After a stop, or where nobody answers, it stays: the next run lands it if its source is still the same.
        if !job.report.stopped() {
            if !silent {
                let _ = side.to.remove(&ready.task.folder.to, &ready.temporary);
            }
            job.broke(&ready.task, &trouble);
        }
        false
    });
}

/// Copies it again if its source, seen just now, has changed.
fn renew(job: &Job, side: &Side, ready: &mut Ready, seen: io::Result<Stat>) -> Result<(), Trouble> {
    let now = seen.from("look again at", &ready.task.source_path())?;
    if stamp(&now) != stamp(&ready.stat) {
        let (stat, sums) = whole(job, side, &ready.task, &ready.temporary, now)?;
        (ready.stat, ready.sums) = (stat, Some(sums));
    }
    Ok(())
}

/// What was found damaged is copied again by the next run.
pub fn disown(job: &Job, side: &Side, task: &Task, stat: &Stat, trouble: &Trouble) {
    if !matches!(trouble, Trouble::Differs { .. }) {
        return;
    }
    let finished = mark(job, side, task, stat).is_some_and(|mark| mark.finished);
    let mut noted = note(job, side, task, stat, Progress::Void);
    if finished {
        // It is not whole: the next run goes on with it, and copies this piece only.
        let temporary = task.temporary(job.number, true);
        let renamed = side.to.rename(&task.folder.to, &task.target, &temporary);
        noted = noted.and(renamed.to("take its name from", &task.target_path()));
    }
    if let Err(trouble) = noted {
        job.report.failed(&trouble);
    }
}

/// Whether a piece's file still has its temporary name.
fn is_unfinished(side: &Side, ready: &Ready) -> bool {
    side.to
        .child(&ready.task.folder.to, &ready.temporary)
        .is_ok()
}

fn settle(job: &Job, side: &Side, ready: &Ready) -> Result<(), Trouble> {
    let (task, report) = (&ready.task, &job.report);
    let path = task.target_path();
    if job.options.verify {
        let name = match task.piece.is_none() || is_unfinished(side, ready) {
            true => &ready.temporary,
            false => &task.target,
        };
        let (place, _) = side.to.child(&task.folder.to, name).to("open", &path)?;
        match &ready.sums {
            Some(sums) => check(side, task, &place, sums)?,
            None => compare(job, side, task, &place)?,
        }
    }
    let synced = job.options.sync;
    if task.piece.is_some() {
        if ready.sums.is_none() {
            count(&report.counters.kept_bytes, ready.data());
        }
        return note(job, side, task, &ready.stat, Progress::Done { synced });
    }
    let renamed = side
        .to
        .rename(&task.folder.to, &ready.temporary, &task.target);
    renamed.to("give its name to", &path)?;
    note(job, side, task, &ready.stat, Progress::Done { synced })?;
    if job.options.verify {
        count(&report.counters.verified_files, 1);
    }
    if ready.sums.is_some() {
        count(&report.counters.files, 1);
    } else {
        count(&report.counters.kept_files, 1);
        count(&report.counters.kept_bytes, ready.data());
    }
    Ok(())
}

/// Reads the copy again and compares it with the checksums of what was read from the source.
fn check(side: &Side, task: &Task, copy: &Place, sums: &[Sum]) -> Result<(), Trouble> {
    let path = task.target_path();
    let mut file = side.to.open(copy, true).to("open again", &path)?;
    for sum in sums {
        let bytes = file.read(sum.offset, sum.len).to("read again", &path)?;
        if bytes.len() as u64 != sum.len || crc32c::crc32c(bytes) != sum.crc {
            let (offset, len) = (sum.offset, sum.len);
            return Err(Trouble::Differs { path, offset, len });
        }
    }
    Ok(())
}

/// Reads source and copy, and compares all bytes of the task.
pub fn compare(job: &Job, side: &Side, task: &Task, copy: &Place) -> Result<(), Trouble> {
    let (path, from_path) = (task.target_path(), task.source_path());
    let range = task
        .piece
        .as_ref()
        .map_or(0..task.stat.size, |p| p.range.clone());
    let mut source = side.from.open(&task.from, false).from("open", &from_path)?;
    let mut file = side.to.open(copy, true).to("open again", &path)?;
    let mut at = range.start;
    while at < range.end {
        if job.report.stopped() {
            return Err(Trouble::Stopped);
        }
        let len = CHUNK.min(range.end - at);
        let want = source.read(at, len).from("read", &from_path)?;
        let mut have = file.read(at, len).to("read again", &path)?.to_vec();
        // The end of a large file's copy may be a hole that has not been made yet.
        if task.piece.is_some() {
            have.resize(len as usize, 0);
        }
        if want != have {
            let offset = at;
            return Err(Trouble::Differs { path, offset, len });
        }
        at += len;
    }
    Ok(())
}
