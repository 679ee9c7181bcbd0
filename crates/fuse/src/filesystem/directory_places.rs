//! The parent and name of each directory that the kernel knows, and whether the kernel may still have it elsewhere.
//!
//! Invariant: a directory is kept as long as the kernel knows its inode: answers that named it are
//! counted as the kernel counts them (`nlookup`), and `FORGET` subtracts its count.
use forebay_server::Fid;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Threads remembered that may look up again; they end without a word, so all are forgotten when there are more.
const MAX_TOLD_THREADS: usize = 1024;
/// Depth of a directory that is looked up, at most.
const MAX_DEPTH: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct DirectoryPlace {
    parent: Fid,
    name: Arc<[u8]>,
}

impl DirectoryPlace {
    fn new(parent: Fid, name: &OsStr) -> DirectoryPlace {
        DirectoryPlace {
            parent,
            name: name.as_bytes().into(),
        }
    }
}

struct KnownDirectory {
    place: DirectoryPlace,
    /// The kernel may have it elsewhere still.
    moved: bool,
    /// Answers that named it.
    answers: u64,
}

#[derive(Default)]
struct DirectoryTable {
    known: HashMap<Fid, KnownDirectory>,
    /// Who was found at a place last.
    at: HashMap<DirectoryPlace, Fid>,
    /// Threads that were told of a directory that the kernel may have elsewhere, and that directory.
    told: HashMap<u32, Fid>,
}

impl DirectoryTable {
    /// `fid` is at `place`, if the kernel knows it at all. The kernel `heard`: it has it there itself.
    fn put(&mut self, fid: Fid, place: DirectoryPlace, heard: bool) {
        let Some(known) = self.known.get_mut(&fid) else {
            return;
        };
        if known.place != place {
            if self.at.get(&known.place) == Some(&fid) {
                self.at.remove(&known.place);
            }
            known.place = place.clone();
            known.moved = !heard;
        }
        self.at.insert(place, fid);
    }

    /// From the root of the mount.
    fn path(&self, fid: Fid) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = fid;
        while at != Fid::ROOT {
            let place = &self.known.get(&at)?.place;
            names.push(OsStr::from_bytes(&place.name));
            at = place.parent;
            // Moves that the kernel has not heard of may look like a loop.
            if names.len() > MAX_DEPTH {
                return None;
            }
        }
        Some(names.iter().rev().collect())
    }
}

/// A directory to look up before a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MovedDirectory {
    pub fid: Fid,
    pub path: PathBuf,
}

/// See the head of this file.
#[derive(Default)]
pub(super) struct DirectoryPlaces(Mutex<DirectoryTable>);

impl DirectoryPlaces {
    /// A request is answered with this directory at this name: one of `thread`, or of the mount's own (`None`).
    pub fn found(&self, fid: Fid, parent: Fid, name: &OsStr, thread: Option<u32>) {
        let place = DirectoryPlace::new(parent, name);
        let mut inner = self.0.lock();
        let inner = &mut *inner;
        let known = inner.known.entry(fid).or_insert_with(|| KnownDirectory {
            place: place.clone(),
            moved: false,
            answers: 0,
        });
        known.answers += 1;
        inner.put(fid, place, false);
        if let Some(thread) = thread
            && inner.known.get(&fid).is_some_and(|known| known.moved)
        {
            if inner.told.len() >= MAX_TOLD_THREADS {
                inner.told.clear();
            }
            inner.told.insert(thread, fid);
        }
    }

    /// A program of this mount has renamed something, or exchanged two names: the kernel moves what it has. The directories
    /// that have another parent now, and where they are.
    pub fn renamed(
        &self,
        from: (Fid, &OsStr),
        to: (Fid, &OsStr),
        exchanged: bool,
    ) -> Vec<(Fid, PathBuf)> {
        let (from, to) = (
            DirectoryPlace::new(from.0, from.1),
            DirectoryPlace::new(to.0, to.1),
        );
        let parents = (from.parent, to.parent);
        let mut inner = self.0.lock();
        let (moved, other) = (inner.at.remove(&from), inner.at.remove(&to));
        let other = other.filter(|_| exchanged);
        for (fid, place) in [(moved, to), (other, from)] {
            if let Some(fid) = fid {
                inner.put(fid, place, true);
            }
        }
        let elsewhere = [moved, other].into_iter().flatten();
        elsewhere
            .filter(|_| parents.0 != parents.1)
            .filter_map(|fid| Some((fid, inner.path(fid)?)))
            .collect()
    }

    /// Another node says that a directory is at this path now. Whether the kernel may have it elsewhere.
    pub fn is_elsewhere(&self, fid: Fid, path: &Path) -> bool {
        let inner = self.0.lock();
        let Some(known) = inner.known.get(&fid) else {
            return false;
        };
        known.moved || inner.path(fid).is_none_or(|own| own != path)
    }

