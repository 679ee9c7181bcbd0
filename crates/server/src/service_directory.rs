//! The directory of a service on disk: whose it is, that only one process uses it, and where each member's store lies.
//!
//! ```text
//! STORE/superblock          of the service; beside it its copy, superblock.copy
//! STORE/lock                held by the process that runs it; its text is the process id
//! STORE/node-K/superblock   of member K, and its copy
//! STORE/node-K/lock         held by the process that runs member K
//! STORE/node-K/kv/          its key-value store
//! STORE/node-K/data/        its segment files
//! ```
//!
//! Invariants: a directory that holds something else is refused before it is touched; one is locked before anything in
//! it is written, or believed.
use crate::repair_marker::refuse_if_repairing;
pub(crate) use crate::superblock::refuse;
use crate::superblock::{self, FILE_NAME, StoreRole, Superblock, random_id, refused_at};
use crate::{Error, Member, Result};
use forebay_storage::Io;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for a lock whose holder has ended.
const ENDED_HOLDER_WAIT: Duration = Duration::from_secs(10);
/// Between tries meanwhile: `flock` has no wait with a limit, and the kernel takes milliseconds to clear up after a process.
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// An opened (and locked) service directory.
pub struct ServiceDirectory {
    /// Where each member's store lies.
    pub nodes: Vec<PathBuf>,
    /// Held until dropped.
    pub locks: Vec<File>,
    /// Superblocks that were damaged or missing, and made again from their copies: sentences for people, by member. That of the whole
    /// service is with member 0.
    pub repaired: Vec<Vec<String>>,
}

impl ServiceDirectory {
    /// Opens the directory of a service of `members` members; makes it if it is missing or empty.
    ///
    /// # Errors
    /// `Refused`, each with the next step: in use by another process, of another user, foreign, newer, damaged, or of
    /// another number of members.
    pub fn open(io: &dyn Io, dir: &Path, members: u16) -> Result<ServiceDirectory> {
        if members == 0 {
            return refuse("a service needs at least one node; give `--nodes 1` or more".into());
        }
        let opened = open_directory(io, dir)?;
        let mut locks: Vec<File> = opened.lock.into_iter().collect();
        let mut service = match opened.superblock {
            Some(service) => service,
            None => {
                let service = Superblock::new(StoreRole::Service, members, random_id());
                service.write(io, dir)?;
                service
            }
        };
        if service.role != StoreRole::Service {
            return refuse(format!(
                "{} is the store of one member; start all members as before (`forebay run` or `forebay serve`), or name \
                 the directory above it if that is a store",
                dir.display()
            ));
        }
        if service.members != members {
            return refuse(format!(
                "{} belongs to a service of {} node{}, not {members}; start it with `--nodes {}`",
                dir.display(),
                service.members,
                if service.members == 1 { "" } else { "s" },
                service.members
            ));
        }
        let nodes: Vec<PathBuf> = (0..members)
            .map(|k| dir.join(format!("node-{k}")))
            .collect();
        let mut repaired = vec![opened.repaired];
        repaired.resize(nodes.len(), Vec::new());
        for (k, node) in (0..members).zip(&nodes) {
            if service.ready && !io.exists(node).map_err(|e| path_error(node, &e))? {
                return refuse(format!(
                    "{} is missing: the store of member {k}; put it back, or its files cannot be read",
                    node.display()
                ));
            }
            make_private(io, node)?;
            locks.extend(lock_dir(node)?);
            refuse_if_repairing(io, node)?;
            repaired[usize::from(k)].extend(check_member(io, node, k, &service)?);
        }
        if !service.ready {
            service.ready = true;
            service.write(io, dir)?;
        }
        Ok(ServiceDirectory {
            nodes,
            locks,
            repaired,
        })
    }
}

/// A directory that is locked, and what it is.
pub(crate) struct LockedDirectory {
    pub lock: Option<File>,
    /// `None`: it is new.
    pub superblock: Option<Superblock>,
    /// What was wrong with its superblock, and put right.
    pub repaired: Vec<String>,
}

