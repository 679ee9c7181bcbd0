//! What is mounted where, read from the kernel's own list; never by touching a mount.
//!
//! Invariant: nothing here opens, stats or lists a path below a mount point, for the server behind it may be dead or
//! this very process.
use crate::fail::{Context, Failure, Result};
use crate::limits::within;
use rustix::mount::UnmountFlags;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the source of our mounts starts with; the store's path follows.
const SOURCE: &str = "forebay:";

/// One line of the kernel's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Where.
    pub point: PathBuf,
    /// The file system's type, such as `fuse.forebay`.
    pub kind: String,
    /// What is mounted.
    pub source: OsString,
}

impl Mounted {
    /// The store behind the mount, if it is one of ours.
    pub fn store(&self) -> Option<PathBuf> {
        let path = self.source.as_bytes().strip_prefix(SOURCE.as_bytes())?;
        Some(PathBuf::from(OsString::from_vec(path.to_vec())))
    }
}

/// What the kernel shows as the source of a mount of this store.
pub fn source(store: &Path) -> String {
    format!("{SOURCE}{}", store.display())
}

/// All mounts this process sees, the topmost at one point last.
///
/// # Errors
/// If the kernel's list cannot be read.
pub fn all() -> Result<Vec<Mounted>> {
    let list = std::fs::read("/proc/self/mountinfo")
        .or_fail("cannot read the list of mounts /proc/self/mountinfo", "mount /proc")?;
    Ok(parse(&list))
}

fn parse(list: &[u8]) -> Vec<Mounted> {
    // 36 35 98:0 /root /point options [tags...] - type source superoptions
    let line = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let dash = fields.iter().position(|f| *f == b"-")?;
        Some(Mounted {
            point: PathBuf::from(unescape(fields.get(4)?)),
            kind: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
            source: unescape(fields.get(dash + 2)?),
        })
    };
    list.split(|b| *b == b'\n').filter_map(line).collect()
}

/// The kernel writes blanks and backslashes as `\ooo`.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let digits = field.get(at + 1..at + 4).filter(|d| field[at] == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match digits {
            Some(d) => {
                out.push(d.iter().fold(0u8, |n, b| n.wrapping_mul(8).wrapping_add(b - b'0')));
                at += 4;
            }
            None => {
                out.push(field[at]);
                at += 1;
            }
        }
    }
    OsString::from_vec(out)
}

/// The topmost mount exactly at `point`.
pub fn at<'a>(mounts: &'a [Mounted], point: &Path) -> Option<&'a Mounted> {
    mounts.iter().rev().find(|m| m.point == point)
}

/// The absolute form of a path whose last component may be a mount point, also of a dead server.
///
/// # Errors
/// If the directory above it does not exist or does not answer.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).or_fail("cannot read the current directory", "change to one that exists")?;
    // Lexically, so that nothing is asked of what may be mounted there.
    let path: PathBuf = path.components().collect();
    if at(&all()?, &path).is_some() {
        return Ok(path);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
    let shown = parent.display().to_string();
    let parent = {
        let parent = parent.to_path_buf();
        within(Duration::from_secs(10), &format!("reading {shown}"), move || parent.canonicalize())?
    }
    .or_fail(format!("cannot open the directory {shown}"), "create it, or name another")?;
    let path = parent.join(name);
    if at(&all()?, &path).is_some() {
        return Ok(path);
    }
    // Not a mount point, so that following a link is safe; what does not exist yet keeps its name.
    let link = path.clone();
    let real = within(Duration::from_secs(10), &format!("reading {}", path.display()), move || link.canonicalize())?;
    Ok(real.unwrap_or(path))
}

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Fails with a clear word if files are open.
    IfIdle,
    /// Detaches at once; open files work until closed if their server lives.
    Detach,
}

/// Unmounts what is at `point`.
///
/// # Errors
/// If files are open there, or the system refuses.
pub fn unmount(point: &Path, how: How) -> Result {
    let shown = point.display();
    let flags = if how == How::Detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let path = point.to_path_buf();
    let done = within(Duration::from_secs(20), &format!("unmounting {shown}"), move || {
        rustix::mount::unmount(&path, flags | UnmountFlags::NOFOLLOW)
    })?;
    match done {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(busy(point)),
        Err(rustix::io::Errno::PERM) => by_fusermount(point, how),
        Err(e) => Err(Failure::new(format!("cannot unmount {shown}: {e}"), "see `findmnt` for what is mounted there")),
    }
}

/// The message for open files, naming who holds them.
pub fn busy(point: &Path) -> Failure {
    let holders = crate::processes::holders(point);
    let names: Vec<_> = holders.iter().take(3).map(|(pid, name)| format!("{name} (pid {pid})")).collect();
    let by = if names.is_empty() { String::new() } else { format!(" by {}", names.join(", ")) };
    Failure::new(
        format!("cannot unmount {}: files or directories are open there{by} (EBUSY)", point.display()),
        "close them and try again, or add --force",
    )
}

/// Users other than root unmount through the set-uid helper.
fn by_fusermount(point: &Path, how: How) -> Result {
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if how == How::Detach {
        command.arg("-z");
    }
    command.arg("--").arg(point).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = within(Duration::from_secs(20), "running fusermount3", move || command.output())?
        .or_fail("cannot run fusermount3", "install the package fuse3")?;
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    match output.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(busy(point)),
        false => Err(Failure::new(said.trim_end(), "see `findmnt` for what is mounted there")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read() {
        let list = b"25 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            90 25 0:44 / /mnt/a\\040b/0 rw,nosuid shared:5 - fuse.forebay forebay:/s\\134x rw,user_id=0\n\
            garbage\n";
        let mounts = parse(list);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[1].point, Path::new("/mnt/a b/0"));
        assert_eq!(mounts[1].kind, "fuse.forebay");
        assert_eq!(mounts[1].store(), Some(PathBuf::from("/s\\x")));
        assert_eq!(mounts[0].store(), None);
        assert_eq!(at(&mounts, Path::new("/")).unwrap().kind, "ext4");
        assert_eq!(OsString::from(source(Path::new("/s\\x"))), mounts[1].source);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(at(&all().unwrap(), Path::new("/")).is_some());
    }

    #[test]
    fn a_path_is_made_absolute_even_if_its_last_part_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&real, real.join("link")).unwrap();
        assert_eq!(absolute(&real.join("link/new")).unwrap(), real.join("new"));
        assert_eq!(absolute(&real.join("link")).unwrap(), real);
        assert!(absolute(&real.join("none/new")).is_err());
    }
}
