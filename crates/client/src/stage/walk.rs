//! Finds what there is to do: the source's directories from the top, names in order, targets' directories made on the way.
use super::endpoint::{CHUNK, ListedName, NamedObject, ObjectRef};
use super::error::{StageError, StageErrorContext};
use super::hash::StableHash;
use super::report::count;
use super::task::{CopyTask, DirectoryPair, FilePiece, HardLink, source_stamp};
use super::worker::{NodeWorker, RunContext};
use forebay_server::Kind;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Names that are looked up together.
pub const NAMES_PER_LOOKUP: usize = 1024;

/// What must wait for the end.
#[derive(Debug, Default)]
pub struct WalkResult {
    /// Every directory, each after the one it is in.
    pub folders: Vec<Arc<DirectoryPair>>,
    /// Large files, whole.
    pub large: Vec<CopyTask>,
    /// Further names of files.
    pub links: Vec<HardLink>,
    /// Of all tasks and their nodes, in whatever order: processes whose walks saw the same have the same.
    pub digest: u64,
}

struct Walk<'a, F> {
    run: &'a RunContext,
    worker: &'a NodeWorker,
    found: WalkResult,
    /// Where each file with several names goes first, by file system and number.
    first_names: HashMap<(u64, u64), (Arc<DirectoryPair>, OsString)>,
    sink: F,
}

/// Walks all pairs, as `worker` sees the sides. `sink` takes a task and its node, and says whether to go on.
pub fn walk(worker: &NodeWorker, sink: impl FnMut(u16, CopyTask) -> bool) -> WalkResult {
    let run = &*worker.run;
    let mut walk = Walk {
        run,
        worker,
        found: WalkResult::default(),
        first_names: HashMap::new(),
        sink,
    };
    for pair in &run.pairs {
        match walk.pair(&pair.from, &pair.to) {
            Ok(()) => {}
            Err(StageError::Stopped) => break,
            Err(error) => run.walk_report.failed(&error),
        }
    }
    count(&run.walk_report.counters.all_found, 1);
    walk.found
}

