//! The check finds nothing on a sound service, and each kind of damage by its name.
use super::*;
use crate::{Caller, Config, Fid, Kind, NewInode, OpenFlags, Service};
use forebay_data::container::keys::RecordKind;
use forebay_data::container::{self, Container};
use forebay_data::segment_header;
use forebay_data::span::{self, RawBytes, Span};
use forebay_storage::{Batch, OsIo};
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::TempDir;

const ME: Caller = Caller { uid: 0, gid: 0 };
const WRITE: OpenFlags = OpenFlags {
    read: true,
    write: true,
    append: false,
    truncate: false,
};

/// A stopped service of two members with some files of both.
fn service() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let service = start(dir.path());
    for member in 0..2 {
        let delegate = service.delegate(member);
        for i in 0..4u8 {
            let name = format!("f{member}.{i}");
            let opened = delegate
                .create(Fid::ROOT, name.as_bytes(), 0o644, true, WRITE, ME)
                .unwrap();
            let len = [10, 5000, 300_000, 1 << 20][usize::from(i)];
            delegate
                .write(opened.handle, 0, &vec![i + 1; len], ME)
                .unwrap();
            delegate.write(opened.handle, 3, b"again", ME).unwrap();
            delegate.flush(opened.handle).unwrap();
            delegate.release(opened.handle).unwrap();
        }
        delegate
            .names
            .unlink(Fid::ROOT, format!("f{member}.1").as_bytes(), ME)
            .unwrap();
    }
    service.stop().unwrap();
    dir
}

fn start(dir: &Path) -> Service {
    let config = Config {
        nodes: 2,
        settle: crate::SettleConfig {
            enabled: false,
            ..crate::SettleConfig::default()
        },
        ..Config::default()
    };
    Service::start(Arc::new(OsIo), dir, config).unwrap()
}

fn run(dir: &TempDir) -> FsckReport {
    check(
        Arc::new(OsIo),
        &[dir.path().into()],
        ByteCheck::Bytes,
        &mut |_| {},
    )
    .unwrap()
}

#[test]
fn a_copy_of_a_superblock_that_was_damaged_is_noted() {
    let dir = service();
    for place in ["superblock", "node-1/superblock.copy"] {
        let path = dir.path().join(place);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[41] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let report = run(&dir);
        let told = |n: &String| n.contains(&*path.to_string_lossy()) && n.contains("was damaged");
        assert!(report.is_sound(), "{:?}", report.problems);
        assert!(report.notes.iter().any(told), "{:?}", report.notes);
        assert!(!run(&dir).notes.iter().any(told), "it is whole again");
    }
}

/// Changes the store of member `k` behind the service's back.
fn change(dir: &TempDir, k: u16, change: impl FnOnce(&Store) -> Batch) {
    let store = Store::open(
        Arc::new(OsIo),
        &dir.path().join(format!("node-{k}/kv")),
        Options::default(),
    )
    .unwrap();
    store.apply(change(&store)).unwrap();
    store.close().unwrap();
}

fn first_span(store: &Store) -> Span {
    span::all(store).next().unwrap().unwrap()
}

fn raw(span: &Span) -> &RawBytes {
    span.raw().unwrap()
}

#[track_caller]
fn finds(report: &FsckReport, part: &str, words: &str) {
    let found = report
        .problems
        .iter()
        .any(|p| p.part == part && p.text.contains(words));
    assert!(found, "no '{words}' of {part} in {:#?}", report.problems);
}

#[test]
fn a_sound_service_has_no_problems_and_all_bytes_are_read() {
    let dir = service();
    let mut last = FsckProgress {
        stage: "",
        done: 0,
        total: 0,
    };
    let report = check(
        Arc::new(OsIo),
        &[dir.path().into()],
        ByteCheck::Bytes,
        &mut |p| last = p,
    )
    .unwrap();
    assert_eq!(report.problems, []);
    assert_eq!(report.leaked, 0, "{:#?}", report.notes);
    // 3 files of each member and the root.
    assert_eq!((report.members, report.files), (2, 7));
    assert!(
        report.bytes >= 2 * (10 + 300_000 + (1 << 20)) && report.extents >= 6 && report.spans >= 2
    );
    assert_eq!((last.stage, last.done), ("extents", last.total));
    assert_eq!(run(&dir), report, "the check changed something");
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<FsckReport>(&json).unwrap(), report);
    start(dir.path()).stop().unwrap();
}

