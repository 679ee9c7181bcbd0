//! Out of quota: `ENOSPC` to the writer, earlier data intact, and deleting makes room again.
use crate::common::*;
use forebay_fabric::fault::{FaultRates, Faults};
use forebay_server::{Config, Fid, OpenFlags, Service};
use rustix::io::Errno;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A service whose members may have a MiB of data each.
fn start_small(dir: &TempDir, nodes: u16) -> Service {
    let quota = Some(1 << 20);
    let config = config(nodes);
    start(dir, Config { quota, ..config })
}

#[test]
fn deleting_on_a_full_store_makes_room() {
    let dir = scratch();
    let service = start_small(&dir, 2);
    let (here, there) = (service.delegate(0), service.delegate(1));
    let mut files = Vec::new();
    let error = loop {
        let (fid, handle) = create(&here, &format!("f{}", files.len()));
        let wrote = here.write(handle, 0, &[files.len() as u8; 100_000], ROOT);
        here.release(handle).unwrap();
        match wrote {
            Ok(_) => files.push(fid),
            Err(e) => break e,
        }
    };
    assert_eq!((error.errno(), files.len()), (Errno::NOSPC, 10));
    for (i, fid) in files.iter().enumerate() {
        assert_eq!(contents(&there, *fid), vec![i as u8; 100_000]);
    }
    assert!(here.names.statfs().unwrap().free < 100_000);
    assert!(
        there.names.statfs().unwrap().free >= 1 << 20,
        "the other member has room"
    );
    here.names.unlink(Fid::ROOT, b"f0", ROOT).unwrap();
    here.names.unlink(Fid::ROOT, b"f1", ROOT).unwrap();
    wait_until_idle(&service);
    let (fid, handle) = create(&here, "new");
    here.write(handle, 0, &[77; 150_000], ROOT).unwrap();
    here.release(handle).unwrap();
    assert_eq!(contents(&there, fid), vec![77; 150_000]);
}

#[test]
fn bytes_replaced_before_they_were_committed_take_no_room() {
    let dir = scratch();
    let service = start_small(&dir, 1);
    let delegate = service.delegate(0);
    let (fid, handle) = create(&delegate, "f");
    for pass in 0..40 {
        for part in 0..4 {
            let written = delegate.write(handle, part * 100_000, &[pass; 100_000], ROOT);
            assert!(written.is_ok(), "pass {pass}: {written:?}");
        }
    }
    delegate.release(handle).unwrap();
    assert_eq!(contents(&delegate, fid), vec![39; 400_000]);
}

#[test]
fn a_deleted_file_makes_room_for_the_next_at_once() {
    for nodes in [1, 2] {
        let dir = scratch();
        let service = start_small(&dir, nodes);
        let delegate = service.delegate(0);
        for i in 0..30 {
            let (_, handle) = create(&delegate, "f");
            let written = delegate.write(handle, 0, &[i; 700_000], ROOT);
            assert!(written.is_ok(), "file {i} of {nodes} nodes: {written:?}");
            delegate.release(handle).unwrap();
            delegate.names.unlink(Fid::ROOT, b"f", ROOT).unwrap();
        }
    }
}

