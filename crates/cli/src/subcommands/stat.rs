//! `forebay stat`: what the service knows of files, through an extended attribute that the mount answers.
use super::on_mount;
use super::stat_text::text;
use crate::args::StatArgs;
use crate::output::{self, name, print};
use forebay_node::failure::{Failure, Result};
use forebay_server::delegate::FileDescription;
use rustix::io::Errno;
use std::path::Path;

/// A [`FileDescription`] as JSON.
pub const XATTR: &str = "user.forebay.extents";
/// The kernel gives no longer attribute.
const MAX_XATTR_BYTES: usize = 64 << 10;

/// Runs the subcommand: all files are tried, each failure is told.
///
/// # Errors
/// If any file could not be described.
pub fn run(args: &StatArgs) -> Result {
    on_mount::each(&args.files, |file| {
        let described = describe(file)?;
        print(match args.json {
            true => output::json(&json(file, &described, args.extents))?,
            false => text(&name(file), &described, args.extents),
        })
    })
}

/// The rows only if they were asked for.
fn json(file: &Path, described: &FileDescription, extents: bool) -> serde_json::Value {
    let mut value = serde_json::json!(described);
    value["file"] = file.display().to_string().into();
    if !extents {
        for kind in ["patterns", "extents"] {
            let rows = value[kind].as_object_mut();
            rows.map(|rows| (rows.remove("rows"), rows.remove("left_out")));
        }
    }
    value
}

fn describe(file: &Path) -> Result<FileDescription> {
    let got = on_mount::call(file, "looking at", |path| {
        let mut bytes = vec![0; MAX_XATTR_BYTES];
        let len = rustix::fs::getxattr(path, XATTR, &mut bytes[..])?;
        bytes.truncate(len);
        Ok(bytes)
    })?;
    let (why, next) = match got {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(described) => return Ok(described),
            Err(e) => (
                format!("the service's answer cannot be read: {e}"),
                "use the forebay that started the service",
            ),
        },
        Err(Errno::ISDIR | Errno::INVAL | Errno::PERM) => {
            ("it is not a regular file".to_string(), "name a file in it")
        }
        Err(Errno::NODATA) => (
            "it is not a regular file, or the service does not know of extents".to_string(),
            "name a regular file, or start the service with this forebay",
        ),
        Err(Errno::ACCESS) => (
            "you may not read it".to_string(),
            "ask its owner for the right to read it",
        ),
        Err(e) => on_mount::explain(e),
    };
    Err(Failure::new(
        format!("cannot stat {}: {why}", file.display()),
        next,
    ))
}
