//! The mount table, read from the kernel's own list; never by touching a mount.
//!
//! Invariant: nothing here opens, stats or lists a path below a mount point, for the server behind it may be dead or
//! this very process.
use crate::failure::{Context, Failure, Result};
use crate::limits::within;
use rustix::event::{PollFd, PollFlags};
use rustix::mount::UnmountFlags;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the source of our mounts starts with; the store's path follows.
const SOURCE: &str = "forebay:";

/// A mount as the kernel lists it.
pub use forebay_fuse::MountEntry;
/// The topmost mount exactly at a point.
pub use forebay_fuse::mounted_on as at;

/// The store behind a mount, if it is one of ours.
pub fn store(mount: &MountEntry) -> Option<PathBuf> {
    mount
        .source
        .strip_prefix(SOURCE)
        .filter(|_| mount.is_forebay())
        .map(PathBuf::from)
}

/// Is `store` mounted at `point`, topmost?
///
/// # Errors
/// If the kernel's list cannot be read.
pub fn is_mounted(store: &Path, point: &Path) -> Result<bool> {
    Ok(at(&all()?, point).is_some_and(|m| self::store(m).as_deref() == Some(store)))
}

/// What the kernel shows as the source of a mount of this store.
pub fn source(store: &Path) -> String {
    format!("{SOURCE}{}", store.display())
}

/// All mounts this process sees, the topmost at one point last.
///
/// # Errors
/// If the kernel's list cannot be read.
pub fn all() -> Result<Vec<MountEntry>> {
    forebay_fuse::mounts().or_fail(
        "cannot read the list of mounts /proc/self/mountinfo",
        "mount /proc",
    )
}

/// The mounts of this store.
///
/// # Errors
/// If the kernel's list cannot be read.
pub fn of_store(dir: &Path) -> Result<Vec<MountEntry>> {
    let mut mounts = all()?;
    mounts.retain(|mount| store(mount).as_deref() == Some(dir));
    Ok(mounts)
}

/// Major 10, minor 229: the same on every Linux.
const FUSE_DEVICE: u64 = 10 << 8 | 229;

/// Whether anything can be mounted on this machine.
///
/// # Errors
/// If the kernel has no FUSE.
pub fn need_fuse() -> Result {
    // Where it is hidden from a container another file may have its name.
    let is_fuse =
        |found: Metadata| found.file_type().is_char_device() && found.rdev() == FUSE_DEVICE;
    match std::fs::metadata("/dev/fuse").is_ok_and(is_fuse) {
        true => Ok(()),
        false => Err(Failure::new(
            "this machine has no /dev/fuse, so nothing can be mounted",
            "load it: `modprobe fuse`, and install fuse3",
        )),
    }
}

/// The topmost mount that an absolute path without links lies on.
pub fn below<'a>(mounts: &'a [MountEntry], path: &Path) -> Option<&'a MountEntry> {
    let above = mounts.iter().filter(|m| path.starts_with(&m.point));
    // Of several mounts at one point the last one counts, as `max_by_key` picks it.
    above.max_by_key(|m| m.point.components().count())
}

/// The absolute form of a path whose last component may be a mount point, also of a dead server.
///
/// # Errors
/// If the directory above it does not exist or does not answer.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).or_fail(
        "cannot read the current directory",
        "change to one that exists",
    )?;
    // Lexically, so that nothing is asked of what may be mounted there.
    let path: PathBuf = path.components().collect();
    if at(&all()?, &path).is_some() {
        return Ok(path);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(path);
    };
    let real_path = |path: &Path| {
        let (what, path) = (format!("reading {}", path.display()), path.to_path_buf());
        within(Duration::from_secs(10), &what, move || path.canonicalize())
    };
    let parent = real_path(parent)?.or_fail(
        format!("cannot open the directory {}", parent.display()),
        "create it, or name another",
    )?;
    let path = parent.join(name);
    if at(&all()?, &path).is_some() {
        return Ok(path);
    }
    // Not a mount point, so that following a link is safe; what does not exist yet keeps its name.
    Ok(real_path(&path)?.unwrap_or(path))
}

/// Tells when the kernel's list of mounts changes.
pub struct MountChanges(File);

