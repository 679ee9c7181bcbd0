//! Random histories through three kernel mounts, or through the one of a service of one member, against a plain model of the stated
//! semantics.
//!
//! The model: a tree of names over files; a file has its published bytes, and per node the writes that node has not
//! published. A node sees the published bytes with its own writes on top. Closing, fsync and truncate on a node publish
//! everything it has written to that file, in order.
//!
//! The kernel tells of the end of a handle some time after its close, and that publishes, too; publishing early is allowed.
//! So another node may see any beginning of the unpublished writes. What two nodes' publications in an unknown order would
//! give cannot be checked: before a node changes a file, the test has the other nodes fsync theirs.
use crate::common::{Harness, Setup};
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::seeds;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// At most.
const NODES: usize = 3;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const DIRS: [&str; 3] = ["", "x/", "y/"];

#[derive(Default)]
struct Content {
    published: Vec<u8>,
    /// Per node: unpublished writes in order.
    pending: [Vec<(usize, Vec<u8>)>; NODES],
}

fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if bytes.len() < at + data.len() {
        bytes.resize(at + data.len(), 0);
    }
    bytes[at..at + data.len()].copy_from_slice(data);
}

impl Content {
    fn seen(&self, node: usize) -> Vec<u8> {
        let mut bytes = self.published.clone();
        for (at, data) in &self.pending[node] {
            put(&mut bytes, *at, data);
        }
        bytes
    }
    /// Everything that `node` may see: at most one other node has unpublished writes, and some of them may be published.
    fn may_see(&self, node: usize) -> Vec<Vec<u8>> {
        let mut bytes = self.seen(node);
        let mut all = vec![bytes.clone()];
        for (at, data) in self
            .pending
            .iter()
            .enumerate()
            .filter(|(n, _)| *n != node)
            .flat_map(|(_, p)| p)
        {
            put(&mut bytes, *at, data);
            all.push(bytes.clone());
        }
        all
    }
    fn publish(&mut self, node: usize) {
        for (at, data) in std::mem::take(&mut self.pending[node]) {
            put(&mut self.published, at, &data);
        }
    }
}

/// A handle that stays open over several steps.
struct Held {
    file: File,
    node: usize,
    id: usize,
}

struct History {
    roots: Vec<PathBuf>,
    rng: Random,
    /// Path to file; directories are those of `DIRS` that exist.
    names: BTreeMap<String, usize>,
    dirs: Vec<String>,
    files: Vec<Content>,
    held: Vec<Held>,
    log: Vec<String>,
}

impl History {
    fn path(&mut self) -> String {
        format!("{}{}", self.rng.pick(&DIRS), self.rng.pick(&NAMES))
    }

    fn parent_exists(&self, path: &str) -> bool {
        match path.rsplit_once('/') {
            Some((dir, _)) => self.dirs.iter().any(|d| d == dir),
            None => true,
        }
    }

    /// The number a call on an existing path of a file fails with, if it does.
    fn missing(&self, path: &str) -> Option<i32> {
        (!self.names.contains_key(path)).then_some(libc::ENOENT)
    }

    fn agree<T>(&self, what: &str, got: io::Result<T>, expected: Option<i32>) -> Option<T> {
        match (got, expected) {
            (Ok(value), None) => Some(value),
            (Err(e), Some(number)) if e.raw_os_error() == Some(number) => None,
            (Ok(_), Some(number)) => panic!(
                "{what}: succeeded, expected {number}\n{}",
                self.log.join("\n")
            ),
            (Err(e), expected) => panic!(
                "{what}: {e}, expected {expected:?}\n{}",
                self.log.join("\n")
            ),
        }
    }

