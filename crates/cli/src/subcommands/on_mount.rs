//! Helpers of the subcommands about single files of a mount: every file is tried, each call to the mount has a limit because it
//! may hang with its service, and errors that mean the same to all subcommands have one text.
use crate::output::print_error_line;
use forebay_node::failure::{Failure, Result};
use forebay_node::limits::within;
use forebay_node::mount_table;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a mount may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Does this for all files, and tells of each failure.
///
/// # Errors
/// If it failed for any file.
pub fn each(files: &[PathBuf], one: impl Fn(&Path) -> Result) -> Result {
    let mut failed = false;
    for file in files {
        if let Err(failure) = one(file) {
            failed = true;
            print_error_line(format!("forebay: {failure}"));
        }
    }
    match failed {
        true => Err(Failure::silent()),
        false => Ok(()),
    }
}

/// Makes a call about a file of a Forebay mount, by the path that its links lead to: any other file system might take the call, and
/// mean nothing by it. `doing`: what it is, for an error.
///
/// # Errors
/// If it takes too long, or the mounts cannot be listed. Inside, the call's own: `EOPNOTSUPP` also if there is no such mount.
pub fn call<T: Send + 'static>(
    file: &Path,
    doing: &str,
    call: impl FnOnce(&Path) -> rustix::io::Result<T> + Send + 'static,
) -> Result<rustix::io::Result<T>> {
    let doing = format!("{doing} {}", file.display());
    let path = file.to_path_buf();
    let mounts = mount_table::all()?;
    within(ANSWER_LIMIT, &doing, move || {
        let path = path
            .canonicalize()
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        match mount_table::below(&mounts, &path) {
            Some(mount) if mount.is_forebay() => call(&path),
            _ => Err(Errno::OPNOTSUPP),
        }
    })
}

/// What such a call's failure means, whatever the call, and what to do.
pub fn explain(error: Errno) -> (String, &'static str) {
    match error {
        Errno::OPNOTSUPP => (
            "it is not on a Forebay mount".to_string(),
            "name a file below a mount point of `forebay mount`",
        ),
        Errno::NOENT => ("there is no such file".to_string(), "name an existing file"),
        e => (e.to_string(), "see the log in the store"),
    }
}