#[test]
fn a_clean_stop_leaves_no_displaced_bytes_to_put_back() {
    let dir = service();
    let service = start(dir.path());
    let delegate = service.delegate(1);
    let found = delegate.names.lookup(Fid::ROOT, b"f0.2").unwrap();
    let handle = delegate.open(found.fid, WRITE).unwrap().handle;
    delegate.write(handle, 4096, &[9; 4096], ME).unwrap();
    delegate.flush(handle).unwrap();
    delegate.release(handle).unwrap();
    service.stop().unwrap();
    for k in 0..2 {
        let kv = dir.path().join(format!("node-{k}/kv"));
        let store = Store::open(Arc::new(OsIo), &kv, Options::default()).unwrap();
        let left = keys::all(&store, keys::DISPLACED);
        assert_eq!(left.count(), 0, "member {k}");
        store.close().unwrap();
    }
    assert_eq!(run(&dir).problems, []);
}

/// A service that was killed, and the place of a span in a log that no file names yet, one piece long.
fn killed_with_an_unnamed_span() -> (TempDir, std::path::PathBuf, Span) {
    let dir = service();
    let service = start(dir.path());
    let node = service.nodes()[0].clone();
    let log = node
        .data
        .create_log(Fid::new(0, 77), Default::default())
        .unwrap();
    node.data.append(log, &[7; 3000]).unwrap();
    node.data.flush(log, false).unwrap();
    let spans = span::overlapping(&node.store, log, 0..u64::MAX);
    let span = spans.last().unwrap().unwrap();
    drop((node, service));
    let segment = segment_header::name(raw(&span).segment);
    let path = dir.path().join("node-0/data").join(segment);
    (dir, path, span)
}

#[test]
fn bytes_that_a_power_cut_took_before_any_file_named_them_are_a_note() {
    let (dir, path, span) = killed_with_an_unnamed_span();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let zeros = vec![0; span.stored_len() as usize];
    file.write_all_at(&zeros, u64::from(raw(&span).offset))
        .unwrap();
    let report = run(&dir);
    assert_eq!(report.problems, []);
    let told = |n: &&String| n.contains("1 piece of logs that were not closed");
    assert_eq!(
        report.notes.iter().filter(told).count(),
        1,
        "{:#?}",
        report.notes
    );
    start(dir.path()).stop().unwrap();
    let report = run(&dir);
    assert_eq!(report.problems, []);
    assert!(
        !report.notes.iter().any(|n| told(&n)),
        "{:#?}",
        report.notes
    );
}

#[test]
fn a_flipped_bit_in_a_segment_is_found() {
    let dir = service();
    let mut at = None;
    change(&dir, 1, |store| {
        at = Some(first_span(store));
        Batch::new()
    });
    let span = at.unwrap();
    let path = dir
        .path()
        .join("node-1/data")
        .join(segment_header::name(raw(&span).segment));
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, raw(&span).offset.into())
        .unwrap();
    file.write_all_at(&[byte[0] ^ 1], raw(&span).offset.into())
        .unwrap();
    let report = run(&dir);
    finds(&report, "data", "damaged at byte");
    // The file, and which bytes of it.
    finds(&report, "data", "it holds /f1.");
    finds(&report, "data", " from 0 to ");
    finds(&report, "data", path.to_str().unwrap());
    // Two parts of one write may both need the damaged piece; nothing else is at fault.
    assert!(report.problems.iter().all(|p| p.part == "data") && report.problems.len() <= 2);
}

#[test]
fn a_lost_segment_and_a_foreign_one_are_found() {
    let dir = service();
    for entry in std::fs::read_dir(dir.path().join("node-0/data")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    finds(&run(&dir), "data", "the file is missing");
    for entry in std::fs::read_dir(dir.path().join("node-1/data")).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(
            &from,
            dir.path()
                .join("node-0/data")
                .join(from.file_name().unwrap()),
        )
        .unwrap();
    }
    finds(&run(&dir), "segments", "of member 1");
}

#[test]
fn an_extent_without_its_bytes_is_found() {
    let dir = service();
    change(&dir, 0, |store| {
        let mut batch = Batch::new();
        batch.delete(keys::SPANS, first_span(store).key().to_vec());
        batch
    });
    finds(&run(&dir), "extents", "reading it fails");
}

