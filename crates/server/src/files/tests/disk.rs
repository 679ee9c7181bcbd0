//! A full disk refuses commits and still lets files be removed; `sync` reaches every member.
use super::super::check::check;
use super::patterned::{Layer, Model};
use super::world::*;
use crate::*;
use forebay_index::SLICE;
use forebay_proto::files::*;
use forebay_proto::placement::split_by_member;
use forebay_storage::fault::{Call, HookedIo};
use forebay_storage::{Options, OsIo};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A disk that can be full (no file grows, none is made) and counts syncs by directory.
#[derive(Default)]
struct Disk {
    full: AtomicBool,
    syncs: Mutex<HashMap<PathBuf, u64>>,
}

impl Disk {
    fn room(&self) -> io::Result<()> {
        match self.full.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
    fn hear(&self, path: &Path, call: Call<'_>) -> io::Result<()> {
        match call {
            Call::Create | Call::Allocate { .. } => self.room(),
            Call::Write { file, offset, len } if offset + len > file.len()? => self.room(),
            Call::Sync => {
                let dir = path.parent().unwrap_or(path).to_path_buf();
                *self.syncs.lock().entry(dir).or_default() += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }
    /// Syncs of the member's files so far.
    fn synced(&self, member: Member) -> u64 {
        let name = member.to_string();
        let syncs = self.syncs.lock();
        let of = |dir: &PathBuf| dir.file_name().is_some_and(|n| n.to_string_lossy() == name);
        syncs
            .iter()
            .filter(|(dir, _)| of(dir))
            .map(|(_, n)| n)
            .sum()
    }
}

fn world(members: u16) -> (World, Arc<Disk>) {
    let disk = Arc::new(Disk::default());
    let told = disk.clone();
    let io = HookedIo::new(OsIo, move |path, call| told.hear(path, call));
    let world = World::with(members, Arc::new(io), Options::default());
    (world, disk)
}

#[test]
fn a_full_disk_refuses_commits_and_leaves_all_as_it_was() {
    let (world, disk) = world(2);
    let fid = world.create(0);
    let range = SLICE - 100..SLICE + 100;
    world.write(1, fid, range.clone(), 1).unwrap();
    disk.full.store(true, Ordering::SeqCst);
    assert_eq!(errno(world.write(0, fid, 0..10, 2)), Errno::NOSPC);
    assert_eq!(errno(world.write(0, fid, range.clone(), 2)), Errno::NOSPC);
    let (attr, extents) = world.read(1, fid).unwrap();
    assert_eq!((attr.size, attr.bytes), (SLICE + 100, 200));
    assert_eq!(
        [SLICE - 100, SLICE + 99].map(|o| byte(&extents, o)),
        [Some((1, 0)), Some((1, 199))]
    );
    disk.full.store(false, Ordering::SeqCst);
    // Puts are refused until the store is done with what the full disk made it do, which takes a moment.
    let mut written = world.write(0, fid, range.clone(), 3);
    for _ in 0..12_000 {
        if !matches!(&written, Err(e) if e.errno() == Errno::NOSPC) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        written = world.write(0, fid, range.clone(), 3);
    }
    written.unwrap();
    assert_eq!(check(&world.stores()).unwrap(), vec![]);
}

#[test]
fn patterns_on_a_full_disk_stay_as_they_were_and_can_be_removed() {
    let (world, disk) = world(2);
    let (fid, other) = (world.create(0), world.create(0));
    let mut model = Model::default();
    let commit = |fid: Fid, log: u64| {
        let (mut layer, mut end) = (Layer::default(), 0);
        for i in 0..50 {
            layer.write(SLICE - 700 + i * 30, 10, (1, log), &mut end);
        }
        let attr = layer.attr();
        let planned = world.plan_layer(1, fid, &layer, &attr, |_| true).unwrap();
        world.finish(&planned).map(|_| (layer, attr))
    };
    let (layer, attr) = commit(fid, 1).unwrap();
    model.apply(&layer, &attr);
    commit(other, 2).unwrap();
    world.unlink(other);
    disk.full.store(true, Ordering::SeqCst);
    assert_eq!(errno(commit(fid, 3)), Errno::NOSPC);
    model.compare(&world, 1, fid);
    world.drain();
    assert_eq!(world.count(0, keys::PATTERNS), 1);
    assert!(world.net.freed.lock().contains_key(&(1, 2)));
    disk.full.store(false, Ordering::SeqCst);
    world.restart(0);
    model.compare(&world, 0, fid);
    assert_eq!(check(&world.stores()).unwrap(), vec![]);
}

#[test]
fn a_commit_staged_before_the_disk_filled_is_dropped_when_the_owner_cannot_decide() {
    let (world, disk) = world(2);
    let fid = world.create(0);
    let range = SLICE - 100..SLICE + 100;
    world.write(1, fid, range.clone(), 1).unwrap();
    let attr = CommitAttr {
        end: Some(range.end),
        ..Default::default()
    };
    let planned = world.plan(1, fid, &[put(1, &range, 2)], attr).unwrap();
    disk.full.store(true, Ordering::SeqCst);
    assert_eq!(errno(world.finish(&planned)), Errno::NOSPC);
    assert!(world.files(1).staged.table.is_empty());
    assert_eq!(byte(&world.read(0, fid).unwrap().1, SLICE), Some((1, 100)));
}

#[test]
fn files_are_removed_on_a_full_disk() {
    let (world, disk) = world(2);
    let fids: Vec<Fid> = (0..50).map(|i| world.create(i % 2)).collect();
    for fid in &fids {
        world.write(0, *fid, SLICE - 1..SLICE + 1, fid.0).unwrap();
        world.unlink(*fid);
    }
    disk.full.store(true, Ordering::SeqCst);
    world.drain();
    for k in 0..2 {
        let left = [keys::INODES, keys::ORPHANS].map(|space| world.count(k, space));
        assert_eq!((left, world.extents(k)), ([0; 2], 0));
    }
    assert_eq!(world.net.freed.lock().len(), 50);
}

/// A commit of `writer` to a file of member 0, with a part there and one at member 1.
fn commit_two_parts(world: &World, writer: Member, fid: Fid, sync: bool) {
    let (range, token) = (SLICE - 1..SLICE + 1, world.token());
    let parts = split_by_member(world.map(), 0, &[put(writer, &range, token)], 0);
    let [own, other] = &parts[..] else {
        panic!("{parts:?}")
    };
    let (own, changes) = (own.changes.clone(), other.changes.clone());
    let stage = StageChanges {
        fid,
        token,
        changes,
        sync,
    };
    world.ask(writer, 1, stage).unwrap();
    let attr = CommitAttr {
        end: Some(range.end),
        ..Default::default()
    };
    let commit = Commit {
        fid,
        token,
        own,
        patterns: Vec::new(),
        staged: vec![1],
        attr,
        sync,
    };
    world.ask(writer, 0, commit).unwrap();
}

#[test]
fn a_synced_commit_syncs_every_member_with_a_part_and_an_unsynced_none() {
    let (world, disk) = world(3);
    let fid = world.create(0);
    let syncs = || [0, 1, 2].map(|k| disk.synced(k));
    let commit = |sync| commit_two_parts(&world, 2, fid, sync);
    // The first one reserves sequences, on disk.
    commit(false);
    let before = syncs();
    commit(false);
    assert_eq!(syncs(), before);
    commit(true);
    let after = syncs();
    assert!(
        after[0] > before[0] && after[1] > before[1] && after[2] == before[2],
        "{before:?} {after:?}"
    );
}

#[test]
fn a_synced_commit_that_is_published_late_is_synced_there_before_its_decision_goes() {
    let (world, disk) = world(2);
    let commit = |fid, sync| commit_two_parts(&world, 0, fid, sync);
    // The first one reserves sequences, on disk.
    commit(world.create(0), false);
    let fid = world.create(0);
    world.set_rule(|_, _, request| match request {
        FilesRequest::PublishStaged(_) => Fate::RequestLost,
        _ => Fate::Arrives,
    });
    commit(fid, true);
    world.clear_rule();
    let before = disk.synced(1);
    world.drain();
    assert_eq!(
        byte(&world.read(1, fid).unwrap().1, SLICE).map(|b| b.1),
        Some(1)
    );
    assert_eq!(
        world.count(0, keys::DECISIONS),
        2,
        "only the spans of two files"
    );
    assert!(
        disk.synced(1) > before,
        "a power cut now would take the part"
    );
}

#[test]
fn no_member_publishes_a_commit_to_a_synced_file_before_its_decision_is_on_disk() {
    let (world, disk) = world(2);
    let fid = world.create(0);
    let range = SLICE - 1..SLICE + 1;
    world.write(1, fid, range.clone(), 1).unwrap();
    world.ask(0, 0, SyncFile { fid }).unwrap();
    let (before, told) = (disk.synced(0), disk.clone());
    let asked = Arc::new(AtomicBool::new(false));
    let published = asked.clone();
    world.set_rule(move |_, _, request| {
        if matches!(request, FilesRequest::PublishStaged(_)) {
            assert!(
                told.synced(0) > before,
                "a power cut now would take the decision"
            );
            published.store(true, Ordering::SeqCst);
        }
        Fate::Arrives
    });
    world.write(1, fid, range, 2).unwrap();
    world.clear_rule();
    assert!(asked.load(Ordering::SeqCst));
}