/// Makes the directory if it is missing, locks it and looks what it is.
pub(crate) fn open_directory(io: &dyn Io, dir: &Path) -> Result<LockedDirectory> {
    // A look before the first touch: a directory of something else keeps its mode and gets no file of ours.
    if dir.is_dir() && !superblock::is_in(io, dir).map_err(|e| path_error(dir, &e))? {
        must_be_empty(io, dir)?;
    }
    make_private(io, dir)?;
    let lock = lock_dir(dir)?;
    refuse_if_repairing(io, dir)?;
    let (superblock, repaired) = Superblock::read_and_repair(io, dir)?;
    if superblock.is_none() {
        must_be_empty(io, dir)?;
    }
    Ok(LockedDirectory {
        lock,
        superblock,
        repaired,
    })
}

/// What was wrong with its superblock, and put right.
fn check_member(
    io: &dyn Io,
    dir: &Path,
    member: Member,
    service: &Superblock,
) -> Result<Vec<String>> {
    let at = dir.display();
    let (found, repaired) = Superblock::read_and_repair(io, dir)?;
    match found {
        None if service.ready => refuse(format!(
            "{at}/{FILE_NAME} is missing; put it back from a copy of the store, or run `forebay fsck --repair`"
        )),
        None => {
            let block =
                Superblock::new(StoreRole::Member(member), service.members, service.service);
            block.write(io, dir).map(|()| repaired)
        }
        Some(found) if found.service != service.service => refuse(format!(
            "{at} belongs to another service; put the right store there, or start with a new directory"
        )),
        Some(found)
            if found.role != StoreRole::Member(member) || found.members != service.members =>
        {
            refuse(format!(
                "{at} is not the store of member {member} of {}; put the stores back under their own names",
                service.members
            ))
        }
        Some(_) => Ok(repaired),
    }
}

/// Makes the directory if it is missing; refuses one of another user; takes its permissions from everyone else.
pub(crate) fn make_private(io: &dyn Io, dir: &Path) -> Result<()> {
    if let Ok(meta) = std::fs::metadata(dir) {
        if !meta.is_dir() {
            return refuse(format!(
                "{} is no directory; name one for the store",
                dir.display()
            ));
        }
        let (owner, own) = (meta.uid(), rustix::process::geteuid().as_raw());
        if owner != own {
            return refuse(format!(
                "{} belongs to user {owner}, this process runs as user {own}; run as that user, or choose another directory",
                dir.display()
            ));
        }
    }
    io.create_dir_all(dir).map_err(|e| path_error(dir, &e))?;
    // A directory that was there before may be open to others.
    if let Ok(meta) = std::fs::metadata(dir)
        && meta.mode() & 0o077 != 0
    {
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o700))
            .map_err(|e| path_error(dir, &e))?;
    }
    Ok(())
}

/// Locks the directory for this process. `None` for a directory that is not on a disk (in tests).
pub(crate) fn lock_dir(dir: &Path) -> Result<Option<File>> {
    if !dir.is_dir() {
        return Ok(None);
    }
    let path = dir.join("lock");
    let open = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    let mut file = open.map_err(|e| path_error(&path, &e))?;
    let until = Instant::now() + ENDED_HOLDER_WAIT;
    while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        // Only for the message; without it the message says less.
        let _ = file
            .rewind()
            .and_then(|()| file.read_to_string(&mut holder));
        let may_end = has_ended(holder.trim()) || is_child_starting(holder.trim(), until);
        if may_end && Instant::now() < until {
            // `flock` either waits without a limit or not at all, and who holds it by an inherited descriptor cannot be told.
            std::thread::sleep(LOCK_RETRY);
            continue;
        }
        let holder = match holder.trim() {
            "" => "another process".to_string(),
            pid => format!("process {pid}"),
        };
        return refuse(format!(
            "{} is in use by {holder}; stop it first (`forebay umount`), or choose another store",
            dir.display()
        ));
    }
    let noted = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| write!(file, "{}", std::process::id()));
    noted.map_err(|e| path_error(&path, &e))?;
    Ok(Some(file))
}

/// Whether a process that this one has just started may have the lock, which this one has given up: it has what was open here until it
/// runs its own program. Not for longer than a second: then the store is open here.
fn is_child_starting(pid: &str, until: Instant) -> bool {
    let waited = (Instant::now() + ENDED_HOLDER_WAIT).saturating_duration_since(until);
    pid.parse() == Ok(std::process::id()) && waited < Duration::from_secs(1)
}

