//! Makes mount points ready before the first mount starts.
//!
//! Invariant: every look at a path, and every directory made, comes before any mount of this process exists. The
//! kernel's list of mounts is read first, and what it names is never touched, because it may be a dead mount.
use crate::failure::{Context, Failure, Result};
use crate::limits::within;
use crate::mount_table;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Checks every mount point, detaches dead mounts of this very store, and creates the missing last directories.
///
/// The caller holds the store's lock: so whatever is mounted from this store has no server any more.
///
/// # Errors
/// If a mount point is in use, missing, or not a directory.
pub fn prepare(store: &Path, points: &[PathBuf]) -> Result {
    for entry in mount_table::of_store(store)? {
        tracing::warn!("detaching the dead mount {}", entry.point.display());
        mount_table::detach(&entry.point)?;
    }
    let mounted = mount_table::all()?;
    for point in points {
        if let Some(other) = mount_table::at(&mounted, point) {
            let what = match mount_table::store(other) {
                Some(store) => format!("the Forebay store {}", store.display()),
                None => format!("{} ({})", other.source, other.kind),
            };
            return Err(Failure::new(
                format!(
                    "the mount point {} is in use: {what} is mounted there",
                    point.display()
                ),
                format!(
                    "run `forebay umount {}`, or name another directory",
                    point.display()
                ),
            ));
        }
    }
    let numbered = points.len() > 1;
    for point in points {
        let path = point.clone();
        within(
            Duration::from_secs(10),
            &format!("looking at {}", point.display()),
            move || make(&path, numbered),
        )??;
    }
    Ok(())
}

/// Only the numbered directories of several nodes are made; the one the user named must exist.
fn make(point: &Path, create: bool) -> Result {
    let shown = point.display();
    match std::fs::symlink_metadata(point) {
        Ok(meta) if !meta.is_dir() => Err(Failure::new(
            format!("the mount point {shown} is not a directory"),
            "name a directory",
        )),
        Ok(_) => {
            let mut entries = std::fs::read_dir(point).or_fail(
                format!("cannot list the mount point {shown}"),
                "name a directory of your own",
            )?;
            match entries.next() {
                None => Ok(()),
                Some(_) => Err(Failure::new(
                    format!("the mount point {shown} is not empty: its files would be hidden"),
                    "name an empty directory",
                )),
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && create => std::fs::DirBuilder::new()
            .mode(0o700)
            .create(point)
            .or_fail(
                format!("cannot create the mount point {shown}"),
                format!("run `mkdir -p {shown}`"),
            ),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Failure::new(
            format!("the mount point {shown} does not exist"),
            format!("run `mkdir -p {shown}`"),
        )),
        Err(e) => Err(Failure::new(
            format!("cannot look at the mount point {shown}: {e}"),
            "name a directory of your own",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_must_be_an_empty_directory() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let store = base.join("store");
        let missing = prepare(&store, &[base.join("none")]).unwrap_err();
        assert!(
            missing.text.contains("does not exist") && missing.text.contains("mkdir"),
            "{missing}"
        );
        prepare(&store, &[base.join("0"), base.join("1")]).unwrap();
        assert!(base.join("1").is_dir());
        std::fs::write(base.join("1/file"), "x").unwrap();
        assert!(
            prepare(&store, &[base.join("1")])
                .unwrap_err()
                .text
                .contains("not empty")
        );
        assert!(
            prepare(&store, &[base.join("1/file")])
                .unwrap_err()
                .text
                .contains("not a directory")
        );
        let used = prepare(&store, &[PathBuf::from("/proc")]).unwrap_err();
        assert!(used.text.contains("/proc is in use"), "{used}");
    }
}