    fn check(&mut self, node: usize, path: &str) {
        let Some(&id) = self.names.get(path) else {
            return;
        };
        let views = self.files[id].may_see(node);
        let full = self.roots[node].join(path);
        let read = match self.rng.below(2) {
            0 => fs::read(&full),
            _ => read_strided(&full, &mut self.rng),
        };
        let got = self.agree("read", read, None).unwrap();
        if !views.contains(&got) {
            let expected = &views[0];
            let at = got.iter().zip(expected).position(|(a, b)| a != b);
            let at = at.unwrap_or(got.len().min(expected.len()));
            panic!(
                "{path} (file {id}) on node {node}: {} bytes, expected {}; first difference at {at}\n{}",
                got.len(),
                expected.len(),
                self.log.join("\n")
            );
        }
        let len = fs::metadata(self.roots[node].join(path)).unwrap().len();
        let known = views.iter().any(|view| view.len() as u64 == len);
        assert!(
            known,
            "size {len} of {path} on node {node}\n{}",
            self.log.join("\n")
        );
    }

    /// The other nodes publish what they have written to the file.
    fn publish_elsewhere(&mut self, id: usize, node: usize) {
        for held in self.held.iter().filter(|h| h.id == id && h.node != node) {
            self.agree("fsync", held.file.sync_all(), None);
            self.files[id].publish(held.node);
        }
    }

    fn publish_path_elsewhere(&mut self, path: &str, node: usize) {
        if let Some(&id) = self.names.get(path) {
            self.publish_elsewhere(id, node);
        }
    }

    /// The number a call fails with that makes the name `path`.
    fn cannot_make(&self, path: &str, replace: bool) -> Option<i32> {
        if !self.parent_exists(path) {
            Some(libc::ENOENT)
        } else if self.names.contains_key(path) && !replace {
            Some(libc::EEXIST)
        } else {
            None
        }
    }