#[test]
fn bytes_that_no_file_names_are_noted_and_harm_nothing() {
    let dir = service();
    change(&dir, 0, |store| {
        let span = first_span(store);
        let leaked = Span {
            log: 1 << 40,
            ..span
        };
        let mut batch = Batch::new();
        leaked.put(&mut batch);
        batch
    });
    let report = run(&dir);
    assert!(
        report.leaked > 0 && report.notes.iter().any(|n| n.contains("no file names")),
        "{report:#?}"
    );
    // It claims another log's place, which only damage does.
    finds(&report, "segments", "belongs to log");
}

#[test]
fn an_entry_without_its_inode_is_found() {
    let dir = service();
    change(&dir, 0, |store| {
        let (key, _) = keys::all(store, keys::INODES).last().unwrap().unwrap();
        let mut batch = Batch::new();
        batch.delete(keys::INODES, key);
        batch
    });
    let report = run(&dir);
    finds(&report, "namespace", "does not exist");
    finds(&report, "files", "does not exist");
}

#[test]
fn removed_directories_are_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let service = start(dir.path());
    let files = |service: &Service| {
        let status = service.status().unwrap();
        status.iter().map(|m| m.files.unwrap()).sum::<u64>()
    };
    assert_eq!(files(&service), 1, "the root");
    let new = NewInode::new(Kind::Dir, 0o755);
    for i in 0..6 {
        let name = format!("d{i}");
        let delegate = service.delegate(i % 2);
        delegate
            .names
            .make(Fid::ROOT, name.as_bytes(), new.clone(), ME)
            .unwrap();
        if i < 4 {
            delegate
                .names
                .rmdir(Fid::ROOT, name.as_bytes(), ME)
                .unwrap();
        }
    }
    assert_eq!(files(&service), 3);
    service.stop().unwrap();
    assert_eq!(run(&dir).files, 3);
}

#[test]
fn what_is_no_service_or_in_use_is_refused() {
    let empty = tempfile::tempdir().unwrap();
    let refused = |dir: &Path| {
        check(Arc::new(OsIo), &[dir.into()], ByteCheck::Bytes, &mut |_| {})
            .unwrap_err()
            .to_string()
    };
    assert!(refused(empty.path()).contains("not the store of a Forebay service"));
    assert_eq!(
        empty.path().read_dir().unwrap().count(),
        0,
        "the check made something"
    );
    assert!(refused(&empty.path().join("nothing")).contains("not the store"));
    let dir = service();
    assert!(refused(&dir.path().join("node-0")).contains("directory above it"));
    let running = start(dir.path());
    assert!(refused(dir.path()).contains("in use"));
    running.stop().unwrap();
    assert_eq!(run(&dir).problems, []);
}

fn settling() -> Config {
    Config {
        settle: crate::SettleConfig {
            enabled: true,
            ..crate::SettleConfig::default()
        },
        ..Config::default()
    }
}

/// A stopped service of one member, with two files of the same bytes that are settled.
fn settled() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    settle_in(&dir);
    dir
}

fn settle_in(dir: &TempDir) {
    let service = Service::start(Arc::new(OsIo), dir.path(), settling()).unwrap();
    let bytes = forebay_testkit::random::seeded_bytes(5, 1 << 20);
    let delegate = service.delegate(0);
    for name in ["one", "two"] {
        let name = name.as_bytes();
        let opened = delegate
            .create(Fid::ROOT, name, 0o644, true, WRITE, ME)
            .unwrap();
        delegate.write(opened.handle, 0, &bytes, ME).unwrap();
        delegate.flush(opened.handle).unwrap();
        delegate.release(opened.handle).unwrap();
    }
    forebay_testkit::wait::until("all is settled", || {
        let status = &service.status().unwrap()[0];
        status.settled_bytes == 2 << 20
    });
    let status = &service.status().unwrap()[0];
    assert!(status.stored_bytes < (1 << 20) + 20_000, "{status:?}");
    assert_eq!(status.data_bytes, 2 << 20);
    service.stop().unwrap();
}

fn first_container(store: &Store) -> Container {
    container::all(store).next().unwrap().unwrap()
}

#[test]
fn a_sound_settled_service_has_no_problems_and_shared_bytes_are_read_once() {
    let dir = settled();
    let report = run(&dir);
    assert_eq!(report.problems, []);
    assert_eq!(report.notes, Vec::<String>::new());
    assert!(report.containers > 0 && report.bytes < (1 << 20) + 20_000);
    assert_eq!(run(&dir), report, "the check changed something");
}

