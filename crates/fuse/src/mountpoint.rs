//! Checks whether a path may become a mount point, and unmounts by path.
//!
//! Invariant: no call here touches a path through a FUSE mount that might not answer. A server that looks through its own
//! mount, or through a dead one, never returns; so the walk to a mount point consults the table before each step, and an
//! unknown mount is probed by a child process that can be abandoned.
use crate::errors::MountError;
use crate::mount_calls;
use crate::mount_table::{MountEntry, TYPE, mounted_on, mounts};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::{fs, io};

/// How long an unknown mount may take to answer.
const MOUNT_ANSWER_TIMEOUT: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// What to do about a foreign mount whose server has died.
const SERVER_DIED: &str = "its server has died; remove it (fusermount3 -uz) and try again";

/// Mount points served by this process; they must never be asked from within it.
static OWN_MOUNT_POINTS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn own_mount_points() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    OWN_MOUNT_POINTS.lock().unwrap_or_else(|e| e.into_inner())
}

pub(crate) fn claim(point: &Path) {
    own_mount_points().insert(point.to_path_buf());
}

pub(crate) fn disclaim(point: &Path) {
    own_mount_points().remove(point);
}

/// What a mount answers.
enum MountHealth {
    Alive,
    Dead,
    Silent,
}

/// Asks the mount at `point` whether its server answers, from a child process.
fn mount_health(point: &Path) -> MountHealth {
    let child = Command::new("stat")
        .args(["-f", "-c", "%T", "--"])
        .arg(point)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    // Without `stat` nothing can be said; the safe answer is the one that leads to a refusal.
    let Ok(mut child) = child else {
        return MountHealth::Alive;
    };
    let Some(mut stderr) = child.stderr.take() else {
        unreachable!("it was asked for");
    };
    // It says something, or ends and closes this, or neither.
    let mut spoken = [PollFd::new(&stderr, PollFlags::IN)];
    let wait = || rustix::event::poll(&mut spoken, Some(&MOUNT_ANSWER_TIMEOUT));
    if !rustix::io::retry_on_intr(wait).is_ok_and(|spoken| spoken > 0) {
        // It may stay until the mount goes away; nobody waits for it.
        let _ = child.kill();
        return MountHealth::Silent;
    }
    let mut text = String::new();
    let _ = io::Read::read_to_string(&mut stderr, &mut text);
    match child.wait() {
        Ok(status) if !status.success() && text.contains("not connected") => MountHealth::Dead,
        _ => MountHealth::Alive,
    }
}

/// The physical path of `point` if a mount may be put there; clears away a dead mount of ours first.
pub(crate) fn check(point: &Path) -> Result<PathBuf, MountError> {
    let mut path = resolve(point)?;
    for _ in 0..16 {
        let table =
            mounts().map_err(|e| MountError::system("read the mount table for", point, e))?;
        let Some(entry) = mounted_on(&table, &path) else {
            empty_directory(&path)?;
            return Ok(path);
        };
        let advice = if own_mount_points().contains(&path) {
            "this process serves it already"
        } else if !entry.is_fuse() {
            "name an empty directory below it or elsewhere"
        } else {
            match (mount_health(&path), entry.is_forebay()) {
                (MountHealth::Dead, true) => {
                    tracing::warn!(point = %path.display(), "clearing away a mount whose server has died");
                    mount_calls::detach(&path)
                        .map_err(|e| MountError::system("clear away the dead mount", &path, e))?;
                    path = resolve(point)?;
                    continue;
                }
                (MountHealth::Dead, false) => SERVER_DIED,
                (MountHealth::Alive, true) => {
                    "unmount it first (forebay umount), or choose another directory"
                }
                (MountHealth::Alive, false) => "unmount it first, or choose another directory",
                (MountHealth::Silent, _) => {
                    "its server does not answer; stop that server, or choose another directory"
                }
            }
        };
        return Err(MountError::InUse {
            point: path,
            kind: entry.kind.clone(),
            advice: advice.into(),
        });
    }
    Err(MountError::InUse {
        point: path,
        kind: TYPE.into(),
        advice: "too many dead mounts lie on it; unmount them".into(),
    })
}

