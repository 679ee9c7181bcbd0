//! `forebay stat`: what the service knows of files, through an extended attribute that the mount answers.
use super::stat_text::text;
use crate::args::StatArgs;
use crate::fail::{Failure, Result};
use crate::limits::within;
use crate::mount_table;
use forebay_server::delegate::Described;
use rustix::io::Errno;
use std::path::Path;
use std::time::Duration;

/// A [`Described`] as JSON.
pub const XATTR: &str = "user.forebay.extents";
/// The kernel gives no longer attribute.
const LONGEST: usize = 64 << 10;

/// Runs the verb: all files are tried, each failure is told.
///
/// # Errors
/// If any file could not be described.
pub fn run(args: &StatArgs) -> Result {
    let mut failed = false;
    for file in &args.files {
        let shown = file.display().to_string();
        match describe(file) {
            Ok(described) if args.json => println!("{}", json(&shown, described, args.extents)),
            Ok(described) => print!("{}", text(&shown, &described, args.extents)),
            Err(failure) => {
                failed = true;
                eprintln!("forebay: {failure}");
            }
        }
    }
    if failed {
        Err(Failure::silent())
    } else {
        Ok(())
    }
}

/// The rows only if they were asked for.
fn json(file: &str, mut described: Described, extents: bool) -> serde_json::Value {
    if !extents {
        described.patterns.rows.clear();
        described.extents.rows.clear();
    }
    let mut value = serde_json::json!(described);
    value["file"] = file.into();
    if !extents {
        for kind in ["patterns", "extents"] {
            let rows = value[kind].as_object_mut();
            rows.map(|rows| (rows.remove("rows"), rows.remove("left_out")));
        }
    }
    value
}

fn describe(file: &Path) -> Result<Described> {
    let shown = file.display();
    let path = file.to_path_buf();
    let mounts = mount_table::all()?;
    let got = within(
        Duration::from_secs(60),
        &format!("looking at {shown}"),
        move || {
            let path = path
                .canonicalize()
                .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
            match mount_table::below(&mounts, &path) {
                Some(mount) if mount.is_forebay() => {
                    let mut bytes = vec![0; LONGEST];
                    let len = rustix::fs::getxattr(&path, XATTR, &mut bytes[..])?;
                    bytes.truncate(len);
                    Ok(bytes)
                }
                _ => Err(Errno::OPNOTSUPP),
            }
        },
    )?;
    let (why, next) = match got {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(described) => return Ok(described),
            Err(e) => (
                format!("the service's answer cannot be read: {e}"),
                "use the forebay that started the service",
            ),
        },
        Err(Errno::OPNOTSUPP) => (
            "it is not on a Forebay mount".to_string(),
            "name a file below a mount point of `forebay mount`",
        ),
        Err(Errno::NOENT) => ("there is no such file".to_string(), "name an existing file"),
        Err(Errno::ISDIR | Errno::INVAL | Errno::PERM) => {
            ("it is not a regular file".to_string(), "name a file in it")
        }
        Err(Errno::NODATA) => (
            "the service does not know of extents".to_string(),
            "start it with this forebay",
        ),
        Err(Errno::ACCESS) => (
            "you may not read it".to_string(),
            "ask its owner for the right to read it",
        ),
        Err(e) => (e.to_string(), "see the log in the store"),
    };
    Err(Failure::new(format!("cannot stat {shown}: {why}"), next))
}
