//! The store that is damaged, and what stands in it.
use crate::damage::stored::StoredBytes;
use forebay_client::{Client, Kind, OpenOptions};
use forebay_server::{Config, Fid, IndexConfig, Service};
use forebay_storage::OsIo;
use forebay_testkit::random::seeded_bytes;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the service of the store ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// As by `forebay umount`.
    Clean,
    /// As by SIGKILL: all files are closed, nothing else is done.
    Killed,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thing {
    Dir,
    File(Vec<u8>),
    Link(PathBuf),
}

/// What reading a name gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome {
    /// What was written.
    Right,
    /// What was there before the last change.
    Older,
    /// An error, as it must be for what is damaged.
    Failed(Errno),
    /// Something else.
    Wrong(String),
}

pub struct MadeStore {
    pub dir: tempfile::TempDir,
    pub nodes: u16,
    pub things: BTreeMap<String, Thing>,
    /// What files held before they were changed.
    pub older: BTreeMap<String, Vec<u8>>,
    /// What each name stands for in the store.
    pub fids: BTreeMap<String, Fid>,
    /// Where what is stored.
    pub stored: StoredBytes,
}

pub fn config(nodes: u16) -> Config {
    Config {
        nodes,
        memory: 24 << 20,
        index: IndexConfig::default(),
        ..Config::default()
    }
}

pub fn start(dir: &Path, nodes: u16) -> Result<Service, forebay_server::Error> {
    Service::start(Arc::new(OsIo), dir, config(nodes))
}

impl MadeStore {
    pub fn new(nodes: u16, stop: Stop) -> MadeStore {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        let mut things = BTreeMap::new();
        let mut older = BTreeMap::new();
        for round in 0..2 {
            let service = start(&store, nodes).unwrap();
            let files = things
                .iter()
                .filter_map(|(name, thing): (&String, &Thing)| match thing {
                    Thing::File(content) => Some((name.clone(), content.clone())),
                    _ => None,
                });
            older.extend(files);
            let clients: Vec<Client> = (0..nodes)
                .map(|n| Client::new(service.delegate(n)))
                .collect();
            fill(&clients, &mut things, round);
            drop(clients);
            match stop {
                Stop::Killed if round == 1 => drop(service),
                _ => service.stop().unwrap(),
            }
        }
        let stored = StoredBytes::of(&store).unwrap();
        let fids = fids(&store, dir.path(), nodes, &things);
        MadeStore {
            dir,
            nodes,
            things,
            older,
            fids,
            stored,
        }
    }

    /// Whether the content of this name is among what was found.
    pub fn is_among(&self, name: &str, found: &[Thing]) -> bool {
        found.contains(&self.things[name])
    }

    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }
}

/// What the names stand for, asked of a copy.
fn fids(
    store: &Path,
    scratch: &Path,
    nodes: u16,
    things: &BTreeMap<String, Thing>,
) -> BTreeMap<String, Fid> {
    let copied = scratch.join("asked");
    crate::damage::tries::copy(store, &copied);
    let service = start(&copied, nodes).unwrap();
    let client = Client::new(service.delegate(0));
    let fid = |name: &String| {
        let meta = client.symlink_metadata(name).unwrap();
        (name.clone(), Fid(meta.ino()))
    };
    let fids = things.keys().map(fid).collect();
    drop(client);
    service.stop().unwrap();
    fids
}

/// Two rounds, so that some records stand in tables and newer ones over them.
fn fill(clients: &[Client], things: &mut BTreeMap<String, Thing>, round: u64) {
    let client = |k: u64| &clients[(k as usize) % clients.len()];
    let mut file = |name: &str, content: Vec<u8>, k: u64| {
        client(k).write(name, &content).unwrap();
        things.insert(name.into(), Thing::File(content));
    };
    let base = format!("/round{round}");
    client(0).create_dir(&base).unwrap();
    let mut dirs = vec![base.clone()];
    for d in 0..6 {
        let name = format!("{base}/d{d}");
        client(d).create_dir(&name).unwrap();
        client(d).create_dir(format!("{name}/sub")).unwrap();
        dirs.extend([name.clone(), format!("{name}/sub")]);
        for i in 0..30 {
            let k = round * 1000 + d * 100 + i;
            let len = [0, 10, 3000, 9000][(i % 4) as usize] + k as usize;
            let deep = if i % 5 == 0 { "sub/" } else { "" };
            file(&format!("{name}/{deep}f{i}"), seeded_bytes(k, len), k);
        }
    }
    // Overwritten in part, in the round before and in this one.
    for i in 0..10 {
        let name = format!("/over{i}");
        if round == 0 {
            let content = seeded_bytes(5000 + i, 20_000);
            client(i).write(&name, &content).unwrap();
            things.insert(name, Thing::File(content));
            continue;
        }
        let part = seeded_bytes(6000 + i, 7000);
        let opened = OpenOptions::new()
            .write(true)
            .open(client(i), &name)
            .unwrap();
        opened.write_at(&part, 4000).unwrap();
        opened.close().unwrap();
        let Some(Thing::File(content)) = things.get_mut(&name) else {
            unreachable!("made in the first round")
        };
        content[4000..11_000].copy_from_slice(&part);
    }
    for i in 0..6 {
        let (name, k) = (format!("{base}/link{i}"), round * 10 + i);
        let target = PathBuf::from(format!("d{i}/f1"));
        client(k).symlink(&target, &name).unwrap();
        things.insert(name, Thing::Link(target));
        let second = format!("{base}/second{i}");
        client(k + 1)
            .hard_link(format!("{base}/d{i}/f3"), &second)
            .unwrap();
        let same = things[&format!("{base}/d{i}/f3")].clone();
        things.insert(second, same);
        // Renamed into another directory, and removed.
        let to = format!("{base}/moved{i}");
        let from = name_before(&to).unwrap();
        client(k).rename(&from, &to).unwrap();
        let moved = things.remove(&from).unwrap();
        things.insert(to, moved);
        let gone = format!("{base}/d{i}/f7");
        client(k).remove_file(&gone).unwrap();
        things.remove(&gone);
    }
    // Strided, so that patterns are kept; and one with holes over several slices.
    let strided = format!("{base}/strided");
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .open(client(round), &strided)
        .unwrap();
    let mut content = vec![0; 64 * 4096];
    for i in (0..64usize).step_by(2) {
        let piece = seeded_bytes(8000 + i as u64, 4096);
        opened.write_at(&piece, (i * 4096) as u64).unwrap();
        content[i * 4096..(i + 1) * 4096].copy_from_slice(&piece);
    }
    opened.set_len(content.len() as u64).unwrap();
    opened.close().unwrap();
    things.insert(strided, Thing::File(content));
    for dir in dirs {
        things.insert(dir, Thing::Dir);
    }
}