impl<F: FnMut(u16, CopyTask) -> bool> Walk<'_, F> {
    fn pair(&mut self, from_path: &Path, to_path: &Path) -> Result<(), StageError> {
        let (from, to) = (&self.worker.from, &self.worker.to);
        let source = from.resolve(from_path).on_source("open", from_path)?;
        let missing = || io::Error::from(rustix::io::Errno::NOENT);
        let found = source.found.ok_or_else(missing);
        let (place, stat) = found.on_source("open", from_path)?;
        let target = to.resolve_target(to_path).on_target("open", to_path)?;
        if stat.kind != Kind::Dir {
            if let Some((_, there)) = &target.found
                && there.kind == Kind::Dir
            {
                let error = io::Error::new(
                    io::ErrorKind::IsADirectory,
                    "Is a directory; name the file in it",
                );
                return Err(error).on_target("write the file", to_path);
            }
            let parent = |path: &Path| path.parent().unwrap_or(path).to_path_buf();
            let folder = Arc::new(DirectoryPair {
                from: source.parent,
                to: target.parent,
                from_path: parent(from_path),
                to_path: parent(to_path),
            });
            let seen = NamedObject {
                place,
                stat,
                held: None,
            };
            return self.object(&folder, source.name, target.name, seen);
        }
        let into = match target.found {
            Some((into, there)) if there.kind == Kind::Dir => into,
            Some(_) => {
                let error = rustix::io::Errno::NOTDIR.into();
                return Err(error).on_target("make the directory", to_path);
            }
            None => {
                let made = to.mkdir(&target.parent, &target.name);
                made.on_target("make the directory", to_path)?.0
            }
        };
        self.tree(DirectoryPair {
            from: place,
            to: into,
            from_path: from_path.to_path_buf(),
            to_path: to_path.to_path_buf(),
        })
    }

    /// A directory with everything below it.
    fn tree(&mut self, top: DirectoryPair) -> Result<(), StageError> {
        let mut todo = vec![Arc::new(top)];
        while let Some(folder) = todo.pop() {
            count(&self.run.walk_report.counters.directories, 1);
            self.found.folders.push(folder.clone());
            let names = self.worker.from.list(&folder.from);
            let names = match names.on_source("list", &folder.from_path) {
                Ok(names) => names,
                Err(error) => {
                    self.run.walk_report.failed(&error);
                    continue;
                }
            };
            let names: Vec<ListedName> = names
                .into_iter()
                .filter(|n| !self.is_avoided(&folder, n))
                .collect();
            let first = todo.len();
            for names in names.chunks(NAMES_PER_LOOKUP) {
                let seen = self.worker.from.lookup_many(&folder.from, names);
                for (name, seen) in names.iter().zip(seen) {
                    match self.entry(&folder, &name.name, seen) {
                        Ok(below) => todo.extend(below),
                        Err(StageError::Stopped) => return Err(StageError::Stopped),
                        Err(error) => self.run.walk_report.failed(&error),
                    }
                }
            }
            // The first name is walked first.
            todo[first..].reverse();
        }
        Ok(())
    }

    /// Whether a name must not even be looked at; it is named.
    fn is_avoided(&self, folder: &DirectoryPair, name: &ListedName) -> bool {
        let ObjectRef::Path(dir) = &folder.from else {
            return false;
        };
        let object = ObjectRef::Path(dir.join(&name.name));
        let avoid = self.worker.from.is_avoided(&object);
        if avoid {
            let path = folder.from_path.join(&name.name);
            let what = "belongs to this service (its store or a mount); not copied";
            self.run.walk_report.skipped(&path, what);
        }
        avoid
    }

    /// One name. If it is a directory, returns it, to be walked next.
    fn entry(
        &mut self,
        folder: &Arc<DirectoryPair>,
        name: &OsStr,
        seen: io::Result<NamedObject>,
    ) -> Result<Option<Arc<DirectoryPair>>, StageError> {
        if self.run.stopped() {
            return Err(StageError::Stopped);
        }
        let path = || folder.from_path.join(name);
        let seen = match seen {
            // Removed since the directory was listed.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            seen => seen.on_source("open", &path())?,
        };
        if seen.stat.kind != Kind::Dir {
            self.object(folder, name.into(), name.into(), seen)?;
            return Ok(None);
        }
        let to_path = folder.to_path.join(name);
        let made = self.worker.to.mkdir(&folder.to, name);
        let (to, _) = made.on_target("make the directory", &to_path)?;
        Ok(Some(Arc::new(DirectoryPair {
            from: seen.place,
            to,
            from_path: path(),
            to_path,
        })))
    }

    /// Anything but a directory.
    fn object(
        &mut self,
        folder: &Arc<DirectoryPair>,
        name: OsString,
        target: OsString,
        seen: NamedObject,
    ) -> Result<(), StageError> {
        let NamedObject { place, stat, held } = seen;
        let task = CopyTask::new(folder, name, target, place, stat);
        if task.stat.kind == Kind::Socket {
            let path = task.source_path();
            self.run.walk_report.skipped(&path, "a socket; not copied");
            return Ok(());
        }
        if task.stat.nlink > 1 {
            match self.first_names.entry(task.stat.id) {
                Entry::Occupied(first) => {
                    let first = first.get().clone();
                    self.found.links.push(HardLink { task, first });
                    return Ok(());
                }
                Entry::Vacant(first) => _ = first.insert((folder.clone(), task.target.clone())),
            }
        }
        if task.stat.kind != Kind::File {
            return self.assign(task, held);
        }
        let counters = &self.run.walk_report.counters;
        count(&counters.found_files, 1);
        count(&counters.found_bytes, task.stat.bytes_to_copy());
        if task.stat.size <= self.run.options.large {
            return self.assign(task, held);
        }
        let mut start = 0;
        let mut index = 0;
        while start < task.stat.size {
            let end = (start + self.run.options.piece.max(CHUNK)).min(task.stat.size);
            let range = start..end;
            let mut part = task.clone();
            part.piece = Some(FilePiece { index, range });
            self.assign(part, None)?;
            (start, index) = (end, index + 1);
        }
        self.found.large.push(task);
        Ok(())
    }

    /// `held`: bytes of it by the member that stores them, if that is known.
    fn assign(
        &mut self,
        task: CopyTask,
        held: Option<BTreeMap<u16, u64>>,
    ) -> Result<(), StageError> {
        let held = match (self.run.nodes, task.stat.kind, held) {
            (2.., Kind::File, Some(held)) => held,
            (2.., Kind::File, None) => {
                // Who holds what is a hint: whatever is wrong with the file, its node will find and tell.
                let held = self.worker.from.holders(&task.from, task.range());
                held.unwrap_or_default()
            }
            _ => BTreeMap::new(),
        };
        let node = task.node(&held, self.run.nodes);
        let mut hash = StableHash::new(4)
            .number(task.journal_key())
            .number(node.into());
        if task.piece.is_some() {
            // Pieces of one file must be of one state of it, whoever copies them.
            hash = hash.number(source_stamp(&task.stat));
        }
        self.found.digest = self.found.digest.wrapping_add(hash.finish());
        match (self.sink)(node, task) {
            true => Ok(()),
            false => Err(StageError::Stopped),
        }
    }
}
