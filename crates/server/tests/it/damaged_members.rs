//! Services of one and of three members whose stores are damaged: a repair of all members is one step, superblocks and
//! members that are missing cost what only they held, and what a repair or a salvage restores is what was written.
use crate::common::*;
use forebay_server::repair::Repair;
use forebay_server::repair_marker::MARK;
use forebay_server::salvage::Salvage;
use forebay_server::superblock::{COPY_NAME, FILE_NAME};
use forebay_server::{Delegate, Error, Fid, Kind, MemberDirectory, NewInode, Service, fsck};
use forebay_storage::fault::{Call, HookedIo};
use forebay_storage::{Io, OsIo};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

const FILES: u8 = 24;

fn bytes(file: u8) -> Vec<u8> {
    (0..500 + usize::from(file) * 40)
        .map(|i| file ^ i as u8)
        .collect()
}

/// What lies below the root, by path; `None`: it cannot be read.
type Tree = BTreeMap<String, Option<Vec<u8>>>;

fn tree(delegate: &Delegate) -> Tree {
    fn below(delegate: &Delegate, dir: Fid, path: &str, found: &mut Tree) {
        for entry in delegate.names.readdir(dir, None, 1000).unwrap() {
            let path = format!("{path}{}", String::from_utf8_lossy(&entry.name));
            match entry.kind {
                Kind::Dir => below(delegate, entry.fid, &format!("{path}/"), found),
                _ => drop(found.insert(path, read(delegate, entry.fid).ok())),
            }
        }
    }
    let mut found = Tree::new();
    below(delegate, Fid::ROOT, "", &mut found);
    found
}

fn read(delegate: &Delegate, fid: Fid) -> Result<Vec<u8>, Error> {
    let opened = delegate.open(fid, READ)?;
    let bytes = delegate.read(opened.handle, 0, 1 << 20);
    delegate.release(opened.handle)?;
    bytes.map(|b| b.to_vec())
}

/// The stores of a stopped service with files of all members in directories of all members.
struct Stores {
    temp: TempDir,
    members: u16,
    /// What names them to a repair: the service's directory, or those of its members.
    dirs: Vec<PathBuf>,
    whole: Tree,
}

impl Stores {
    /// In the directory of a service, or with each member's in one of its own (`apart`).
    fn new(members: u16, apart: bool) -> Stores {
        let temp = scratch();
        let service = start(&temp, config(members));
        let new = || NewInode::new(Kind::Dir, 0o755);
        for file in 0..FILES {
            let delegate = service.delegate(u16::from(file) % members);
            let name = format!("d{}", u16::from(file) % (members * 2));
            let made = delegate.names.make(Fid::ROOT, name.as_bytes(), new(), ROOT);
            let dir = made.or_else(|_| delegate.names.lookup(Fid::ROOT, name.as_bytes()));
            let name = format!("f{file}");
            let opened =
                delegate.create(dir.unwrap().fid, name.as_bytes(), 0o644, false, BOTH, ROOT);
            let opened = opened.unwrap();
            delegate
                .write(opened.handle, 0, &bytes(file), ROOT)
                .unwrap();
            delegate.release(opened.handle).unwrap();
        }
        let whole = tree(&service.delegate(0));
        assert_eq!(whole.len(), usize::from(FILES));
        assert!(whole.values().all(Option::is_some));
        service.stop().unwrap();
        let mut stores = Stores {
            dirs: vec![temp.path().join("store")],
            temp,
            members,
            whole,
        };
        if apart {
            stores.dirs = (0..members)
                .map(|k| stores.temp.path().join(format!("of-{k}")))
                .collect();
            for k in 0..members {
                std::fs::rename(stores.together(k), &stores.dirs[usize::from(k)]).unwrap();
            }
        }
        stores
    }

    /// Where a member's store lies in the service's directory.
    fn together(&self, k: u16) -> PathBuf {
        self.temp.path().join(format!("store/node-{k}"))
    }

