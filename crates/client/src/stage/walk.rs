//! Finding what there is to do: the source's directories from the top, names in order, targets' directories made on the way.
use super::hash::Hash;
use super::job::{Job, Side};
use super::report::{Step, Trouble, count};
use super::task::{Folder, Link, Piece, Task, stamp};
use super::tree::{Name, Place, Seen, What};
use super::{partition, tree};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Names looked at together.
pub(super) const LOOK: usize = 1024;

/// What must wait for the end.
#[derive(Debug, Default)]
pub struct Found {
    /// Every directory, each after the one it is in.
    pub folders: Vec<Arc<Folder>>,
    /// Large files, whole.
    pub large: Vec<Task>,
    /// Further names of files.
    pub links: Vec<Link>,
    /// Of all tasks and their nodes, in whatever order: processes whose walks saw the same have the same.
    pub digest: u64,
}

struct Walk<'a, F> {
    job: &'a Job,
    side: &'a Side,
    found: Found,
    /// Where each file with several names goes first, by file system and number.
    several: HashMap<(u64, u64), (Arc<Folder>, OsString)>,
    sink: F,
}

/// Walks all pairs. `sink` takes a task and its node, and says whether to go on.
pub fn walk(job: &Job, sink: impl FnMut(u16, Task) -> bool) -> Found {
    let Some(side) = job.sides.first() else {
        return Found::default();
    };
    let mut walk = Walk {
        job,
        side,
        found: Found::default(),
        several: HashMap::new(),
        sink,
    };
    for pair in &job.pairs {
        match walk.pair(&pair.from, &pair.to) {
            Ok(()) => {}
            Err(Trouble::Stopped) => break,
            Err(trouble) => job.seen.failed(&trouble),
        }
    }
    count(&job.seen.counters.all_found, 1);
    walk.found
}

