//! The disk behind [`FaultIo`](super::FaultIo): live state, durable state, and the changes between them.
//!
//! Invariants: `live` is what calls see; `durable` plus all of `changes` in order is `live`; the same holds for names with
//! `durable_names` and `name_changes`.
mod crash;
mod files;

use super::image::Image;
use crate::DirEntry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const SECTOR: u64 = 512;
const PAGE: u64 = 4096;

/// An unsynced change of a file.
#[derive(Debug, Clone)]
pub enum Change {
    /// Bytes at an offset.
    Write(u64, Vec<u8>),
    /// Zeros from an offset on, for a length; frees whole pages.
    Zero(u64, u64),
    /// The file's length.
    Length(u64),
}

#[derive(Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
    pages: BTreeSet<u64>,
    handles: usize,
    names: usize,
}

#[derive(Debug, Clone)]
enum NameChange {
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

    fn dirs(&self) -> Vec<PathBuf> {
        let parent = |p: &Path| p.parent().unwrap_or(Path::new("")).to_path_buf();
        match self {
            NameChange::Link(p, _) | NameChange::Unlink(p) => vec![parent(p)],
            NameChange::Rename(a, b, _) => vec![parent(a), parent(b)],
        }
    }

    fn apply(&self, names: &mut Names) {
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
type Names = BTreeMap<PathBuf, Option<u64>>;

/// See the [module](self).
pub struct Disk {
    inodes: HashMap<u64, Inode>,
    names: Names,
    durable_names: Names,
    name_changes: Vec<NameChange>,
    next_inode: u64,
    capacity: u64,
    used_pages: u64,
    calls: u64,
    fail: Option<(u64, ErrorKind)>,
    stop: Option<u64>,
    failed: Option<&'static str>,
    random: u64,
}

impl Disk {
    /// Holds what the image holds.
    pub fn new(image: &Image, seed: u64) -> Disk {
        let mut disk = Disk {
            inodes: HashMap::new(),
            names: Names::new(),
            durable_names: Names::new(),
            name_changes: Vec::new(),
            next_inode: 1,
            capacity: u64::MAX,
            used_pages: 0,
            calls: 0,
            fail: None,
            stop: None,
            failed: None,
            random: seed ^ 0x5851_f42d_4c95_7f2d,
        };
        for (path, bytes) in &image.entries {
            let inode = bytes.as_ref().map(|bytes| {
                let pages: BTreeSet<u64> = (0..(bytes.len() as u64).div_ceil(PAGE)).collect();
                disk.used_pages += pages.len() as u64;
                let node = Inode {
                    live: bytes.clone(),
                    durable: bytes.clone(),
                    pages,
                    names: 1,
                    ..Inode::default()
                };
                disk.add(node)
            });
            disk.names.insert(path.clone(), inode);
        }
        disk.durable_names = disk.names.clone();
        disk
    }

    fn add(&mut self, inode: Inode) -> u64 {
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, inode);
        number
    }

    /// A number below `bound`, from the seed (SplitMix64).
    fn draw(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    pub fn stop(&mut self) {
        self.stop = Some(self.calls);
    }

    pub fn calls(&self) -> u64 {
        self.calls
    }

    pub fn fail_after(&mut self, n: u64, kind: ErrorKind) {
        self.fail = Some((self.calls + n, kind));
        self.failed = None;
    }

    pub fn stop_after(&mut self, n: u64) {
        self.stop = Some(self.calls + n);
        self.failed = None;
    }

    pub fn failed_call(&self) -> Option<&'static str> {
        self.failed
    }

    pub fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
    }

    pub fn used(&self) -> u64 {
        self.used_pages * PAGE
    }

    /// Counts a call of that name; the error that it shall fail with, if any.
    fn call(&mut self, name: &'static str) -> io::Result<()> {
        self.calls += 1;
        if self.stop.is_some_and(|at| self.calls >= at) {
            self.failed = Some(name);
            return Err(io::Error::other("the process was stopped here"));
        }
        if let Some((at, kind)) = self.fail
            && self.calls == at
        {
            self.fail = None;
            self.failed = Some(name);
            return Err(kind.into());
        }
        Ok(())
    }