    /// The kernel has looked the path up: if that is where the directory is, it has it there.
    pub fn looked_up(&self, fid: Fid, path: &Path) {
        let mut inner = self.0.lock();
        if inner.path(fid).is_some_and(|own| own == path)
            && let Some(known) = inner.known.get_mut(&fid)
        {
            known.moved = false;
        }
    }

    /// A request is answered with this directory, and not at a name.
    pub fn answered(&self, fid: Fid) {
        if let Some(known) = self.0.lock().known.get_mut(&fid) {
            known.answers += 1;
        }
    }

    /// What `thread` was told of last, if the kernel may still have it elsewhere.
    pub fn due(&self, thread: u32) -> Option<MovedDirectory> {
        let mut inner = self.0.lock();
        if inner.told.is_empty() {
            return None;
        }
        let fid = inner.told.remove(&thread)?;
        let path = inner.path(fid)?;
        let moved = inner.known.get(&fid)?.moved;
        moved.then_some(MovedDirectory { fid, path })
    }

    /// The kernel forgets this many replies that named the directory.
    pub fn forget(&self, fid: Fid, answers: u64) {
        let mut inner = self.0.lock();
        if let Some(known) = inner.known.get_mut(&fid) {
            known.answers = known.answers.saturating_sub(answers);
            if known.answers == 0 {
                let place = known.place.clone();
                inner.known.remove(&fid);
                if inner.at.get(&place) == Some(&fid) {
                    inner.at.remove(&place);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Fid = Fid(10);
    const B: Fid = Fid(11);
    const X: Fid = Fid(12);

    fn found(places: &DirectoryPlaces, fid: Fid, parent: Fid, name: &str, thread: u32) {
        places.found(fid, parent, OsStr::new(name), Some(thread));
    }

    #[test]
    fn the_thread_that_is_told_of_a_moved_directory_has_it_looked_up_once() {
        let places = DirectoryPlaces::default();
        found(&places, A, Fid::ROOT, "a", 1);
        found(&places, B, Fid::ROOT, "b", 1);
        found(&places, X, A, "x", 1);
        found(&places, X, A, "x", 1);
        assert_eq!(places.due(1), None);
        found(&places, X, B, "y", 2);
        assert_eq!(places.due(1), None);
        let moved = places.due(2).unwrap();
        assert_eq!(moved.path, PathBuf::from("b/y"));
        assert_eq!(places.due(2), None);
        // Not looked up yet, so the next one who hears of it has to.
        found(&places, X, B, "y", 3);
        assert_eq!(places.due(3).as_ref(), Some(&moved));
        places.looked_up(moved.fid, &moved.path);
        found(&places, X, B, "y", 3);
        assert_eq!(places.due(3), None);
    }

    #[test]
    fn what_the_kernel_forgets_is_forgotten() {
        let places = DirectoryPlaces::default();
        found(&places, A, Fid::ROOT, "a", 1);
        found(&places, X, A, "x", 1);
        found(&places, X, Fid::ROOT, "x", 1);
        places.forget(X, 1);
        assert!(places.due(1).is_some());
        places.forget(X, 1);
        places.forget(X, 1);
        places.forget(A, 7);
        let inner = places.0.lock();
        assert!(inner.known.is_empty() && inner.at.is_empty());
        drop(inner);
        // At another name later it is new to the kernel.
        found(&places, X, A, "z", 1);
        assert_eq!(places.due(1), None);
    }

    #[test]
    fn what_a_program_of_the_mount_renames_has_not_moved_for_the_kernel() {
        let places = DirectoryPlaces::default();
        let (x, y) = (OsStr::new("x"), OsStr::new("y"));
        found(&places, A, Fid::ROOT, "a", 1);
        found(&places, B, Fid::ROOT, "b", 1);
        found(&places, X, A, "x", 1);
        let moved = places.renamed((A, x), (B, y), false);
        assert_eq!(moved, [(X, PathBuf::from("b/y"))]);
        assert!(!places.is_elsewhere(X, Path::new("b/y")));
        assert!(places.is_elsewhere(X, Path::new("a/x")));
        assert_eq!(places.renamed((B, y), (B, x), false), []);
        assert_eq!(places.renamed((B, x), (B, y), false), []);
        found(&places, X, B, "y", 1);
        assert_eq!(places.due(1), None);
        places.renamed((B, y), (Fid::ROOT, OsStr::new("a")), true);
        found(&places, X, Fid::ROOT, "a", 1);
        found(&places, A, B, "y", 1);
        assert_eq!(places.due(1), None);
        // A file that nobody noted.
        places.renamed((B, x), (A, x), false);
        found(&places, X, A, "x", 1);
        assert!(places.due(1).is_some());
    }

    #[test]
    fn places_that_seem_to_be_in_a_loop_have_no_path() {
        let places = DirectoryPlaces::default();
        found(&places, A, B, "a", 1);
        found(&places, B, A, "b", 1);
        found(&places, B, A, "c", 1);
        assert_eq!(places.due(1), None);
    }
}
