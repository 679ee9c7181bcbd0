//! `forebay fields recode`: has a service encode the stored bytes of files again, by the codec hint that each has now.
//!
//! The service does a bounded step for each request on the control socket, so an interrupted command leaves nothing behind: what it has
//! done stays, and the same command does it all again.
use crate::args::FieldsRecodeArgs;
use crate::output::{json, name, print, print_error_line};
use crate::progress;
use forebay_node::control::{ConnectError, ControlClient};
use forebay_node::failure::{Failure, Result};
use forebay_node::limits::within;
use forebay_node::mount_table::{self, MountEntry};
use forebay_node::units::{counted, size};
use forebay_server::delegate::RecodeCursor;
use forebay_server::proto::data::RecodeReport;
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{File, FileType};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a mount may take to answer, and to write a file's pages back.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// How long a step may take, which all members that store bytes of the file do at once.
const STEP_LIMIT: Duration = Duration::from_secs(120);

/// Runs `fields recode`: all files are tried, each failure is told.
///
/// # Errors
/// What is not on a mount (2); any file that could not be encoded again (1).
pub fn recode(args: &FieldsRecodeArgs) -> Result {
    let mounts = mount_table::all()?;
    let mut files = Vec::new();
    for path in &args.paths {
        files.extend(StoredFile::find(&mounts, path)?);
    }
    let bar = progress::bytes("encoding", files.iter().map(|file| file.stored).sum());
    let mut services = ControlClients::default();
    let (mut sum, mut failed) = (RecodeReport::default(), 0);
    for file in &files {
        let show = |text: String| bar.suspend(|| print(text));
        match file.recode(&mut services, &bar) {
            Ok(report) => {
                sum.add(report);
                show(match args.json {
                    true => json(&as_json(file, report))?,
                    false => format!("{}: {}\n", name(&file.path), change(report)),
                })?;
            }
            Err(failure) => {
                failed += 1;
                bar.suspend(|| print_error_line(format!("forebay: {failure}")));
            }
        }
    }
    bar.finish_and_clear();
    if !args.json && files.len() > 1 {
        let files = counted((files.len() - failed) as u64, "file");
        print(format!("{files}: {}\n", change(sum)))?;
    }
    match failed {
        0 => Ok(()),
        failed => Err(Failure::new(
            format!(
                "{} could not be encoded again",
                counted(failed as u64, "file")
            ),
            "the lines above say why",
        )),
    }
}

/// Such as `61.0 MiB, stored as 61.0 MiB before and 17.0 MiB now`.
fn change(report: RecodeReport) -> String {
    format!(
        "{}, stored as {} before and {} now",
        size(report.bytes),
        size(report.before),
        size(report.after)
    )
}

fn as_json(file: &StoredFile, report: RecodeReport) -> serde_json::Value {
    serde_json::json!({
        "file": file.path.display().to_string(),
        "bytes": report.bytes,
        "stored_before": report.before,
        "stored_after": report.after,
    })
}

/// A file of a running service.
struct StoredFile {
    path: PathBuf,
    /// Where the service keeps it.
    store: PathBuf,
    /// Its number there.
    fid: u64,
    /// Bytes stored for it, as the mount says.
    stored: u64,
}

impl StoredFile {
    /// The files that a path names: those below it, if it is a directory. Their pages are written back.
    fn find(mounts: &[MountEntry], path: &Path) -> Result<Vec<StoredFile>> {
        let shown = name(path);
        let unreadable = |e: io::Error| {
            let next = "name files and directories that you may read";
            Failure::usage(format!("cannot read {shown}: {e}"), next)
        };
        let doing = format!("looking at {shown}");
        let asked = path.to_path_buf();
        let real = within(ANSWER_LIMIT, &doing, move || asked.canonicalize())?;
        let real = real.map_err(unreadable)?;
        let Some(store) = mount_table::below(mounts, &real).and_then(mount_table::store) else {
            return Err(Failure::usage(
                format!("{shown} is not on a Forebay mount"),
                "name files below a mount point of `forebay mount`",
            ));
        };
        // As the user wrote it.
        let asked = path.to_path_buf();
        let found = within(ANSWER_LIMIT, &doing, move || walk(&asked))?;
        let found = found.map_err(unreadable)?;
        let file = |(path, fid, stored)| StoredFile {
            path,
            store: store.clone(),
            fid,
            stored,
        };
        Ok(found.into_iter().map(file).collect())
    }