impl MountChanges {
    /// Changes from now on.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn watch() -> Result<MountChanges> {
        File::open("/proc/self/mountinfo")
            .map(MountChanges)
            .or_fail("cannot watch the list of mounts", "mount /proc")
    }

    /// For poll(2): ready once the list has changed since the last poll.
    pub fn ready(&self) -> PollFd<'_> {
        // The kernel reports an exceptional condition.
        PollFd::new(&self.0, PollFlags::PRI)
    }
}

/// Detaches what is mounted at `point`, at once: open files work until closed if their server lives.
///
/// # Errors
/// If the system refuses.
pub fn detach(point: &Path) -> Result {
    let shown = point.display();
    let path = point.to_path_buf();
    let done = within(
        Duration::from_secs(20),
        &format!("unmounting {shown}"),
        move || rustix::mount::unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW),
    )?;
    match done {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => detach_by_fusermount(point),
        Err(e) => Err(Failure::new(
            format!("cannot unmount {shown}: {e}"),
            "see `findmnt` for what is mounted there",
        )),
    }
}

/// Detaches those of `points` that this store is mounted at: after a start that failed or a stop that hangs no mount is to stay.
/// What cannot be detached is told to `report`.
pub fn detach_all(store: &Path, points: &[PathBuf], report: impl Fn(&Failure)) {
    for point in points {
        if is_mounted(store, point) == Ok(true)
            && let Err(failure) = detach(point)
        {
            report(&failure);
        }
    }
}

/// Whether a server answers for the mount, or may do so: one that hangs counts. The mount of a server that has ended does not.
pub fn is_served(point: &Path) -> bool {
    let path = point.to_path_buf();
    let what = format!("looking at {}", point.display());
    let asked = within(Duration::from_secs(5), &what, move || {
        rustix::fs::statfs(&path).map(drop)
    });
    use rustix::io::Errno;
    !matches!(asked, Ok(Err(Errno::NOTCONN | Errno::CONNABORTED)))
}

/// The message for open files, naming who holds them. `asker` wants it unmounted.
pub fn busy(point: &Path, asker: u32) -> Failure {
    let mut holders = crate::processes::holders(point);
    // It has inherited a descriptor or directory, and ends with its question; who passed that on is what helps.
    if holders.iter().any(|(pid, _)| *pid != asker) {
        holders.retain(|(pid, _)| *pid != asker);
    }
    let names: Vec<_> = holders
        .iter()
        .take(3)
        .map(|(pid, name)| format!("{name} (pid {pid})"))
        .collect();
    let by = if names.is_empty() {
        String::new()
    } else {
        format!(" by {}", names.join(", "))
    };
    Failure::new(
        format!(
            "cannot unmount {}: files or directories are open there{by} (EBUSY)",
            point.display()
        ),
        "close them and try again, or add --force",
    )
}

/// Users other than root unmount through the set-uid helper.
fn detach_by_fusermount(point: &Path) -> Result {
    let mut command = Command::new("fusermount3");
    command
        .args(["-u", "-z", "--"])
        .arg(point)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = within(Duration::from_secs(20), "running fusermount3", move || {
        command.output()
    })?
    .or_fail("cannot run fusermount3", "install the package fuse3")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(
        crate::failure::one_line(&said),
        "see `findmnt` for what is mounted there",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_names_its_store() {
        let path = Path::new("/a b/store");
        let mut mount = MountEntry {
            point: "/m".into(),
            kind: "fuse.forebay".into(),
            source: source(path),
            device: "0:1".into(),
        };
        assert_eq!(store(&mount), Some(path.to_path_buf()));
        mount.kind = String::from("tmpfs");
        assert_eq!(store(&mount), None);
    }

    #[test]
    fn who_asks_is_not_named_beside_others_that_hold_the_mount() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let me = std::process::id();
        let file = std::fs::File::create(path.join("x")).unwrap();
        let named = |text: &str, pid: u32| text.contains(&format!("(pid {pid})"));
        assert!(named(&busy(&path, me).text, me), "nobody else has it open");
        let mut child = Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(file.try_clone().unwrap())
            .spawn()
            .unwrap();
        let (asked, other) = (busy(&path, me).text, busy(&path, 0).text);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(named(&asked, child.id()) && !named(&asked, me), "{asked}");
        assert!(named(&other, child.id()) && named(&other, me), "{other}");
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
