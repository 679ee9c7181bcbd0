//! The names of a disk: as calls see them, as they are on disk, and the changes between.
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub enum NameChange {
    Link(PathBuf, Option<u64>),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, u64),
}

impl NameChange {
    fn touches(&self, dir: &Path) -> bool {
        match self {
            NameChange::Link(p, _) | NameChange::Unlink(p) => p.parent() == Some(dir),
            NameChange::Rename(a, b, _) => a.parent() == Some(dir) || b.parent() == Some(dir),
        }
    }

    pub fn dirs(&self) -> Vec<PathBuf> {
        let parent = |p: &Path| p.parent().unwrap_or(Path::new("")).to_path_buf();
        match self {
            NameChange::Link(p, _) | NameChange::Unlink(p) => vec![parent(p)],
            NameChange::Rename(a, b, _) => vec![parent(a), parent(b)],
        }
    }

    pub fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Link(p, inode) => drop(names.insert(p.clone(), *inode)),
            NameChange::Unlink(p) => drop(names.remove(p)),
            NameChange::Rename(a, b, inode) => {
                names.remove(a);
                names.insert(b.clone(), Some(*inode));
            }
        }
    }
}

/// Files by inode, directories as `None`.
pub type Names = BTreeMap<PathBuf, Option<u64>>;

/// See the head of this file.
#[derive(Default)]
pub struct DiskNames {
    pub live: Names,
    pub durable: Names,
    pub changes: Vec<NameChange>,
}

impl DiskNames {
    pub fn file(&self, path: &Path) -> io::Result<u64> {
        match self.live.get(path) {
            Some(Some(inode)) => Ok(*inode),
            Some(None) => Err(ErrorKind::IsADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    pub fn need_directory(&self, dir: Option<&Path>) -> io::Result<()> {
        match dir {
            Some(dir) if dir.parent().is_some() && self.live.get(dir) != Some(&None) => {
                Err(ErrorKind::NotFound.into())
            }
            _ => Ok(()),
        }
    }

    /// Changes a name; the file that lost it.
    pub fn change(&mut self, change: NameChange) -> Option<u64> {
        let replaced = match &change {
            NameChange::Link(..) => None,
            NameChange::Unlink(p) => self.live.get(p).copied().flatten(),
            NameChange::Rename(_, b, _) => self.live.get(b).copied().flatten(),
        };
        change.apply(&mut self.live);
        self.changes.push(change);
        replaced
    }

    /// Whether a crash could bring a name of this file back.
    pub fn may_name(&self, number: u64) -> bool {
        let links = |change: &NameChange| match change {
            NameChange::Link(_, Some(n)) | NameChange::Rename(_, _, n) => *n == number,
            _ => false,
        };
        self.durable.values().any(|n| *n == Some(number)) || self.changes.iter().any(links)
    }

    /// The entries of the directory are on disk.
    pub fn sync_dir(&mut self, dir: &Path) {
        // A rename out of another directory takes that directory's earlier changes with it.
        let mut dirs = BTreeSet::from([dir.to_path_buf()]);
        for change in self.changes.iter().rev() {
            if dirs.iter().any(|d| change.touches(d)) {
                dirs.extend(change.dirs());
            }
        }
        let (now, later) = std::mem::take(&mut self.changes)
            .into_iter()
            .partition(|c| dirs.iter().any(|d| c.touches(d)));
        self.changes = later;
        let now: Vec<NameChange> = now;
        now.iter().for_each(|c| c.apply(&mut self.durable));
    }
}
