//! ext4 on an image file, over a loop device.
use crate::prerequisites::run;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Makes an empty ext4 on the image, with a small journal.
///
/// # Errors
/// If `mkfs.ext4` fails; what it said.
pub fn make_ext4(image: &Path) -> io::Result<()> {
    let mut command = Command::new("mkfs.ext4");
    command.args([
        "-q",
        "-F",
        "-b",
        "4096",
        "-J",
        "size=8",
        "-E",
        "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
    ]);
    run(command.arg(image))
}

/// A mounted image. Dropping it unmounts it, and gives the loop device back.
pub struct Mounted {
    point: PathBuf,
}

impl Mounted {
    /// Mounts the ext4 of `image` on the directory `point`; its journal is replayed first. Where ext4 does not mount, because its
    /// superblock of two sectors was torn, `e2fsck` mends it, as whoever owns the disk would.
    ///
    /// # Errors
    /// If `mount` fails; what it said.
    pub fn new(image: &Path, point: &Path) -> io::Result<Mounted> {
        // `mount` makes a loop device that goes with the mount, also with a mount namespace that ends.
        let mount = || {
            let mut command = Command::new("mount");
            run(command
                .args(["-t", "ext4", "-o", "loop"])
                .arg(image)
                .arg(point))
        };
        if mount().is_err() {
            // Its status says what it mended; whether that was enough, the mount does.
            let mut mend = Command::new("e2fsck");
            mend.args(["-f", "-y"])
                .arg(image)
                .stdin(Stdio::null())
                .output()?;
            mount()?;
        }
        Ok(Mounted {
            point: point.to_path_buf(),
        })
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let quick = run(Command::new("umount").arg(&self.point));
        // Whoever still has a file open keeps the device until he ends.
        if let Err(e) =
            quick.or_else(|_| run(Command::new("umount").arg("--lazy").arg(&self.point)))
        {
            eprintln!("{} stays mounted: {e}", self.point.display());
        }
    }
}
