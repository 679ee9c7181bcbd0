//! What one fsync costs, and what it promises: how often the logs of the members' stores are synced, by where the file's
//! parts lie, and that a power failure right after it loses nothing.
use crate::common::*;
use forebay_server::delegate::Delegate;
use forebay_server::{Config, Fid, Kind, NewInode, Service};
use forebay_storage::Io;
use forebay_storage::fault::{Call, FaultIo, HeldSync, HookedIo};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn start(io: Arc<dyn Io>) -> Service {
    let config = Config {
        nodes: 2,
        memory: 16 << 20,
        ..Config::default()
    };
    Service::start(io, Path::new("/nowhere/store"), config).unwrap()
}

/// A directory whose files belong to this member.
fn directory_of(delegate: &Delegate, member: u16) -> (Fid, String) {
    (0..)
        .map(|i| format!("dir{member}.{i}"))
        .find_map(|name| {
            let new = NewInode::new(Kind::Dir, 0o755);
            let made = delegate
                .names
                .make(Fid::ROOT, name.as_bytes(), new, ROOT)
                .unwrap();
            (made.fid.owner() == member).then_some((made.fid, name))
        })
        .unwrap()
}

/// `handles` handles of node 0 write a file of `owner`, `at` the given offset each; one fsync; how many logs it synced.
fn syncs_of_an_fsync(owner: u16, handles: u64, at: u64) -> u64 {
    let disk = FaultIo::new(u64::from(owner) + at);
    let syncs = Arc::new(AtomicU64::new(0));
    let counter = syncs.clone();
    let io = HookedIo::new(disk.clone(), move |path, call| {
        // Of write-ahead logs.
        if matches!(call, Call::Sync) && path.extension().is_some_and(|e| e == "log") {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    let service = start(Arc::new(io));
    let delegate = service.delegate(0);
    let (dir, dir_name) = directory_of(&delegate, owner);
    let mut last = 0;
    // The first file pays for numbers that are reserved on disk, and for new files.
    for name in ["first", "second"] {
        let made = delegate
            .create(dir, name.as_bytes(), 0o644, true, BOTH, ROOT)
            .unwrap();
        assert_eq!(made.attr.fid.owner(), owner);
        let mut open = vec![made.handle];
        open.extend((1..handles).map(|_| delegate.open(made.attr.fid, BOTH).unwrap().handle));
        for (i, handle) in open.iter().enumerate() {
            let offset = at + 1000 * i as u64;
            delegate.write(*handle, offset, &[7; 1000], ROOT).unwrap();
        }
        let before = syncs.load(Ordering::SeqCst);
        delegate.fsync(open[0]).unwrap();
        last = syncs.load(Ordering::SeqCst) - before;
    }
    delegate.names.sync_directory(dir).unwrap();
    let after = FaultIo::with_image(&disk.crash(), 1);
    drop((delegate, service));
    let service = start(Arc::new(after));
    let delegate = service.delegate(1);
    let dir = delegate
        .names
        .lookup(Fid::ROOT, dir_name.as_bytes())
        .unwrap()
        .fid;
    for name in ["first", "second"] {
        let fid = delegate.names.lookup(dir, name.as_bytes()).unwrap().fid;
        let handle = delegate.open(fid, READ).unwrap().handle;
        let read = delegate.read(handle, at, 1 << 20).unwrap();
        assert_eq!(read[..], vec![7; 1000 * handles as usize]);
    }
    last
}

#[test]
fn a_file_of_this_node_is_synced_once() {
    assert_eq!(syncs_of_an_fsync(0, 1, 0), 1);
    assert_eq!(syncs_of_an_fsync(0, 3, 0), 1, "however many handles wrote");
}

#[test]
fn a_file_of_another_node_is_synced_there_and_its_bytes_here() {
    assert_eq!(syncs_of_an_fsync(1, 1, 0), 2);
    assert_eq!(syncs_of_an_fsync(1, 3, 0), 2, "however many handles wrote");
}

#[test]
fn a_commit_over_two_members_is_staged_decided_and_published() {
    for owner in [0, 1] {
        assert_eq!(syncs_of_an_fsync(owner, 1, SLICE - 100), 3, "owner {owner}");
        assert_eq!(syncs_of_an_fsync(owner, 3, SLICE - 100), 3, "owner {owner}");
    }
}

#[test]
fn an_fsync_waits_for_another_one_that_has_taken_its_work_and_fails_with_it() {
    // Of segment files.
    let is_data = |path: &Path| path.parent().is_some_and(|dir| dir.ends_with("data"));
    let (disk, held) = HeldSync::of(FaultIo::new(3), is_data);
    let service = start(Arc::new(disk));
    let delegate = service.delegate(0);
    let (dir, _) = directory_of(&delegate, 0);
    let made = delegate.create(dir, b"f", 0o644, true, BOTH, ROOT).unwrap();
    delegate.write(made.handle, 0, &[7; 300_000], ROOT).unwrap();
    // Published, and not on disk.
    delegate.flush(made.handle).unwrap();
    let others = [(); 2].map(|()| delegate.open(made.attr.fid, BOTH).unwrap().handle);
    held.arm();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| delegate.fsync(made.handle));
        held.wait_reached();
        let delegate = &delegate;
        let others = others.map(|handle| scope.spawn(move || delegate.fsync(handle)));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(others.iter().all(|other| !other.is_finished()));
        held.fail();
        assert!(first.join().unwrap().is_err());
        for other in others {
            assert!(other.join().unwrap().is_err());
        }
    });
    drop((delegate, service));
}