fn empty_directory(path: &Path) -> Result<(), MountError> {
    let system = |e| MountError::system("look at mount point", path, e);
    if !fs::symlink_metadata(path).map_err(system)?.is_dir() {
        return Err(MountError::NotADirectory {
            point: path.to_path_buf(),
        });
    }
    match fs::read_dir(path).map_err(system)?.next() {
        None => Ok(()),
        Some(_) => Err(MountError::NotEmpty {
            point: path.to_path_buf(),
        }),
    }
}

/// Resolves symbolic links and `..` step by step, consulting the mount table before each step.
fn resolve(point: &Path) -> Result<PathBuf, MountError> {
    let system = |e| MountError::system("look at mount point", point, e);
    let table = mounts().map_err(system)?;
    let mut names: Vec<OsString> = Vec::new();
    push_components(&mut names, &std::path::absolute(point).map_err(system)?);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = names.pop() {
        if name.as_bytes() == b".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        if let Some(entry) = mounted_on(&table, &next).filter(|e| e.is_fuse()) {
            if names.is_empty() {
                return Ok(next);
            }
            let advice = if entry.is_forebay() || own_mount_points().contains(&next) {
                Some("choose a directory outside it")
            } else {
                match mount_health(&next) {
                    MountHealth::Alive => None,
                    MountHealth::Dead => Some(SERVER_DIED),
                    MountHealth::Silent => {
                        Some("its server does not answer; choose a directory outside it")
                    }
                }
            };
            if let Some(advice) = advice {
                return Err(MountError::Inside {
                    point: point.to_path_buf(),
                    outer: next,
                    kind: entry.kind.clone(),
                    advice: advice.into(),
                });
            }
        }
        let found = fs::symlink_metadata(&next).map_err(|e| {
            let point = point.to_path_buf();
            match e.kind() {
                io::ErrorKind::NotFound => MountError::Missing { point },
                io::ErrorKind::NotADirectory => MountError::NotADirectory { point },
                _ => system(e),
            }
        })?;
        if !found.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > 40 {
            return Err(system(io::Error::from_raw_os_error(libc::ELOOP)));
        }
        let target = fs::read_link(&next).map_err(system)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        push_components(&mut names, &target);
    }
    Ok(at)
}

fn push_components(names: &mut Vec<OsString>, path: &Path) {
    names.extend(path.components().rev().filter_map(|c| match c {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    }));
}

/// Unmounts the Forebay mount at `point`, whoever serves it; `force` cuts off processes that still use it.
///
/// # Errors
/// [`MountError::NotMounted`] if it is no Forebay mount, [`MountError::Busy`] if it is in use and `force` is off.
pub fn unmount(point: &Path, force: bool) -> Result<(), MountError> {
    let path = resolve(point)?;
    let table = mounts().map_err(|e| MountError::system("read the mount table for", point, e))?;
    if !mounted_on(&table, &path).is_some_and(MountEntry::is_forebay) {
        return Err(MountError::NotMounted { point: path });
    }
    let done = if force {
        mount_calls::force(&path)
    } else {
        mount_calls::unmount(&path)
    };
    match done {
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => Err(MountError::Busy { point: path }),
        done => done.map_err(|e| MountError::system("unmount", &path, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_mount_points_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none");
        assert!(matches!(check(&missing), Err(MountError::Missing { .. })));
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(matches!(
            check(&file),
            Err(MountError::NotADirectory { .. })
        ));
        assert!(matches!(
            check(&file.join("below")),
            Err(MountError::NotADirectory { .. })
        ));
        assert!(matches!(
            check(dir.path()),
            Err(MountError::NotEmpty { .. })
        ));
        let ok = dir.path().join("ok");
        fs::create_dir(&ok).unwrap();
        std::os::unix::fs::symlink(
            "../".to_string() + &dir.path().file_name().unwrap().to_string_lossy() + "/ok",
            dir.path().join("link"),
        )
        .unwrap();
        assert_eq!(
            check(&dir.path().join("link")).unwrap(),
            fs::canonicalize(&ok).unwrap()
        );
        assert!(matches!(
            check(Path::new("/proc")),
            Err(MountError::InUse { .. })
        ));
    }

    #[test]
    fn a_loop_of_links_ends() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("b", dir.path().join("a")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("b")).unwrap();
        assert!(matches!(
            check(&dir.path().join("a")),
            Err(MountError::System { .. })
        ));
    }
}