    fn inode(&mut self, number: u64) -> io::Result<&mut Inode> {
        self.inodes
            .get_mut(&number)
            .ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn file(&self, path: &Path) -> io::Result<u64> {
        match self.names.get(path) {
            Some(Some(inode)) => Ok(*inode),
            Some(None) => Err(ErrorKind::IsADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    pub fn open(&mut self, path: &Path) -> io::Result<u64> {
        self.call("open")?;
        let number = self.file(path)?;
        self.inode(number)?.handles += 1;
        Ok(number)
    }

    pub fn create(&mut self, path: &Path) -> io::Result<u64> {
        self.call("create")?;
        if self.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.need_directory(path.parent())?;
        let number = self.add(Inode {
            handles: 1,
            ..Inode::default()
        });
        self.change_name(NameChange::Link(path.to_path_buf(), Some(number)));
        Ok(number)
    }

    fn need_directory(&self, dir: Option<&Path>) -> io::Result<()> {
        match dir {
            Some(dir) if dir.parent().is_some() && self.names.get(dir) != Some(&None) => {
                Err(ErrorKind::NotFound.into())
            }
            _ => Ok(()),
        }
    }

    fn change_name(&mut self, change: NameChange) {
        let replaced = match &change {
            NameChange::Link(_, None) => None,
            NameChange::Link(_, Some(inode)) => {
                self.inodes.entry(*inode).or_default().names += 1;
                None
            }
            NameChange::Unlink(p) => self.names.get(p).copied().flatten(),
            NameChange::Rename(_, b, _) => self.names.get(b).copied().flatten(),
        };
        change.apply(&mut self.names);
        self.name_changes.push(change);
        if let Some(number) = replaced {
            if let Some(inode) = self.inodes.get_mut(&number) {
                inode.names -= 1;
            }
            self.free_if_unused(number);
        }
    }

    /// Gives the pages of a file back that nobody can reach any more. The inode stays while a crash could bring it back.
    fn free_if_unused(&mut self, number: u64) {
        if let Some(inode) = self
            .inodes
            .get_mut(&number)
            .filter(|i| i.names == 0 && i.handles == 0)
        {
            self.used_pages -= inode.pages.len() as u64;
            inode.pages.clear();
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u64) {
        let reachable = self.durable_names.values().any(|n| *n == Some(number))
            || self.name_changes.iter().any(|c| matches!(c, NameChange::Link(_, Some(n)) | NameChange::Rename(_, _, n) if *n == number));
        if !reachable {
            self.inodes.remove(&number);
        }
    }

    pub fn close(&mut self, number: u64) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.handles -= 1;
        }
        self.free_if_unused(number);
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("rename")?;
        let inode = self.file(from)?;
        self.need_directory(to.parent())?;
        if from != to {
            self.change_name(NameChange::Rename(
                from.to_path_buf(),
                to.to_path_buf(),
                inode,
            ));
        }
        Ok(())
    }

    pub fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.call("remove")?;
        self.file(path)?;
        self.change_name(NameChange::Unlink(path.to_path_buf()));
        Ok(())
    }

    pub fn exists(&mut self, path: &Path) -> io::Result<bool> {
        self.call("exists")?;
        Ok(self.names.contains_key(path) || path.parent().is_none())
    }

    pub fn list(&mut self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.call("list")?;
        self.need_directory(Some(dir))?;
        let inside = self.names.iter().filter(|(p, _)| p.parent() == Some(dir));
        let entry = |(p, inode): (&PathBuf, &Option<u64>)| DirEntry {
            name: p
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            len: inode
                .and_then(|n| self.inodes.get(&n))
                .map_or(0, |i| i.live.len() as u64),
            is_dir: inode.is_none(),
        };
        Ok(inside.map(entry).collect())
    }

    pub fn create_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        self.call("create_dir_all")?;
        let mut missing: Vec<_> = dir
            .ancestors()
            .filter(|d| d.parent().is_some() && !self.names.contains_key(*d))
            .collect();
        missing.reverse();
        for path in missing {
            self.change_name(NameChange::Link(path.to_path_buf(), None));
        }
        Ok(())
    }

    pub fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.call("sync_dir")?;
        self.need_directory(Some(dir))?;
        // A rename out of another directory takes that directory's earlier changes with it.
        let mut dirs = BTreeSet::from([dir.to_path_buf()]);
        for change in self.name_changes.iter().rev() {
            if dirs.iter().any(|d| change.touches(d)) {
                dirs.extend(change.dirs());
            }
        }
        let (now, later) = std::mem::take(&mut self.name_changes)
            .into_iter()
            .partition(|c| dirs.iter().any(|d| c.touches(d)));
        self.name_changes = later;
        let now: Vec<NameChange> = now;
        now.iter().for_each(|c| c.apply(&mut self.durable_names));
        let gone: Vec<u64> = self
            .inodes
            .iter()
            .filter(|(_, i)| i.names == 0 && i.handles == 0)
            .map(|(n, _)| *n)
            .collect();
        gone.into_iter().for_each(|n| self.forget(n));
        Ok(())
    }

    pub fn space(&mut self) -> io::Result<(u64, u64)> {
        self.call("space")?;
        Ok((self.capacity.saturating_sub(self.used()), self.capacity))
    }

    /// Everything that was written.
    pub fn live(&self) -> Image {
        let bytes = |n: &u64| {
            self.inodes
                .get(n)
                .map(|i| i.live.clone())
                .unwrap_or_default()
        };
        Image {
            entries: self
                .names
                .iter()
                .map(|(p, n)| (p.clone(), n.as_ref().map(bytes)))
                .collect(),
        }
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(at, new) => {
            let end = *at as usize + new.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*at as usize..end].copy_from_slice(new);
        }
        Change::Zero(at, len) => {
            let from = (*at as usize).min(bytes.len());
            let to = (at.saturating_add(*len) as usize).min(bytes.len());
            bytes[from..to].fill(0);
        }
        Change::Length(len) => bytes.resize(*len as usize, 0),
    }
}
