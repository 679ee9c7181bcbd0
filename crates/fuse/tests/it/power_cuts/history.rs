//! A random history on the mounts of a service, cut at many points, against a model that knows what was promised.
//!
//! One thread works, so at a cut at most one operation is under way. After each operation the model keeps what every file
//! holds and which entries name it, and where in the disk's events that was. A sync of a file (fsync through each node that
//! wrote it, then fsync of its directories up to the root) promises its content and its names as they are then; at durability `disk`
//! every operation does. After a cut:
//! - a file is named as it was at some moment since its last promise, and an entry names what it named at such a moment;
//! - each byte is as it was at some moment since the promise, and so is the size, or between such sizes;
//! - all of a file with a promise can be read; every entry leads to something.
use super::rig::{Rig, Setup};
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const PAGE: usize = 4096;
const DIRS: u64 = 6;
const NAMES: u64 = 5;

type Id = u64;
/// A directory and a name in it.
type Place = (Id, String);

#[derive(Clone, Default)]
struct State {
    /// What each place names; directories too.
    entries: BTreeMap<Place, Id>,
    /// Directories, by number: where they are.
    dirs: BTreeMap<Id, Place>,
    content: BTreeMap<Id, Vec<u8>>,
}

impl State {
    fn path(&self, dir: Id, root: Id) -> PathBuf {
        if dir == root {
            return PathBuf::new();
        }
        let (parent, name) = &self.dirs[&dir];
        self.path(*parent, root).join(name)
    }
    fn places(&self, id: Id) -> BTreeSet<Place> {
        let mine = self.entries.iter().filter(|(_, i)| **i == id);
        mine.map(|(place, _)| place.clone()).collect()
    }
}

struct History {
    rig: Rig,
    setup: Setup,
    random: Random,
    root: Id,
    now: State,
    /// The state after each operation, and the disk's events by then.
    moments: Vec<(usize, State)>,
    /// Since which moment the file's content and names, and the directory's entries, are promised.
    promised: Vec<(usize, Id)>,
    /// Nodes that wrote a file since its last sync.
    writers: BTreeMap<Id, BTreeSet<usize>>,
    said: Vec<String>,
}

pub fn run(seed: u64, nodes: u16, disk: bool, cuts: u64) {
    let setup = Setup { nodes, disk };
    let rig = Rig::start();
    let served = rig.serve(&rig.store(), setup);
    let root = fs::metadata(served.mount(0)).unwrap().ino();
    let mut history = History {
        setup,
        random: Random::new(seed * 4 + u64::from(nodes) + 100 * u64::from(disk)),
        root,
        now: State::default(),
        moments: Vec::new(),
        promised: Vec::new(),
        writers: BTreeMap::new(),
        said: Vec::new(),
        rig,
    };
    let mounts: Vec<PathBuf> = (0..usize::from(nodes))
        .map(|n| served.mount(n).to_path_buf())
        .collect();
    for d in 0..DIRS {
        let name = format!("d{d}");
        fs::create_dir(mounts[0].join(&name)).unwrap();
        let id = fs::metadata(mounts[0].join(&name)).unwrap().ino();
        history.now.dirs.insert(id, (root, name.clone()));
        history.now.entries.insert((root, name), id);
    }
    for dir in history.now.dirs.values() {
        File::open(mounts[0].join(&dir.1))
            .unwrap()
            .sync_all()
            .unwrap();
    }
    File::open(&mounts[0]).unwrap().sync_all().unwrap();
    let first: Vec<Id> = history.now.dirs.keys().copied().chain([root]).collect();
    history.moment();
    history.promised.extend(first.into_iter().map(|id| (0, id)));
    for _ in 0..seeds::count(90, 150) {
        history.step(&mounts);
        history.write_back(served.store());
        history.moment();
    }
    // What is reclaimed in the background belongs to the history too.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    history.moment();
    let recording = history.rig.end(served);
    let (begin, end) = (history.moments[0].0, history.moments.last().unwrap().0);
    for cut in 0..cuts {
        let at = match cut {
            0 => end,
            _ => begin + history.random.below((end - begin + 1) as u64) as usize,
        };
        let (loss, after) = history.rig.cut(&recording, at, seed * 1000 + cut, setup);
        let what = format!("seed {seed}, {setup:?}, cut at {at} of {begin}..{end}, {loss:?}");
        let mut wrong = history.check(after.mount(0), at);
        wrong.extend(history.rig.end_of_cut(after));
        if !wrong.is_empty() {
            for (i, said) in history.said.iter().enumerate() {
                println!("{i} (by {}): {said}", history.moments[i + 1].0);
            }
            panic!("{what}: {wrong:#?}");
        }
    }
}