    fn node(&self, k: u16) -> PathBuf {
        match &self.dirs[..] {
            [_] if self.members > 1 || self.dirs[0].ends_with("store") => self.together(k),
            dirs => dirs[usize::from(k)].clone(),
        }
    }

    fn nodes(&self) -> Vec<PathBuf> {
        (0..self.members).map(|k| self.node(k)).collect()
    }

    /// The same as it is now, as a copy.
    fn copy(&self) -> Stores {
        let temp = scratch();
        copy(self.temp.path(), temp.path());
        let moved = |dir: &PathBuf| {
            temp.path()
                .join(dir.strip_prefix(self.temp.path()).unwrap())
        };
        Stores {
            dirs: self.dirs.iter().map(moved).collect(),
            temp,
            members: self.members,
            whole: self.whole.clone(),
        }
    }

    /// Changes a byte in the middle of the largest table of a member.
    fn damage(&self, member: u16) {
        let kv = std::fs::read_dir(self.node(member).join("kv")).unwrap();
        let tables = kv.map(|e| e.unwrap().path()).filter(|p| {
            let name = p.file_name().unwrap().to_string_lossy();
            name.starts_with("table-")
        });
        let table = tables.max_by_key(|p| p.metadata().unwrap().len()).unwrap();
        let mut bytes = std::fs::read(&table).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x5a;
        std::fs::write(table, bytes).unwrap();
    }

    fn lose_superblock(&self, dir: &Path) {
        std::fs::write(dir.join(FILE_NAME), b"FOREBAY\n and no more").unwrap();
        std::fs::remove_file(dir.join(COPY_NAME)).unwrap();
    }

    fn check(&self) -> Result<fsck::FsckReport, Error> {
        fsck::check(
            Arc::new(OsIo),
            &self.dirs,
            fsck::ByteCheck::Bytes,
            &mut |_| {},
        )
    }

    /// What each start of these stores says.
    fn starts(&self) -> Vec<Result<(), Error>> {
        let service = self.temp.path().join("store");
        if self.dirs == [service.clone()] {
            let started = Service::start(Arc::new(OsIo), &service, config(self.members));
            return vec![started.and_then(Service::stop)];
        }
        let homes = self
            .dirs
            .iter()
            .map(|dir| MemberDirectory::open(&OsIo, dir));
        homes.map(|home| home.map(drop)).collect()
    }

    /// What a service of these stores shows.
    fn served(self) -> Tree {
        if self.dirs.len() > 1 {
            for k in 0..self.members {
                std::fs::rename(self.node(k), self.together(k)).unwrap();
            }
        }
        let service = start(&self.temp, config(self.members));
        let found = tree(&service.delegate(self.members - 1));
        service.stop().unwrap();
        found
    }

    /// What a salvage shows.
    fn salvaged(&self, dirs: &[PathBuf]) -> Tree {
        let config = config(self.members);
        let salvage = Salvage::start(Arc::new(OsIo), dirs, self.temp.path(), &config, &mut |_| {});
        let salvage = salvage.unwrap();
        let found = tree(&salvage.service().unwrap().delegate(0));
        salvage.stop().unwrap();
        found
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(std::fs::copy(&path, &to).unwrap()),
        }
    }
}

/// Every file reads as it was, or not at all, and no name is one that was not there.
fn assert_right(found: &Tree, whole: &Tree, context: &str) {
    for (path, bytes) in found {
        let lost = path.contains("lost+found");
        let right = bytes.is_none() || bytes == whole.get(path).unwrap_or(&None);
        assert!(lost || right, "{context}: {path}");
    }
}

/// A disk whose process is killed before its `n`-th change after `armed` is set to it.
fn killed(armed: Arc<AtomicU64>) -> Arc<dyn Io> {
    Arc::new(HookedIo::new(OsIo, move |_, call| {
        let looks = matches!(call, Call::Exists | Call::Open | Call::Read { .. });
        let left = match (armed.load(Ordering::SeqCst), looks) {
            (0, _) => return Ok(()),
            (left, true) => left,
            (left, false) => {
                armed.store(left.max(2) - 1, Ordering::SeqCst);
                left
            }
        };
        match left {
            1 => Err(std::io::ErrorKind::Other.into()),
            _ => Ok(()),
        }
    }))
}