#[test]
fn a_flipped_bit_in_a_shared_chunk_is_told_of_each_file_that_has_it() {
    let dir = settled();
    let mut place = None;
    change(&dir, 0, |store| {
        place = Some(first_container(store).places(|i| i == 0)[0]);
        Batch::new()
    });
    let place = place.unwrap();
    let segment = segment_header::name(place.segment);
    let path = dir.path().join("node-0/data").join(segment);
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, place.start).unwrap();
    file.write_all_at(&[byte[0] ^ 1], place.start).unwrap();
    let report = run(&dir);
    for name in [
        "/one from 0 to 4096",
        "/two from 0 to 4096",
        "container 1 chunk 0",
    ] {
        finds(&report, "data", name);
    }
    assert_eq!(report.problems.len(), 2, "{:#?}", report.problems);
}

#[test]
fn wrong_counts_are_found_and_a_repair_makes_them_anew() {
    let dir = settled();
    change(&dir, 0, |store| {
        let container = first_container(store);
        let mut counts = container::load_counts(store, &container).unwrap();
        // As if one of both had been freed twice.
        counts.0[3] -= 1;
        let mut batch = Batch::new();
        let key = RecordKind::Counts.key(container.id);
        batch.put(keys::CONTAINERS, key.to_vec(), counts.value());
        batch
    });
    let report = run(&dir);
    finds(
        &report,
        "counts",
        "container 1 chunk 3: spans and bases name it 2 times, its count is 1",
    );
    assert_eq!(report.problems.len(), 1, "{:#?}", report.problems);
    let repair = crate::repair::Repair::prepare(&[dir.path().into()], &mut |_| {}).unwrap();
    assert!(repair.is_needed());
    let told = |line: &String| line.contains("counts of chunks");
    assert!(
        repair.losses().damage.iter().any(told),
        "{:?}",
        repair.losses()
    );
    repair.put_in_place().unwrap();
    drop(repair);
    assert_eq!(run(&dir).problems, []);
    let service = Service::start(Arc::new(OsIo), dir.path(), Config::default()).unwrap();
    let delegate = service.delegate(0);
    delegate.names.unlink(Fid::ROOT, b"one", ME).unwrap();
    let two = delegate.names.lookup(Fid::ROOT, b"two").unwrap();
    let handle = delegate.open(two.fid, WRITE).unwrap().handle;
    let bytes = forebay_testkit::random::seeded_bytes(5, 1 << 20);
    assert!(delegate.read(handle, 0, 1 << 20).unwrap()[..] == bytes);
    delegate.release(handle).unwrap();
    service.stop().unwrap();
    assert_eq!(run(&dir).problems, []);
}

#[test]
fn a_wrong_fingerprint_is_found_and_a_repair_removes_it() {
    let dir = settled();
    let other = forebay_testkit::random::seeded_bytes(6, 4096);
    let mut chunk = 0;
    change(&dir, 0, |store| {
        let container = first_container(store);
        let id = container.id;
        let mut known = container::load_fingerprints(store, id).unwrap().unwrap();
        let page = |i: usize| container.positions(i).end - container.positions(i).start == 4096;
        chunk = (3..container.count())
            .find(|i| page(*i) && known.of[*i].is_some())
            .unwrap();
        known.of[chunk] = Some(known.kind.of(&other));
        let key = RecordKind::Fingerprints.key(id).to_vec();
        let mut batch = Batch::new();
        batch.put(keys::CONTAINERS, key, known.value());
        // The index is filled from the containers: as if it had been so when the service stopped.
        batch.delete(keys::CONTAINERS, container::keys::SAVED_INDEX.to_vec());
        batch
    });
    let report = run(&dir);
    let text =
        format!("container 1: the fingerprints of 1 chunks, the first of them chunk {chunk},");
    finds(&report, "fingerprints", &text);
    assert_eq!(report.problems.len(), 1, "{:#?}", report.problems);
    let repair = crate::repair::Repair::prepare(&[dir.path().into()], &mut |_| {}).unwrap();
    let told =
        |line: &String| line.contains("the fingerprints of 1 chunks are not those of their bytes");
    let damage = &repair.losses().damage;
    assert!(damage.iter().any(told), "{damage:?}");
    repair.put_in_place().unwrap();
    drop(repair);
    assert_eq!(run(&dir).problems, []);
    change(&dir, 0, |store| {
        let id = first_container(store).id;
        let stored = container::load_fingerprints(store, id).unwrap().unwrap();
        assert_eq!(stored.of[chunk], None);
        assert!(stored.of.iter().flatten().count() > 100);
        Batch::new()
    });
    let bytes = [other, forebay_testkit::random::seeded_bytes(7, 1 << 20)].concat();
    assert_is_stored_right(&dir, &bytes);
}

