//! `forebay laminate`: makes files read-only for ever, through the extended attribute that the mount understands.
use super::on_mount;
use crate::args::LaminateArgs;
use crate::output::{name, print};
use forebay_node::failure::{Failure, Result};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::path::Path;

/// Setting it to `1` laminates.
pub const XATTR: &str = "user.forebay.laminated";

/// Runs the subcommand: all files are tried, each failure is told.
///
/// # Errors
/// If any file could not be laminated.
pub fn run(args: &LaminateArgs) -> Result {
    on_mount::each(&args.files, |file| {
        laminate(file)?;
        print(format!("{} is laminated\n", name(file)))
    })
}

fn laminate(file: &Path) -> Result {
    let set = on_mount::call(file, "laminating", |path| {
        rustix::fs::setxattr(path, XATTR, b"1", XattrFlags::empty())
    })?;
    let (why, next) = match set {
        Ok(()) => return Ok(()),
        Err(Errno::BUSY) => (
            "it is open for writing somewhere (EBUSY)".to_string(),
            "close it on every node, then laminate it",
        ),
        Err(Errno::ISDIR | Errno::INVAL) => (
            "only regular files can be laminated".to_string(),
            "name the files in it",
        ),
        Err(Errno::PERM | Errno::ACCESS) => {
            ("it belongs to another user".to_string(), "ask its owner")
        }
        Err(e) => on_mount::explain(e),
    };
    Err(Failure::new(
        format!("cannot laminate {}: {why}", file.display()),
        next,
    ))
}