    fn step(&mut self) {
        let node = self.rng.index(self.roots.len());
        let path = self.path();
        let full = self.roots[node].join(&path);
        let kind = self.rng.below(16);
        self.log.push(format!("node {node}: step {kind} on {path}"));
        match kind {
            // Open or create, write, close.
            0..=3 => {
                let expected = self.cannot_make(&path, true);
                self.publish_path_elsewhere(&path, node);
                let open = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(kind == 0)
                    .open(&full);
                let Some(file) = self.agree("open", open, expected) else {
                    return;
                };
                let id = *self.names.entry(path.clone()).or_insert_with(|| {
                    self.files.push(Content::default());
                    self.files.len() - 1
                });
                if kind == 0 {
                    self.files[id].publish(node);
                    self.files[id].published.clear();
                }
                for (at, data) in self.some_writes() {
                    self.log
                        .push(format!("  file {id}: {} bytes at {at}", data.len()));
                    self.agree("write", file.write_all_at(&data, at as u64), None);
                    self.files[id].pending[node].push((at, data));
                }
                drop(file);
                self.files[id].publish(node);
            }
            // Append and close.
            4 => {
                let expected = self.missing(&path);
                self.publish_path_elsewhere(&path, node);
                let open = OpenOptions::new().append(true).open(&full);
                let Some(mut file) = self.agree("open to append", open, expected) else {
                    return;
                };
                let id = self.names[&path];
                let (_, data) = self.some_write();
                self.agree("append", file.write_all(&data), None);
                drop(file);
                let end = self.files[id].seen(node).len();
                self.log.push(format!(
                    "  file {id}: {} bytes at the end, {end}",
                    data.len()
                ));
                self.files[id].pending[node].push((end, data));
                self.files[id].publish(node);
            }
            // Open and keep, write through a kept handle, sync one, close one.
            5 => {
                let expected = self.missing(&path);
                let open = OpenOptions::new().read(true).write(true).open(&full);
                let Some(file) = self.agree("open to keep", open, expected) else {
                    return;
                };
                self.log.push(format!("  kept: file {}", self.names[&path]));
                self.held.push(Held {
                    file,
                    node,
                    id: self.names[&path],
                });
            }
            6..=8 if !self.held.is_empty() => {
                let writes = self.some_writes();
                let n = self.rng.below(self.held.len() as u64) as usize;
                self.publish_elsewhere(self.held[n].id, self.held[n].node);
                let held = &self.held[n];
                for (at, data) in writes {
                    self.log.push(format!(
                        "  node {} writes {} at {at} to file {}",
                        held.node,
                        data.len(),
                        held.id
                    ));
                    self.agree(
                        "write to a kept handle",
                        held.file.write_all_at(&data, at as u64),
                        None,
                    );
                    self.files[held.id].pending[held.node].push((at, data));
                }
            }
            9 if !self.held.is_empty() => {
                let n = self.rng.below(self.held.len() as u64) as usize;
                let held = &self.held[n];
                self.agree("fsync", held.file.sync_all(), None);
                self.log
                    .push(format!("  node {} syncs file {}", held.node, held.id));
                self.files[held.id].publish(held.node);
            }
            10 if !self.held.is_empty() => {
                let n = self.rng.below(self.held.len() as u64) as usize;
                let held = self.held.swap_remove(n);
                self.log
                    .push(format!("  node {} closes file {}", held.node, held.id));
                drop(held.file);
                self.files[held.id].publish(held.node);
            }
            // Truncate.
            11 => {
                let expected = self.missing(&path);
                let size = self.rng.below(200_000);
                self.publish_path_elsewhere(&path, node);
                let open = OpenOptions::new().write(true).open(&full);
                let Some(file) = self.agree("open to truncate", open, expected) else {
                    return;
                };
                self.agree("truncate", file.set_len(size), None);
                self.log
                    .push(format!("  file {} cut to {size}", self.names[&path]));
                let content = &mut self.files[self.names[&path]];
                content.publish(node);
                content.published.resize(size as usize, 0);
            }
            12 => {
                let to = self.path();
                let expected = self.missing(&path).or_else(|| self.cannot_make(&to, true));
                self.log.push(format!("  rename to {to}"));
                let done = fs::rename(&full, self.roots[node].join(&to));
                let target_dir_missing = !self.parent_exists(&path);
                let expected = if target_dir_missing {
                    Some(libc::ENOENT)
                } else {
                    expected
                };
                if self.agree("rename", done, expected).is_some() && path != to {
                    // Two names of one file: rename does nothing.
                    if self.names.get(&to) != self.names.get(&path) {
                        let id = self.names.remove(&path).unwrap();
                        self.names.insert(to, id);
                    }
                }
            }
            13 => {
                let expected = self.missing(&path);
                if self
                    .agree("unlink", fs::remove_file(&full), expected)
                    .is_some()
                {
                    self.names.remove(&path);
                }
            }
            14 => {
                let to = self.path();
                self.log.push(format!("  link to {to}"));
                let expected = self.missing(&path).or_else(|| self.cannot_make(&to, false));
                if self
                    .agree(
                        "link",
                        fs::hard_link(&full, self.roots[node].join(&to)),
                        expected,
                    )
                    .is_some()
                {
                    self.names.insert(to, self.names[&path]);
                }
            }
            15 => {
                let dir = DIRS[1 + self.rng.below(2) as usize]
                    .trim_end_matches('/')
                    .to_string();
                let exists = self.dirs.contains(&dir);
                let full = self.roots[node].join(&dir);
                if exists && self.rng.below(3) == 0 {
                    let prefix = format!("{dir}/");
                    let full_of = self.names.keys().any(|n| n.starts_with(&prefix));
                    if self
                        .agree(
                            "rmdir",
                            fs::remove_dir(&full),
                            full_of.then_some(libc::ENOTEMPTY),
                        )
                        .is_some()
                    {
                        self.dirs.retain(|d| *d != dir);
                    }
                } else if self
                    .agree(
                        "mkdir",
                        fs::create_dir(&full),
                        exists.then_some(libc::EEXIST),
                    )
                    .is_some()
                {
                    self.dirs.push(dir);
                }
            }
            _ => {}
        }
        let node = self.rng.index(self.roots.len());
        self.check(node, &path);
    }

    fn some_write(&mut self) -> (usize, Vec<u8>) {
        let at = self.rng.below(150_000) as usize;
        let len = 1 + *self.rng.pick(&[0, 10, 4095, 4096, 30_000]) + self.rng.below(50) as usize;
        (at, seeded_bytes(self.rng.next(), len))
    }