/// A file of these bytes is written, settles, and reads as it was written.
#[track_caller]
fn assert_is_stored_right(dir: &TempDir, bytes: &[u8]) {
    let service = Service::start(Arc::new(OsIo), dir.path(), settling()).unwrap();
    let before = service.status().unwrap()[0].settled_bytes;
    let delegate = service.delegate(0);
    let opened = delegate.create(Fid::ROOT, b"three", 0o644, true, WRITE, ME);
    let opened = opened.unwrap();
    delegate.write(opened.handle, 0, bytes, ME).unwrap();
    delegate.flush(opened.handle).unwrap();
    forebay_testkit::wait::until("it is settled", || {
        service.status().unwrap()[0].settled_bytes >= before + bytes.len() as u64
    });
    let read = delegate.read(opened.handle, 0, bytes.len() as u32).unwrap();
    assert!(read[..] == *bytes);
    delegate.release(opened.handle).unwrap();
    service.stop().unwrap();
    assert_eq!(run(dir).problems, []);
}

#[test]
fn a_repair_gives_no_container_the_number_of_another_when_the_counter_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::default();
    Service::start(Arc::new(OsIo), dir.path(), config)
        .and_then(Service::stop)
        .unwrap();
    // As in a store that has made very many.
    let far = 1 << 30;
    let counter = |n: u64| {
        let mut batch = Batch::new();
        batch.put(keys::COUNTERS, "container", n.to_be_bytes().to_vec());
        batch
    };
    change(&dir, 0, |_| counter(far));
    settle_in(&dir);
    let mut largest = 0;
    change(&dir, 0, |store| {
        largest = container::all(store).map(|c| c.unwrap().id).max().unwrap();
        // So that there is something to repair.
        let mut lost = Batch::new();
        lost.delete(keys::COUNTERS, "container");
        let container = first_container(store);
        lost.delete(
            keys::CONTAINERS,
            RecordKind::Counts.key(container.id).to_vec(),
        );
        lost
    });
    assert!(largest >= far);
    let repair = crate::repair::Repair::prepare(&[dir.path().into()], &mut |_| {}).unwrap();
    repair.put_in_place().unwrap();
    drop(repair);
    let mut next = 0;
    change(&dir, 0, |store| {
        let told = store.get(keys::COUNTERS, b"container").unwrap().unwrap();
        next = u64::from_be_bytes(told[..].try_into().unwrap());
        Batch::new()
    });
    assert!(next > largest, "{next} comes again");
}

#[test]
fn a_lost_container_costs_what_names_it_and_a_repair_says_so() {
    let dir = settled();
    change(&dir, 0, |store| {
        let container = first_container(store);
        let mut batch = Batch::new();
        for kind in RecordKind::ALL {
            batch.delete(keys::CONTAINERS, kind.key(container.id).to_vec());
        }
        batch
    });
    let report = run(&dir);
    for name in [
        "/one from ",
        "/two from ",
        "container 1: there is no record of it",
    ] {
        finds(&report, "data", name);
    }
    let repair = crate::repair::Repair::prepare(&[dir.path().into()], &mut |_| {}).unwrap();
    repair.put_in_place().unwrap();
    drop(repair);
    let report = run(&dir);
    assert_eq!(report.problems, []);
    assert!(report.lost > 0);
    // The index that was saved has the lost container's chunks; they are not found by it.
    assert!(
        dir.path()
            .join("node-0/data")
            .join(forebay_data::INDEX_FILE)
            .exists()
    );
    assert_is_stored_right(&dir, &forebay_testkit::random::seeded_bytes(5, 1 << 20));
    // What is left of it can be removed.
    let service = Service::start(Arc::new(OsIo), dir.path(), Config::default()).unwrap();
    for name in ["one", "two", "three"] {
        let names = &service.delegate(0).names;
        names.unlink(Fid::ROOT, name.as_bytes(), ME).unwrap();
    }
    service.nodes()[0].files.drain().unwrap();
    service.stop().unwrap();
    let report = run(&dir);
    assert_eq!((report.problems, report.containers), (Vec::new(), 0));
}