/// Reads one name and compares.
fn look(client: &Client, name: &str, thing: &Thing, older: Option<&Vec<u8>>) -> ReadOutcome {
    let wrong = |text: String| ReadOutcome::Wrong(format!("{name}: {text}"));
    let failed = |e: forebay_client::Error| ReadOutcome::Failed(e.errno());
    match thing {
        Thing::Dir => match client.read_dir(name) {
            Ok(entries) => match entries.into_iter().find_map(Result::err) {
                Some(e) => failed(e),
                None => ReadOutcome::Right,
            },
            Err(e) => failed(e),
        },
        Thing::Link(target) => match client.read_link(name) {
            Ok(found) if found == *target => ReadOutcome::Right,
            Ok(found) => wrong(format!("leads to {}", found.display())),
            Err(e) => failed(e),
        },
        Thing::File(content) => match client.read(name) {
            Ok(found) if found == *content => ReadOutcome::Right,
            // Every file is empty at first.
            Ok(found) if found.is_empty() || older == Some(&found) => ReadOutcome::Older,
            Ok(found) => {
                let same = found
                    .iter()
                    .zip(content)
                    .take_while(|(a, b)| a == b)
                    .count();
                wrong(format!(
                    "{} of {} bytes, the first wrong one at {same}",
                    found.len(),
                    content.len()
                ))
            }
            Err(e) => failed(e),
        },
    }
}

/// Reads everything.
pub fn look_at_all(client: &Client, made: &MadeStore) -> BTreeMap<String, ReadOutcome> {
    let one = |(name, thing): (&String, &Thing)| {
        let seen = look(client, name, thing, made.older.get(name));
        (name.clone(), seen)
    };
    made.things.iter().map(one).collect()
}

/// Names in the service that were never there or were removed, without those of `/lost+found`.
pub fn strange(client: &Client, things: &BTreeMap<String, Thing>) -> Vec<String> {
    let mut strange = Vec::new();
    let mut dirs = vec![String::from("/")];
    while let Some(dir) = dirs.pop() {
        // What cannot be listed is found by `look_at_all`.
        for entry in client.read_dir(&dir).into_iter().flatten().flatten() {
            let name = entry.path().to_string_lossy().into_owned();
            if name == "/lost+found" {
                continue;
            }
            if !things.contains_key(&name) {
                strange.push(name.clone());
            }
            if entry.kind() == Kind::Dir {
                dirs.push(name);
            }
        }
    }
    strange
}

/// The name that a thing had before it was renamed: where the rename is lost in one member alone, it has both.
pub fn name_before(name: &str) -> Option<String> {
    let (base, n) = name.rsplit_once("/moved")?;
    Some(format!("{base}/d{n}/f6"))
}

/// Everything below `/lost+found` that can be read.
pub fn found(client: &Client) -> Vec<Thing> {
    let mut found = Vec::new();
    let mut dirs = vec![PathBuf::from("/lost+found")];
    while let Some(dir) = dirs.pop() {
        for entry in client.read_dir(&dir).into_iter().flatten().flatten() {
            match entry.kind() {
                Kind::Dir => {
                    dirs.push(entry.path());
                    found.push(Thing::Dir);
                }
                Kind::Symlink => found.extend(client.read_link(entry.path()).map(Thing::Link)),
                _ => found.extend(client.read(entry.path()).map(Thing::File)),
            }
        }
    }
    found
}