#[test]
fn a_repair_killed_in_the_middle_is_finished_by_the_next_one_and_no_start_comes_between() {
    for (members, apart, step) in [(1, false, 3), (3, false, 9), (3, true, 7)] {
        let damaged = Stores::new(members, apart);
        damaged.damage(members - 1);
        for n in (2..).step_by(step) {
            let stores = damaged.copy();
            let armed = Arc::new(AtomicU64::new(0));
            let repair = Repair::prepare_over(killed(armed.clone()), &stores.dirs, &mut |_| {});
            let repair = repair.unwrap();
            assert!(repair.is_needed());
            armed.store(n, Ordering::SeqCst);
            let done = repair.put_in_place();
            drop(repair);
            let marked = stores.nodes().iter().any(|node| node.join(MARK).exists());
            let context = format!("{members} members, apart {apart}, change {n}: {done:?}");
            let starts = stores.starts();
            let refused = starts.iter().filter_map(|s| s.as_ref().err());
            let told = refused
                .map(ToString::to_string)
                .find(|e| e.contains("--repair` again"));
            assert_eq!(told.is_some(), marked, "{context}: {starts:?}");
            if marked {
                let refused = stores.check().unwrap_err().to_string();
                assert!(refused.contains("--repair` again"), "{context}: {refused}");
                assert_right(&stores.salvaged(&stores.dirs), &stores.whole, &context);
            }
            let finished = Repair::finish(&stores.dirs).unwrap();
            assert_eq!(finished.is_some(), marked, "{context}");
            let again = Repair::prepare(&stores.dirs, &mut |_| {}).unwrap();
            if marked || done.is_ok() {
                assert!(!again.is_needed(), "{context}: {:?}", again.losses());
                again.discard().unwrap();
            } else {
                again.put_in_place().unwrap();
            }
            drop(again);
            let report = stores.check().unwrap();
            assert!(report.is_sound(), "{context}: {report:#?}");
            let found = stores.served();
            assert_right(&found, &damaged.whole, &context);
            assert!(!found.is_empty(), "{context}");
            if done.is_ok() {
                break;
            }
        }
    }
}

#[test]
fn superblocks_whose_copies_are_both_damaged_are_made_anew() {
    for (members, apart, lost) in [
        (1, false, 1),
        (3, false, 2),
        (3, true, 1),
        (3, true, 2),
        (1, false, 2),
        (3, false, 4),
    ] {
        let stores = Stores::new(members, apart);
        let mut all = stores.nodes();
        if !apart {
            all.insert(0, stores.dirs[0].clone());
        }
        all.iter()
            .take(lost)
            .for_each(|dir| stores.lose_superblock(dir));
        let context = format!("{members} members, apart {apart}, {lost} lost");
        let refused = stores
            .starts()
            .into_iter()
            .find_map(Result::err)
            .unwrap()
            .to_string();
        assert!(refused.contains("--repair"), "{context}: {refused}");
        assert_eq!(stores.salvaged(&stores.dirs), stores.whole, "{context}");
        let repair = Repair::prepare(&stores.dirs, &mut |_| {}).unwrap();
        let told = repair
            .steps()
            .iter()
            .filter(|s| s.contains("superblock is made anew"))
            .count();
        assert_eq!(told, lost, "{context}");
        repair.put_in_place().unwrap();
        drop(repair);
        assert!(stores.check().unwrap().is_sound(), "{context}");
        let whole = stores.whole.clone();
        assert_eq!(stores.served(), whole, "{context}");
    }
}

