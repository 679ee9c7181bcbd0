//! `forebay laminate`: makes files read-only for ever, through the extended attribute that the mount understands.
use crate::args::LaminateArgs;
use crate::fail::{Failure, Result};
use crate::limits::within;
use crate::mount_table;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::path::Path;
use std::time::Duration;

/// Setting it to `1` laminates.
pub const XATTR: &str = "user.forebay.laminated";

/// Runs the verb: all files are tried, each failure is told.
///
/// # Errors
/// If any file could not be laminated.
pub fn run(args: &LaminateArgs) -> Result {
    let mut failed = 0;
    for file in &args.files {
        match laminate(file) {
            Ok(()) => println!("{} is laminated", file.display()),
            Err(failure) => {
                failed += 1;
                eprintln!("forebay: {failure}");
            }
        }
    }
    if failed == 0 {
        Ok(())
    } else {
        Err(Failure::silent())
    }
}

fn laminate(file: &Path) -> Result {
    let shown = file.display();
    let path = file.to_path_buf();
    let mounts = mount_table::all()?;
    let set = within(
        Duration::from_secs(60),
        &format!("laminating {shown}"),
        move || {
            let path = path
                .canonicalize()
                .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
            // Any file system would keep the attribute, and nothing would be laminated.
            match mount_table::below(&mounts, &path) {
                Some(mount) if mount.is_forebay() => {
                    rustix::fs::setxattr(&path, XATTR, b"1", XattrFlags::empty())
                }
                _ => Err(Errno::OPNOTSUPP),
            }
        },
    )?;
    let (why, next) = match set {
        Ok(()) => return Ok(()),
        Err(Errno::BUSY) => (
            "it is open for writing somewhere (EBUSY)".to_string(),
            "close it on every node, then laminate it",
        ),
        Err(Errno::OPNOTSUPP) => (
            "it is not on a Forebay mount".to_string(),
            "name a file below a mount point of `forebay mount`",
        ),
        Err(Errno::NOENT) => ("there is no such file".to_string(), "name an existing file"),
        Err(Errno::ISDIR | Errno::INVAL) => (
            "only regular files can be laminated".to_string(),
            "name the files in it",
        ),
        Err(Errno::PERM | Errno::ACCESS) => {
            ("it belongs to another user".to_string(), "ask its owner")
        }
        Err(e) => (e.to_string(), "see the log in the store"),
    };
    Err(Failure::new(
        format!("cannot laminate {shown}: {why}"),
        next,
    ))
}