    fn recode(&self, services: &mut ControlClients, bar: &ProgressBar) -> Result<RecodeReport> {
        bar.set_message(name(Path::new(self.path.file_name().unwrap_or_default())));
        self.write_back()?;
        let start = bar.position();
        let client = services.of(&self.store)?;
        let (mut report, mut place) = (RecodeReport::default(), Some(RecodeCursor::default()));
        while let Some(at) = place {
            let step = client.recode(self.fid, at, STEP_LIMIT);
            let step = step.map_err(|e| e.prefixed(format!("{}: ", name(&self.path))))?;
            report.add(step.report);
            bar.set_position(start + report.bytes.min(self.stored));
            place = step.next;
        }
        bar.set_position(start + self.stored);
        Ok(report)
    }

    /// What the kernel or this node has of it and not committed would be left out.
    fn write_back(&self) -> Result {
        let (path, shown) = (self.path.clone(), name(&self.path));
        let doing = format!("writing back {shown}");
        let synced = within(ANSWER_LIMIT, &doing, move || File::open(path)?.sync_all())?;
        synced.map_err(|e| {
            let next = "name files that you may read, and whose writes succeed";
            Failure::new(format!("cannot write back {shown}: {e}"), next)
        })
    }
}

/// Regular files at and below a path, with their numbers and what is stored for them; of the same file system, and without following
/// links below it.
fn walk(path: &Path) -> io::Result<Vec<(PathBuf, u64, u64)>> {
    let top = path.metadata()?;
    let mut files = Vec::new();
    let mut left = vec![(path.to_path_buf(), top.file_type())];
    while let Some((path, kind)) = left.pop() {
        let found = path.metadata()?;
        if found.dev() != top.dev() {
            continue;
        }
        if kind.is_file() {
            files.push((path, found.ino(), found.blocks() * 512));
        } else if kind.is_dir() {
            let mut below: Vec<(PathBuf, FileType)> = Vec::new();
            for entry in path.read_dir()? {
                let entry = entry?;
                let kind = entry.file_type()?;
                if kind.is_file() || kind.is_dir() {
                    below.push((entry.path(), kind));
                }
            }
            below.sort_by(|a, b| b.0.cmp(&a.0));
            left.extend(below);
        }
    }
    Ok(files)
}

/// Connections to the services, by store.
#[derive(Default)]
struct ControlClients(BTreeMap<PathBuf, ControlClient>);

impl ControlClients {
    fn of(&mut self, store: &Path) -> Result<&mut ControlClient> {
        match self.0.entry(store.to_path_buf()) {
            Entry::Occupied(client) => Ok(client.into_mut()),
            Entry::Vacant(place) => {
                let client = ControlClient::connect(store);
                let client = client.map_err(|e: ConnectError| {
                    e.failure(|| {
                        Failure::new(
                            format!("no service runs on {}", store.display()),
                            "detach its dead mount with `forebay umount`, and mount it again",
                        )
                    })
                })?;
                Ok(place.insert(client))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_directory_are_found_and_links_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        std::fs::create_dir_all(base.join("b/c")).unwrap();
        for path in ["z", "b/c/y", "a"] {
            std::fs::write(base.join(path), "12345").unwrap();
        }
        std::os::unix::fs::symlink(base.join("z"), base.join("link")).unwrap();
        let found = |path: &Path| -> Vec<PathBuf> {
            let files = walk(path).unwrap().into_iter();
            files.map(|(path, ..)| path).collect()
        };
        let all = ["a", "b/c/y", "z"].map(|path| base.join(path));
        assert_eq!(found(base), all);
        assert_eq!(found(&base.join("link")), [base.join("link")]);
        assert!(walk(&base.join("none")).is_err());
    }

    #[test]
    fn a_path_elsewhere_is_wrong_usage() {
        let dir = tempfile::tempdir().unwrap();
        for (path, word) in [
            (dir.path().to_path_buf(), "not on a Forebay mount"),
            (dir.path().join("x"), "cannot read"),
        ] {
            let failure = StoredFile::find(&[], &path).err().unwrap();
            assert!(failure.text.contains(word), "{failure}");
            assert_eq!(failure.code, forebay_node::failure::USAGE);
        }
    }
}