#[test]
fn a_file_is_overwritten_where_there_is_no_room_for_it_twice() {
    for (nodes, append) in [(1, false), (1, true), (2, false)] {
        let dir = scratch();
        let service = start_small(&dir, nodes);
        let delegate = service.delegate(0);
        // Also what lies in slices of the other member.
        let at = |i: u64| (i % 2) * SLICE + i * 50_000;
        let (fid, handle) = create(&delegate, "f");
        for i in 0..14 {
            delegate.write(handle, at(i), &[1; 50_000], ROOT).unwrap();
        }
        delegate.fsync(handle).unwrap();
        for i in 0..14 {
            let written = delegate.write(handle, at(i), &[2; 50_000], ROOT);
            assert!(written.is_ok(), "part {i} of {nodes} nodes: {written:?}");
        }
        // Another file's pending bytes take the place of committed ones too.
        let flags = OpenFlags { append, ..BOTH };
        let opened = delegate
            .create(Fid::ROOT, b"g", 0o644, false, flags, ROOT)
            .unwrap();
        for i in 0..12 {
            delegate.write(handle, at(i), &[3; 50_000], ROOT).unwrap();
            let written = delegate.write(opened.handle, i * 20_000, &[4; 20_000], ROOT);
            assert!(written.is_ok(), "part {i} of {nodes} nodes: {written:?}");
        }
        delegate.release(opened.handle).unwrap();
        delegate.release(handle).unwrap();
        let opened = delegate.open(fid, READ).unwrap();
        for i in 0..14 {
            let byte = if i < 12 { 3 } else { 2 };
            let read = delegate.read(opened.handle, at(i), 50_000).unwrap();
            assert!(read[..] == [byte; 50_000], "part {i} of {nodes} nodes");
        }
        delegate.release(opened.handle).unwrap();
    }
}

#[test]
fn a_write_that_waits_for_space_is_woken_when_some_is_freed() {
    let (dir, faults) = (scratch(), Faults::new(1));
    // So long a deadline that the write ends in time only if it is woken.
    let config = Config {
        quota: Some(1 << 20),
        deadline: Duration::from_secs(600),
        ..config(2)
    };
    let service = start_faulty(&dir, config, &faults);
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (owed, created) = create(&here, "owed");
    let handle = there.open(owed, BOTH).unwrap().handle;
    there.write(handle, 0, &[1; 1000], ROOT).unwrap();
    there.release(handle).unwrap();
    here.release(created).unwrap();
    let (_, old) = create(&here, "old");
    here.write(old, 0, &[2; 900_000], ROOT).unwrap();
    here.release(old).unwrap();
    wait_until_idle(&service);
    let (new, handle) = create(&here, "new");
    // This member has something to free, and cannot: so a write may hope for space, and waits.
    faults.set(FaultRates {
        lose_request: 1000,
        ..FaultRates::default()
    });
    here.names.unlink(Fid::ROOT, b"owed", ROOT).unwrap();
    let freed = service.nodes()[0].data.space_freed().clone();
    std::thread::scope(|scope| {
        let write = scope.spawn(|| here.write(handle, 0, &[3; 500_000], ROOT));
        let far = Instant::now() + Duration::from_secs(60);
        while freed.waiters() == 0 && !write.is_finished() && Instant::now() < far {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!write.is_finished(), "{:?}", write.join());
        here.names.unlink(Fid::ROOT, b"old", ROOT).unwrap();
        write.join().unwrap().unwrap();
    });
    faults.set(FaultRates::default());
    here.release(handle).unwrap();
    assert_eq!(contents(&there, new), vec![3; 500_000]);
}

#[test]
fn the_free_room_of_a_node_is_what_its_writers_find() {
    let dir = scratch();
    let quota = Some(4 << 20);
    let service = start(&dir, Config { quota, ..config(4) });
    let delegates: Vec<_> = (0..4).map(|k| service.delegate(k)).collect();
    let (_, handle) = create(&delegates[0], "f");
    delegates[0]
        .write(handle, 0, &vec![1; 4 << 20], ROOT)
        .unwrap();
    let (_, other) = create(&delegates[1], "g");
    delegates[1]
        .write(other, 0, &vec![1; 1 << 20], ROOT)
        .unwrap();
    for (k, free) in [(0, 0), (1, 3 << 20), (2, 4 << 20)] {
        let space = delegates[k].names.statfs().unwrap();
        assert_eq!(space.free, free, "node {k}");
        assert_eq!(space.total - space.free, 5 << 20, "used, seen from {k}");
    }
    let refused = delegates[0].write(handle, 4 << 20, &[1], ROOT);
    assert_eq!(refused.unwrap_err().errno(), Errno::NOSPC);
    delegates[0].release(handle).unwrap();
    delegates[1].release(other).unwrap();
}