/// Whether the holder of a lock has ended: it is on its way out, or somebody clears up after it.
fn has_ended(pid: &str) -> bool {
    if pid.parse::<u32>().is_err() {
        return false;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name is in parentheses and may hold anything; the state follows it.
    stat.rsplit_once(") ")
        .is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

fn must_be_empty(io: &dyn Io, dir: &Path) -> Result<()> {
    let ours = ["lock", superblock::TEMPORARY_NAME, "lost+found"];
    let entries = io.list(dir).map_err(|e| path_error(dir, &e))?;
    match entries.iter().find(|e| !ours.contains(&e.name.as_str())) {
        None => Ok(()),
        Some(other) => refuse(format!(
            "{} is not a Forebay store and not empty (it holds `{}`); choose an empty or new directory",
            dir.display(),
            other.name
        )),
    }
}

fn path_error(path: &Path, error: &std::io::Error) -> Error {
    refused_at(path, error, "check the path and who may use it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_storage::OsIo;

    fn refused(dir: &Path, members: u16) -> String {
        match ServiceDirectory::open(&OsIo, dir, members) {
            Err(Error::Refused(text)) => text,
            Err(other) => panic!("not a refusal: {other}"),
            Ok(_) => panic!("opened"),
        }
    }

    #[test]
    fn made_once_and_opened_again_by_its_user_only() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("store");
        let first = ServiceDirectory::open(&OsIo, &dir, 2).unwrap();
        let text = refused(&dir, 2);
        assert!(
            text.contains(&format!("process {}", std::process::id())),
            "{text}"
        );
        drop(first);
        ServiceDirectory::open(&OsIo, &dir, 2).unwrap();
        for d in [dir.clone(), dir.join("node-0"), dir.join("node-1")] {
            assert_eq!(std::fs::metadata(d).unwrap().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn another_number_of_members_a_missing_or_a_swapped_member_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("store");
        drop(ServiceDirectory::open(&OsIo, &dir, 2).unwrap());
        assert!(refused(&dir, 3).contains("`--nodes 2`"));
        std::fs::rename(dir.join("node-0"), dir.join("x")).unwrap();
        assert!(refused(&dir, 2).contains("node-0 is missing"));
        std::fs::rename(dir.join("node-1"), dir.join("node-0")).unwrap();
        std::fs::rename(dir.join("x"), dir.join("node-1")).unwrap();
        assert!(refused(&dir, 2).contains("not the store of member 0"));
        for name in [FILE_NAME, superblock::COPY_NAME] {
            std::fs::remove_file(dir.join("node-0").join(name)).unwrap();
        }
        assert!(refused(&dir, 2).contains("missing"));
    }

    #[test]
    fn a_member_of_another_service_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let (a, b) = (temp.path().join("a"), temp.path().join("b"));
        drop((
            ServiceDirectory::open(&OsIo, &a, 1).unwrap(),
            ServiceDirectory::open(&OsIo, &b, 1).unwrap(),
        ));
        std::fs::remove_dir_all(a.join("node-0")).unwrap();
        std::fs::rename(b.join("node-0"), a.join("node-0")).unwrap();
        assert!(refused(&a, 1).contains("another service"));
        assert!(refused(&a.join("node-0"), 1).contains("directory above it"));
    }

    #[test]
    fn a_foreign_directory_and_a_file_are_refused_untouched() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("thesis.tex"), "x").unwrap();
        let open = PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(temp.path(), open).unwrap();
        assert!(refused(temp.path(), 1).contains("thesis.tex"));
        let mode = std::fs::metadata(temp.path()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert!(!temp.path().join("lock").exists());
        assert_eq!(
            std::fs::read_to_string(temp.path().join("thesis.tex")).unwrap(),
            "x"
        );
        assert!(refused(&temp.path().join("thesis.tex"), 1).contains("no directory"));
    }

    #[test]
    fn a_start_cut_off_while_the_directory_was_made_goes_on() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("store");
        std::fs::create_dir(&dir).unwrap();
        Superblock::new(StoreRole::Service, 2, random_id())
            .write(&OsIo, &dir)
            .unwrap();
        std::fs::create_dir(dir.join("node-0")).unwrap();
        drop(ServiceDirectory::open(&OsIo, &dir, 2).unwrap());
        assert!(Superblock::read(&OsIo, &dir).unwrap().unwrap().ready);
    }
}