    /// One write, or a row of them, upwards or downwards.
    fn some_writes(&mut self) -> Vec<(usize, Vec<u8>)> {
        if self.rng.below(3) > 0 {
            return vec![self.some_write()];
        }
        let len = 1 + self.rng.below(3000) as usize;
        let stride = len + self.rng.below(4000) as usize;
        let count = 3 + self.rng.below(25) as usize;
        let start = self.rng.below(60_000) as usize;
        let mut places: Vec<usize> = (0..count).map(|k| start + k * stride).collect();
        if self.rng.below(4) == 0 {
            places.reverse();
        }
        let write = |at| (at, seeded_bytes(self.rng.next(), len));
        places.into_iter().map(write).collect()
    }

    /// What is left in the end.
    fn finish(mut self) -> Vec<(String, Vec<u8>)> {
        for held in std::mem::take(&mut self.held) {
            drop(held.file);
            self.files[held.id].publish(held.node);
        }
        for node in 0..self.roots.len() {
            let mut found = Vec::new();
            walk(&self.roots[node], "", &mut found);
            found.sort();
            let expected: Vec<String> = self.names.keys().cloned().collect();
            assert_eq!(
                found,
                expected,
                "names on node {node}\n{}",
                self.log.join("\n")
            );
            for path in &expected {
                self.check(node, path);
            }
        }
        let content = |(name, id): (&String, &usize)| (name.clone(), self.files[*id].seen(0));
        self.names.iter().map(content).collect()
    }
}

/// All of a file, in several passes over records that lie a stride apart.
fn read_strided(path: &Path, rng: &mut Random) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let record = *rng.pick(&[512, 4096, 5000]);
    let records = 3 + rng.below(6) as usize;
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    for first in 0..records {
        for at in (first * record..bytes.len()).step_by(records * record) {
            let end = (at + record).min(bytes.len());
            file.read_exact_at(&mut bytes[at..end], at as u64)?;
        }
    }
    Ok(bytes)
}

fn walk(root: &Path, below: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            walk(root, &format!("{name}/"), found);
        } else {
            found.push(name);
        }
    }
}

#[test]
fn random_histories_agree_with_the_model() {
    let (histories, steps) = seeds::count((6, 150), (200, 400));
    let one = seeds::asked_seed().map(|seed| seed..seed + 1);
    let asked = one.unwrap_or(1..1 + histories);
    // Every third without patterns.
    for patterns in [true, false] {
        let setup = Setup {
            nodes: NODES as u16,
            patterns,
            ..Setup::default()
        };
        let Some(h) = Harness::start(setup) else {
            return;
        };
        for seed in asked.clone().filter(|s| (s % 3 > 0) == patterns) {
            println!("history of seed {seed}, patterns: {patterns}");
            seeds::with_seed("histories", seed, || {
                run_one(&h, seed, steps);
            });
        }
    }
}

#[test]
fn random_histories_of_one_member_agree_with_the_model() {
    let (histories, steps) = seeds::count((6, 150), (200, 400));
    let one = seeds::asked_seed().map(|seed| seed..seed + 1);
    let asked = one.unwrap_or(1..1 + histories);
    for setup in [Setup::ALONE, Setup::ALONE_WRITE_THROUGH] {
        let Some(mut h) = Harness::start(setup) else {
            return;
        };
        let mut left = Vec::new();
        for seed in asked.clone() {
            println!("history of seed {seed}, {setup:?}");
            seeds::with_seed("histories of one member", seed, || {
                left.push((seed, run_one(&h, seed, steps)));
            });
        }
        h.restart();
        for (seed, files) in left {
            for (name, content) in files {
                let read = fs::read(h.mount(0).join(format!("h{seed}/{name}"))).unwrap();
                assert!(read == content, "{name} of seed {seed}, {setup:?}");
            }
        }
    }
}

fn run_one(h: &Harness, seed: u64, steps: usize) -> Vec<(String, Vec<u8>)> {
    let top = format!("h{seed}");
    fs::create_dir(h.mount(0).join(&top)).unwrap();
    let mut history = History {
        roots: h.all().iter().map(|m| m.join(&top)).collect(),
        rng: Random::new(seed),
        names: BTreeMap::new(),
        dirs: Vec::new(),
        files: Vec::new(),
        held: Vec::new(),
        log: vec![format!("seed {seed}")],
    };
    for _ in 0..steps {
        history.step();
    }
    history.finish()
}
