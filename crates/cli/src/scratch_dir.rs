//! A directory that the command makes for itself and removes again.
//!
//! Invariant: the directory stays if anything is still mounted below it: removing it would delete through the mount.
use crate::output::{name, print_error_line};
use forebay_node::mount_table;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Removed, with everything in it, when it is dropped.
pub struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Makes a directory for this user only.
    ///
    /// # Errors
    /// As the file system; also if it is there.
    pub fn new(path: &Path) -> io::Result<ScratchDir> {
        std::fs::DirBuilder::new().mode(0o700).create(path)?;
        // As the kernel's list of mounts would have it.
        Ok(ScratchDir(path.canonicalize()?))
    }

    /// Its path, without links.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        match mount_table::all() {
            Ok(all) if !all.iter().any(|m| m.point.starts_with(&self.0)) => {
                if let Err(e) = std::fs::remove_dir_all(&self.0) {
                    print_error_line(format!(
                        "forebay: cannot remove {}: {e}; remove it by hand",
                        name(&self.0)
                    ));
                }
            }
            _ => print_error_line(format!(
                "forebay: a mount is left below {}; run `forebay umount` there, then remove it",
                name(&self.0)
            )),
        }
    }
}