impl<F: FnMut(u16, Task) -> bool> Walk<'_, F> {
    fn pair(&mut self, from_path: &Path, to_path: &Path) -> Result<(), Trouble> {
        let (from, to) = (&self.side.from, &self.side.to);
        let source = from.resolve(from_path).from("open", from_path)?;
        let missing = || std::io::Error::from(rustix::io::Errno::NOENT);
        let (place, stat) = source.found.ok_or_else(missing).from("open", from_path)?;
        let target = to.resolve_target(to_path).to("open", to_path)?;
        if stat.what != What::Dir {
            if let Some((_, there)) = &target.found
                && there.what == What::Dir
            {
                let error = std::io::Error::new(
                    std::io::ErrorKind::IsADirectory,
                    "Is a directory; name the file in it",
                );
                return Err(error).to("write the file", to_path);
            }
            let parent = |path: &Path| path.parent().unwrap_or(path).to_path_buf();
            let folder = Arc::new(Folder {
                from: source.parent,
                to: target.parent,
                from_path: parent(from_path),
                to_path: parent(to_path),
            });
            let seen = Seen {
                place,
                stat,
                held: None,
            };
            return self.object(&folder, source.name, target.name, seen);
        }
        let into = match target.found {
            Some((into, there)) if there.what == What::Dir => into,
            Some(_) => {
                let error = rustix::io::Errno::NOTDIR.into();
                return Err(error).to("make the directory", to_path);
            }
            None => {
                let made = to.mkdir(&target.parent, &target.name);
                made.to("make the directory", to_path)?.0
            }
        };
        self.tree(Folder {
            from: place,
            to: into,
            from_path: from_path.to_path_buf(),
            to_path: to_path.to_path_buf(),
        })
    }

    /// A directory with everything below it.
    fn tree(&mut self, top: Folder) -> Result<(), Trouble> {
        let mut todo = vec![Arc::new(top)];
        while let Some(folder) = todo.pop() {
            count(&self.job.seen.counters.directories, 1);
            self.found.folders.push(folder.clone());
            let names = match self
                .side
                .from
                .list(&folder.from)
                .from("list", &folder.from_path)
            {
                Ok(names) => names,
                Err(trouble) => {
                    self.job.seen.failed(&trouble);
                    continue;
                }
            };
            let names: Vec<Name> = names
                .into_iter()
                .filter(|n| !self.avoid(&folder, n))
                .collect();
            let first = todo.len();
            for names in names.chunks(LOOK) {
                let seen = self.side.from.look(&folder.from, names);
                for (name, seen) in names.iter().zip(seen) {
                    match self.entry(&folder, &name.name, seen) {
                        Ok(below) => todo.extend(below),
                        Err(Trouble::Stopped) => return Err(Trouble::Stopped),
                        Err(trouble) => self.job.seen.failed(&trouble),
                    }
                }
            }
            // The first name is walked first.
            todo[first..].reverse();
        }
        Ok(())
    }

    /// Whether a name must not even be looked at; it is named.
    fn avoid(&self, folder: &Folder, name: &Name) -> bool {
        let Place::Path(dir) = &folder.from else {
            return false;
        };
        let avoid = self.side.from.avoid(&Place::Path(dir.join(&name.name)));
        if avoid {
            let path = folder.from_path.join(&name.name);
            let what = "belongs to this service (its store or a mount); not copied";
            self.job.seen.skipped(&path, what);
        }
        avoid
    }

    /// One name; a directory is given back.
    fn entry(
        &mut self,
        folder: &Arc<Folder>,
        name: &OsStr,
        seen: io::Result<Seen>,
    ) -> Result<Option<Arc<Folder>>, Trouble> {
        if self.job.stopped() {
            return Err(Trouble::Stopped);
        }
        let path = || folder.from_path.join(name);
        let seen = match seen {
            // Removed since the directory was listed.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            seen => seen.from("open", &path())?,
        };
        if seen.stat.what != What::Dir {
            self.object(folder, name.into(), name.into(), seen)?;
            return Ok(None);
        }
        let to_path = folder.to_path.join(name);
        let made = self.side.to.mkdir(&folder.to, name);
        let (to, _) = made.to("make the directory", &to_path)?;
        Ok(Some(Arc::new(Folder {
            from: seen.place,
            to,
            from_path: path(),
            to_path,
        })))
    }

    /// Anything but a directory.
    fn object(
        &mut self,
        folder: &Arc<Folder>,
        name: OsString,
        target: OsString,
        seen: Seen,
    ) -> Result<(), Trouble> {
        let Seen { place, stat, held } = seen;
        let task = Task::new(folder, name, target, place, stat);
        if task.stat.what == What::Socket {
            let path = task.source_path();
            self.job.seen.skipped(&path, "a socket; not copied");
            return Ok(());
        }
        if task.stat.nlink > 1 {
            let here = (folder.clone(), task.target.clone());
            match self.several.get(&task.stat.id) {
                Some(first) => {
                    let first = first.clone();
                    self.found.links.push(Link { task, first });
                    return Ok(());
                }
                None => {
                    self.several.insert(task.stat.id, here);
                }
            }
        }
        if task.stat.what != What::File {
            return self.give(task, held);
        }
        self.job.found(1, task.stat.data());
        if task.stat.size <= self.job.options.large {
            return self.give(task, held);
        }
        let mut start = 0;
        let mut index = 0;
        while start < task.stat.size {
            let end = (start + self.job.options.piece.max(tree::CHUNK)).min(task.stat.size);
            let piece = Some(Piece {
                index,
                range: start..end,
            });
            let task = Task {
                piece,
                ..task.clone()
            };
            self.give(task, None)?;
            (start, index) = (end, index + 1);
        }
        self.found.large.push(task);
        Ok(())
    }

    /// `held`: bytes of it by the member that stores them, if that is known.
    fn give(&mut self, task: Task, held: Option<BTreeMap<u16, u64>>) -> Result<(), Trouble> {
        let held = match (self.job.nodes, task.stat.what, held) {
            (2.., What::File, Some(held)) => held,
            (2.., What::File, None) => {
                let range = task
                    .piece
                    .as_ref()
                    .map_or(0..task.stat.size, |p| p.range.clone());
                // Who holds what is a hint: whatever is wrong with the file, its node will find and tell.
                self.side
                    .from
                    .holders(&task.from, range)
                    .unwrap_or_default()
            }
            _ => BTreeMap::new(),
        };
        let node = partition::node(&task, &held, self.job.nodes);
        let mut hash = Hash::new(4).number(task.record()).number(node.into());
        if task.piece.is_some() {
            // Pieces of one file must be of one state of it, whoever copies them.
            hash = hash.number(stamp(&task.stat));
        }
        self.found.digest = self.found.digest.wrapping_add(hash.end());
        match (self.sink)(node, task) {
            true => Ok(()),
            false => Err(Trouble::Stopped),
        }
    }
}