#[test]
fn superblocks_of_which_too_little_is_known_are_refused_before_anything_is_changed() {
    let stores = Stores::new(1, true);
    stores.lose_superblock(&stores.dirs[0]);
    let refused = Repair::prepare(&stores.dirs, &mut |_| {}).err().unwrap();
    assert!(
        refused.to_string().contains("moved to S/node-0"),
        "{refused}"
    );
    // Of another version: nothing is known of its records.
    let stores = Stores::new(1, false);
    let mut block = std::fs::read(stores.dirs[0].join(FILE_NAME)).unwrap();
    block[11] += 1;
    let sum = forebay_checksum::crc32c(&block[..60]);
    block[60..].copy_from_slice(&sum.to_be_bytes());
    for name in [FILE_NAME, COPY_NAME] {
        std::fs::write(stores.dirs[0].join(name), &block).unwrap();
    }
    let refused = Repair::prepare(&stores.dirs, &mut |_| {}).err().unwrap();
    assert!(refused.to_string().contains("newer Forebay"), "{refused}");
}

#[test]
fn a_salvage_without_a_member_gives_back_what_the_others_hold() {
    for apart in [false, true] {
        let mut stores = Stores::new(3, apart);
        std::fs::rename(stores.node(2), stores.temp.path().join("away")).unwrap();
        if apart {
            stores.dirs.pop();
        }
        let found = stores.salvaged(&stores.dirs);
        assert_right(&found, &stores.whole, "without member 2");
        let read = found.values().flatten().count();
        assert!(read > 0 && read < usize::from(FILES), "{read} files read");
        let refused = Repair::prepare(&stores.dirs, &mut |_| {}).err().unwrap();
        assert!(
            refused.to_string().contains("member 2 is missing"),
            "{refused}"
        );
    }
}

#[test]
fn a_member_without_its_records_is_refused_by_a_start_and_repaired_around() {
    let stores = Stores::new(3, false);
    // Also where it holds names alone.
    for segment in std::fs::read_dir(stores.node(1).join("data")).unwrap() {
        std::fs::remove_file(segment.unwrap().path()).unwrap();
    }
    let kv = stores.node(1).join("kv");
    std::fs::rename(&kv, stores.temp.path().join("away")).unwrap();
    for start in stores.starts() {
        let refused = start.unwrap_err().to_string();
        let named = refused.contains(kv.to_str().unwrap());
        assert!(named && refused.contains("--repair"), "{refused}");
    }
    assert!(!kv.exists());
    assert_right(&stores.salvaged(&stores.dirs), &stores.whole, "salvage");
    let repair = Repair::prepare(&stores.dirs, &mut |_| {}).unwrap();
    repair.put_in_place().unwrap();
    drop(repair);
    assert!(stores.check().unwrap().is_sound());
    let whole = stores.whole.clone();
    let found = stores.served();
    assert_right(&found, &whole, "repair");
    assert!(found.values().flatten().count() > 0);
}

#[test]
fn a_member_whose_manifest_is_lost_gives_back_everything() {
    for (members, gone) in [(1, true), (3, true), (3, false)] {
        let stores = Stores::new(members, false);
        for copy in ["MANIFEST", "MANIFEST.copy"] {
            let path = stores.node(members - 1).join("kv").join(copy);
            match gone {
                true => std::fs::remove_file(path).unwrap(),
                false => {
                    // The same edit in both.
                    let mut bytes = std::fs::read(&path).unwrap();
                    bytes[40] ^= 1;
                    std::fs::write(path, bytes).unwrap();
                }
            }
        }
        let start = stores.starts().into_iter().find_map(Result::err).unwrap();
        let refused = start.to_string();
        assert!(refused.contains("--repair"), "{refused}");
        assert_eq!(stores.salvaged(&stores.dirs), stores.whole, "{members}");
        let repair = Repair::prepare(&stores.dirs, &mut |_| {}).unwrap();
        let losses = repair.losses();
        assert!(
            losses.lost.is_empty() && !losses.damage.is_empty(),
            "{losses:?}"
        );
        repair.put_in_place().unwrap();
        drop(repair);
        assert!(stores.check().unwrap().is_sound());
        let whole = stores.whole.clone();
        assert_eq!(stores.served(), whole);
    }
}
