//! What must wait until everything is copied: names of large files, further names of files, attributes of directories.
use super::copy::{is_there, note};
use super::job::{Job, Left, Side};
use super::journal::Progress;
use super::report::{Step, Trouble, count};
use super::task::{Folder, Link, Task, is_temporary, stamp};
use super::tree::{Name, Place, Stat, What};
use super::walk::{Found, LOOK};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::sync::Arc;

/// Does it, naming what fails. `left`: what the parts of all processes left.
pub fn finish(job: &Job, found: &Found, left: &Left) -> Result<(), Trouble> {
    let broken = &left.broken;
    let Some(side) = job.sides.first() else {
        return Ok(());
    };
    let report = &job.report;
    let tell = |done: Result<(), Trouble>| {
        if let Err(trouble) = done {
            report.failed(&trouble);
        }
        match report.stopped() {
            true => Err(Trouble::Stopped),
            false => Ok(()),
        }
    };
    for task in found
        .large
        .iter()
        .filter(|task| !broken.contains(&task.key))
    {
        tell(large(job, side, task, broken.contains(&task.finished())))?;
    }
    for one in &found.links {
        tell(link(job, side, one))?;
    }
    // The next run goes on with these.
    let unfinished = found.large.iter().filter(|task| broken.contains(&task.key));
    let wanted: BTreeSet<OsString> = unfinished.map(|t| t.temporary(job.number, true)).collect();
    // From the bottom up: taking rights away from a directory must not lock out what is below it.
    for folders in found.folders.rchunks(LOOK) {
        let places: Vec<Place> = folders.iter().map(|f| f.from.clone()).collect();
        let seen = side.from.again(&places);
        for (folder, seen) in folders.iter().zip(seen).rev() {
            let leftovers = (!left.fresh).then_some(&wanted);
            tell(directory(job, side, folder, seen, leftovers))?;
        }
    }
    if job.options.sync {
        let path = job.pairs.first().map(|p| p.to.clone()).unwrap_or_default();
        tell(side.to.sync_names().to("bring names to disk in", &path))?;
    }
    Ok(())
}

/// Gives a large file, whose pieces are all written, its length, attributes and name.
fn large(job: &Job, side: &Side, task: &Task, finished: bool) -> Result<(), Trouble> {
    let (path, dir) = (task.target_path(), &task.folder.to);
    let temporary = task.temporary(job.number, true);
    let (place, written) = match side.to.child(dir, &temporary) {
        Ok((_, _)) if finished && is_there(side, task) => {
            // One process has begun it again, not knowing that it was finished: there is a journal that knows.
            let _ = side.to.remove(dir, &temporary);
            count(&job.report.counters.kept_files, 1);
            return Ok(());
        }
        Ok(found) => found,
        // An earlier run was cut off after this step.
        Err(e) => {
            if !is_there(side, task) {
                return Err(e).to("find what was written of", &path);
            }
            count(&job.report.counters.kept_files, 1);
            return Ok(());
        }
    };
    let now = side
        .from
        .stat(&task.from)
        .from("look again at", &task.source_path())?;
    if stamp(&now) != stamp(&task.stat) {
        let path = task.source_path();
        // The next run begins it again under another temporary name.
        let _ = side.to.remove(dir, &temporary);
        return Err(Trouble::Changed { path });
    }
    if written.size != task.stat.size {
        let mut file = side.to.create(dir, &temporary, false).to("open", &path)?;
        file.set_len(task.stat.size)
            .to("set the length of", &path)?;
        file.finish(None).to("finish", &path)?;
    }
    let xattrs = side
        .from
        .xattrs(&task.from)
        .from("read attributes of", &task.source_path())?;
    let set = side.to.set_attributes(&place, &task.stat, &xattrs);
    job.report
        .notes(&path, &set.to("set attributes of", &path)?);
    if job.options.sync {
        let file = [(dir.clone(), temporary.clone())];
        side.to.sync(&file).to("bring to disk", &path)?;
    }
    side.to
        .rename(dir, &temporary, &task.target)
        .to("give its name to", &path)?;
    let synced = job.options.sync;
    note(job, side, task, &task.stat, Progress::Done { synced })?;
    count(&job.report.counters.files, 1);
    if job.options.verify {
        count(&job.report.counters.verified_files, 1);
    }
    Ok(())
}

/// Gives a copied file its further name.
fn link(job: &Job, side: &Side, link: &Link) -> Result<(), Trouble> {
    let (path, dir) = (link.task.target_path(), &link.task.folder.to);
    let (folder, name) = &link.first;
    let first = side.to.child(&folder.to, name);
    let (first, stat) = first.to("find the first name of", &path)?;
    if !stat.same_content(&link.task.stat) {
        // The first name was not copied: what has it is something older.
        return Err(Trouble::Uncopied { path });
    }
    let there = side.to.child(dir, &link.task.target);
    if !there.is_ok_and(|(_, there)| there.id == stat.id) {
        let temporary = link.task.temporary(job.number, false);
        // Left by a run that was cut off just here.
        let _ = side.to.remove(dir, &temporary);
        side.to.link(&first, dir, &temporary).to("link", &path)?;
        let renamed = side.to.rename(dir, &temporary, &link.task.target);
        renamed.to("give its name to", &path)?;
    }
    count(&job.report.counters.hard_links, 1);
    Ok(())
}

/// Removes what cut-off runs left in a directory, but for what is `wanted`, and gives it the attributes of its source, `seen`
/// just now.
fn directory(
    job: &Job,
    side: &Side,
    folder: &Arc<Folder>,
    seen: io::Result<Stat>,
    wanted: Option<&BTreeSet<OsString>>,
) -> Result<(), Trouble> {
    let path = &folder.to_path;
    if let Some(wanted) = wanted {
        for Name { name, .. } in side.to.list(&folder.to).to("list", path)? {
            if is_temporary(&name, job.number) && !wanted.contains(&name) {
                side.to
                    .remove(&folder.to, &name)
                    .to("remove a leftover in", path)?;
            }
        }
    }
    let stat = seen.from("look again at", &folder.from_path)?;
    debug_assert_eq!(stat.what, What::Dir);
    let xattrs = match stat.xattrs {
        true => side
            .from
            .xattrs(&folder.from)
            .from("read attributes of", &folder.from_path)?,
        false => Vec::new(),
    };
    let set = side.to.set_attributes(&folder.to, &stat, &xattrs);
    job.report.notes(path, &set.to("set attributes of", path)?);
    Ok(())
}