impl History {
    fn moment(&mut self) {
        let at = self.rig.position();
        self.moments.push((at, self.now.clone()));
        if self.setup.disk {
            let last = self.moments.len() - 1;
            let state = &self.now;
            let all = state
                .content
                .keys()
                .chain(state.dirs.keys())
                .chain([&self.root]);
            self.promised.extend(all.map(|id| (last, *id)));
        }
    }

    /// The kernel writes back what it likes: some files of the store, without a flush.
    fn write_back(&mut self, store: &Path) {
        let mut files = Vec::new();
        let mut dirs = vec![store.to_path_buf()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    true => dirs.push(entry.path()),
                    false => files.push(entry.path()),
                }
            }
        }
        files.sort();
        for path in files {
            if self.random.below(6) == 0
                && let Ok(file) = File::open(&path)
            {
                // SAFETY: a plain system call on an open descriptor.
                unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, 7) };
            }
        }
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        match from {
            [] => None,
            _ => Some(self.random.pick(from).clone()),
        }
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = 1 + self.random.below(most);
        let byte = 1 + self.random.below(255) as u8;
        vec![byte; len as usize]
    }

    fn step(&mut self, mounts: &[PathBuf]) {
        let node = self.random.below(mounts.len() as u64) as usize;
        let m = &mounts[node];
        let (root, now) = (self.root, self.now.clone());
        let at = |place: &Place| m.join(now.path(place.0, root)).join(&place.1);
        let dirs: Vec<Id> = now.dirs.keys().copied().collect();
        let files: Vec<Place> = now
            .entries
            .iter()
            .filter(|(_, id)| now.content.contains_key(id))
            .map(|(place, _)| place.clone())
            .collect();
        let dir = self.pick(&dirs).unwrap_or(root);
        let free: Place = (dir, format!("f{}", self.random.below(NAMES)));
        let file = self.pick(&files);
        let what = self.random.below(100);
        let said = match (what, file) {
            (0..16, _) | (_, None) if !now.entries.contains_key(&free) => {
                let bytes = self.bytes(20_000);
                let path = at(&free);
                File::create(&path).unwrap().write_all(&bytes).unwrap();
                let id = fs::metadata(&path).unwrap().ino();
                let said = format!("create {free:?} = {id}, {} x {}", bytes.len(), bytes[0]);
                self.now.entries.insert(free, id);
                self.now.content.insert(id, bytes);
                self.writers.entry(id).or_default().insert(node);
                said
            }
            (16..42, Some(place)) => {
                let id = now.entries[&place];
                let old = &now.content[&id];
                let bytes = self.bytes(9000);
                let (how, offset) = match self.random.below(4) {
                    3 => ("rows", self.random.below(old.len() as u64 + 1) as usize),
                    0 => ("append", old.len()),
                    1 => ("rewrite", 0),
                    _ => (
                        "overwrite",
                        self.random.below(old.len() as u64 + 1) as usize,
                    ),
                };
                let mut options = File::options();
                let file = options
                    .write(true)
                    .truncate(how == "rewrite")
                    .open(at(&place))
                    .unwrap();
                // Rows become a pattern.
                let rows: Vec<usize> = match how {
                    "rows" => (0..24).map(|k| offset + k * 300).collect(),
                    _ => vec![offset],
                };
                let bytes = match how {
                    "rows" => bytes[..bytes.len().min(100)].to_vec(),
                    _ => bytes,
                };
                for at in &rows {
                    file.write_all_at(&bytes, *at as u64).unwrap();
                }
                drop(file);
                if how == "rewrite" {
                    // Between: a moment of its own, that a cut may show.
                    self.now.content.insert(id, Vec::new());
                    self.moments.push((0, self.now.clone()));
                    let last = self.moments.len() - 1;
                    self.moments[last].0 = self.moments[last - 1].0;
                    self.said.push("(cut to nothing)".into());
                    self.now.content.insert(id, bytes.clone());
                } else {
                    let content = self.now.content.get_mut(&id).unwrap();
                    for at in rows {
                        content.resize(content.len().max(at + bytes.len()), 0);
                        content[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                }
                self.writers.entry(id).or_default().insert(node);
                format!(
                    "{how} {place:?} = {id} at {offset}, {} x {}",
                    bytes.len(),
                    bytes[0]
                )
            }
            (42..47, Some(place)) => {
                let id = now.entries[&place];
                let len = self.random.below(22_000) as usize;
                crate::common::truncate(&at(&place), len as i64).unwrap();
                self.now.content.get_mut(&id).unwrap().resize(len, 0);
                self.writers.entry(id).or_default().insert(node);
                format!("truncate {place:?} = {id} to {len}")
            }
            (47..60, Some(place)) => {
                let id = now.entries[&place];
                self.sync(mounts, id);
                format!("sync {place:?} = {id}")
            }
            (60..76, Some(place)) => {
                let to: Place = (dir, format!("f{}", self.random.below(NAMES)));
                let id = now.entries[&place];
                if now
                    .entries
                    .get(&to)
                    .is_some_and(|i| *i == id || now.dirs.contains_key(i))
                {
                    return self.said.push("nothing".into());
                }
                fs::rename(at(&place), at(&to)).unwrap();
                self.now.entries.remove(&place);
                self.now.entries.insert(to.clone(), id);
                format!(
                    "rename {place:?} = {id} to {to:?}, over {:?}",
                    now.entries.get(&to)
                )
            }
            (76..82, Some(place)) => {
                // The way of editors: a new file, synced, takes the name.
                let bytes = self.bytes(12_000);
                let temporary: Place = (place.0, "tmp".into());
                let mut file = File::create(at(&temporary)).unwrap();
                file.write_all(&bytes).unwrap();
                file.sync_all().unwrap();
                let id = file.metadata().unwrap().ino();
                self.now.content.insert(id, bytes);
                self.now.entries.insert(temporary.clone(), id);
                self.said
                    .push(format!("create and fsync {temporary:?} = {id}"));
                self.moment();
                self.promised.push((self.moments.len() - 1, id | CONTENT));
                fs::rename(at(&temporary), at(&place)).unwrap();
                self.now.entries.remove(&temporary);
                self.now.entries.insert(place.clone(), id);
                format!("rename it over {place:?}")
            }
            (82..88, Some(place)) => {
                fs::remove_file(at(&place)).unwrap();
                self.now.entries.remove(&place);
                format!("unlink {place:?} = {}", now.entries[&place])
            }
            (88..92, Some(place)) if !now.entries.contains_key(&free) => {
                fs::hard_link(at(&place), at(&free)).unwrap();
                let id = now.entries[&place];
                self.now.entries.insert(free.clone(), id);
                format!("link {place:?} = {id} as {free:?}")
            }
            (92..98, _) => {
                let place: Place = (dir, format!("s{}", self.random.below(3)));
                if now.entries.contains_key(&place) {
                    return self.said.push("nothing".into());
                }
                fs::create_dir(at(&place)).unwrap();
                let id = fs::metadata(at(&place)).unwrap().ino();
                self.now.dirs.insert(id, place.clone());
                self.now.entries.insert(place.clone(), id);
                format!("mkdir {place:?} = {id}")
            }
            (98.., _) => {
                let subs: Vec<Id> = now
                    .dirs
                    .iter()
                    .filter(|(_, p)| p.0 != root)
                    .map(|(d, _)| *d)
                    .collect();
                let Some(sub) = self.pick(&subs) else {
                    return self.said.push("nothing".into());
                };
                let to: Place = (root, format!("moved{}", self.said.len()));
                let from = now.dirs[&sub].clone();
                fs::rename(at(&from), at(&to)).unwrap();
                self.now.entries.remove(&from);
                self.now.entries.insert(to.clone(), sub);
                self.now.dirs.insert(sub, to.clone());
                format!("rename directory {from:?} = {sub} to {to:?}")
            }
            _ => "nothing".into(),
        };
        self.said.push(said);
    }

    /// Fsync of a file through each node that wrote it, and of the directories that name it, up to the root.
    fn sync(&mut self, mounts: &[PathBuf], id: Id) {
        let places = self.now.places(id);
        let first = places.first().unwrap().clone();
        let path = self.now.path(first.0, self.root).join(&first.1);
        let mut nodes = self.writers.remove(&id).unwrap_or_default();
        nodes.insert(0);
        for node in nodes {
            File::open(mounts[node].join(&path))
                .unwrap()
                .sync_all()
                .unwrap();
        }
        let mut synced = BTreeSet::from([id]);
        for (dir, _) in places {
            let mut dir = dir;
            loop {
                synced.insert(dir);
                let path = mounts[0].join(self.now.path(dir, self.root));
                File::open(path).unwrap().sync_all().unwrap();
                if dir == self.root {
                    break;
                }
                dir = self.now.dirs[&dir].0;
            }
        }
        // The moment that is noted behind this operation.
        let moment = self.moments.len();
        self.promised
            .extend(synced.into_iter().map(|id| (moment, id)));
    }

    /// What is wrong after a cut behind `at` events.
    fn check(&self, mount: &Path, at: usize) -> Vec<String> {
        let done = self.moments.iter().rposition(|(by, _)| *by <= at).unwrap();
        // What was under way then may have happened: all moments of the next operation.
        let next = self.moments[done + 1..].first().map_or(done, |m| {
            let by = m.0;
            done + self.moments[done + 1..]
                .iter()
                .take_while(|(b, _)| *b == by)
                .count()
        });
        let since = |id: Id| {
            let mut promises = self.promised.iter().filter(|(m, i)| *i == id && *m <= done);
            promises.next_back().map(|(m, _)| *m)
        };
        let states = |from: usize| self.moments[from..=next].iter().map(|(_, state)| state);
        let mut wrong = Vec::new();
        let mut found: BTreeMap<Place, Id> = BTreeMap::new();
        let mut paths: BTreeMap<Id, PathBuf> = BTreeMap::new();
        let mut dirs = vec![(self.root, mount.to_path_buf())];
        while let Some((dir, path)) = dirs.pop() {
            for entry in fs::read_dir(&path).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                match fs::symlink_metadata(entry.path()) {
                    Err(e) => wrong.push(format!("{:?} leads nowhere: {e}", entry.path())),
                    Ok(meta) => {
                        found.insert((dir, name), meta.ino());
                        match meta.is_dir() {
                            true => dirs.push((meta.ino(), entry.path())),
                            false => drop(paths.insert(meta.ino(), entry.path())),
                        }
                    }
                }
            }
        }
        let places = |id: Id| -> BTreeSet<Place> {
            let mine = found.iter().filter(|(_, i)| **i == id);
            mine.map(|(place, _)| place.clone()).collect()
        };
        // Names.
        let all: BTreeSet<Place> = states(0)
            .flat_map(|s| s.entries.keys().cloned())
            .chain(found.keys().cloned())
            .collect();
        for place in all {
            let Some(from) = since(place.0) else { continue };
            let now = found.get(&place);
            if !states(from).any(|s| s.entries.get(&place) == now) {
                wrong.push(format!("{place:?} names {now:?}, which it did not since moment {from} (done {done}, next {next})"));
            }
        }
        let ids: BTreeSet<Id> = states(0).flat_map(|s| s.content.keys().copied()).collect();
        for id in ids {
            let now = places(id);
            match since(id) {
                Some(from) if !states(from).any(|s| s.places(id) == now) => {
                    wrong.push(format!("{id} is at {now:?}, where it was not since moment {from} (done {done}, next {next})"));
                }
                None if now.len() > 1 && !states(0).any(|s| s.places(id) == now) => {
                    wrong.push(format!("{id} is at {now:?}, where it never was"));
                }
                _ => {}
            }
            let Some(path) = paths.get(&id) else { continue };
            let Some(from) = since(id).max(since(id | CONTENT)) else {
                continue;
            };
            let versions: Vec<&Vec<u8>> = states(from).filter_map(|s| s.content.get(&id)).collect();
            if let Some(text) = content(path, &versions) {
                wrong.push(format!(
                    "{id}, {path:?}: {text} (promised at {from}, done {done}, next {next})"
                ));
            }
        }
        wrong
    }
}

/// A promise of content alone, as fsync of a file without its directory.
const CONTENT: Id = 1 << 63;

/// What is wrong with a file that was as one of these since its content, the first of them, was promised.
fn content(path: &Path, versions: &[&Vec<u8>]) -> Option<String> {
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len() as usize;
    let least = versions.iter().map(|v| v.len()).min()?;
    let most = versions.iter().map(|v| v.len()).max()?;
    if size < least || size > most {
        return Some(format!("size {size}, not {least}..={most}"));
    }
    let promised = versions[0].len();
    for start in (0..size).step_by(PAGE) {
        let mut page = vec![0; PAGE.min(size - start)];
        if let Err(e) = file.read_exact_at(&mut page, start as u64) {
            return Some(format!(
                "page at {start}: {e}; {promised} bytes were promised, what came later may be missing, not unreadable"
            ));
        }
        for (i, byte) in page.iter().enumerate() {
            let at = start + i;
            let could = versions.iter().any(|v| match v.get(at) {
                Some(b) => b == byte,
                // Behind its end there is nothing; what is made longer later begins with zeros.
                None => *byte == 0,
            });
            if !could {
                return Some(format!("byte {at} of {size} is {byte}"));
            }
        }
    }
    None
}
