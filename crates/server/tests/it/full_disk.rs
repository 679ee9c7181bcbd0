//! A full disk: `ENOSPC` to the writer, nothing lost, deleting works and makes room, and a restart finds it all.
use crate::common::*;
use forebay_server::MemberStatus;
use forebay_server::delegate::{Delegate, Handle};
use forebay_server::{Fid, Kind, NewInode, RenameFlags, Service};
use forebay_storage::fault::FaultIo;
use forebay_testkit::wait::{LIMIT, until_or};
use rustix::io::Errno;

#[test]
fn deleting_on_a_full_disk_makes_room() {
    let disk = FaultIo::new(5);
    let service = start_on(&disk, config(2));
    disk.set_capacity(disk.used() + (24 << 20));
    let here = service.delegate(0);
    let mut kept: Vec<(String, Fid, u8)> = Vec::new();
    // Fills the disk with files; the one that does not fit stays empty or is taken away again.
    let error = (0..1000u32).find_map(|i| {
        let (name, byte) = (format!("f{i}"), (i % 255) as u8 + 1);
        let attempt = || {
            let (fid, handle) = (|| {
                let opened = here.create(Fid::ROOT, name.as_bytes(), 0o644, false, BOTH, ROOT)?;
                Ok::<_, forebay_server::Error>((opened.attr.fid, opened.handle))
            })()?;
            let written = here.write(handle, 0, &vec![byte; 300_000], ROOT);
            let closed = here.release(handle);
            written.and(closed).map(|()| fid)
        };
        match attempt() {
            Ok(fid) => {
                kept.push((name, fid, byte));
                None
            }
            Err(e) => Some(e),
        }
    });
    let error = error.expect("the disk gets full");
    assert_eq!(error.errno(), Errno::NOSPC, "{error}");
    assert!(kept.len() > 20);
    let there = service.delegate(1);
    for (_, fid, byte) in &kept {
        assert_eq!(contents(&there, *fid), vec![*byte; 300_000]);
    }
    let gone = kept.split_off(kept.len() / 2);
    for (name, ..) in &gone {
        here.names.unlink(Fid::ROOT, name.as_bytes(), ROOT).unwrap();
    }
    wait_until_idle(&service);
    // Bytes are punched out of segments in the background: until then a write may still find no room, and no write that
    // found none keeps the next from succeeding.
    let write = || {
        let opened = here.create(Fid::ROOT, b"new", 0o644, false, BOTH, ROOT)?;
        let written = here.write(opened.handle, 0, &vec![200; 1_000_000], ROOT);
        let synced = written.and_then(|_| here.fsync(opened.handle));
        synced.and(here.release(opened.handle))
    };
    comes(&service, || match write() {
        Ok(()) => true,
        Err(e) => {
            assert_eq!(e.errno(), Errno::NOSPC, "{e}");
            false
        }
    });
    let fid = here.names.lookup(Fid::ROOT, b"new").unwrap().fid;
    assert_eq!(contents(&there, fid), vec![200; 1_000_000]);
    service.stop().unwrap();
    drop((here, there));
    let service = start_on(&disk, config(2));
    for (_, fid, byte) in &kept {
        assert_eq!(contents(&service.delegate(1), *fid), vec![*byte; 300_000]);
    }
    service.stop().unwrap();
}

/// Writes a file of `MIB` and a bit more, then lets the disk be full, so that the bit finds no room at the close.
fn closed_without_room(disk: &FaultIo, here: &Delegate, name: &str) -> Fid {
    let (fid, handle) = create(here, name);
    for i in 0..MIB {
        here.write(handle, i << 20, &vec![i as u8; 1 << 20], ROOT)
            .unwrap();
    }
    here.write(handle, MIB << 20, &[99; 100_000], ROOT).unwrap();
    disk.set_capacity(disk.used());
    assert_eq!(here.release(handle).unwrap_err().errno(), Errno::NOSPC);
    fid
}

const MIB: u64 = 6;

/// Waits for what happens in the background, or fails.
fn comes(service: &Service, what: impl Fn() -> bool) {
    until_or(LIMIT, || format!("{:?}", service.status().unwrap()), what);
}

#[test]
fn a_file_whose_close_found_no_room_gives_it_back_when_it_is_removed() {
    // Removed where it was written, elsewhere, and by a rename over it.
    for way in 0..3 {
        let disk = FaultIo::new(6);
        let service = start_on(&disk, config(2));
        let (here, there) = (service.delegate(0), service.delegate(1));
        if way == 2 {
            let (_, handle) = create(&here, "small");
            here.release(handle).unwrap();
        }
        closed_without_room(&disk, &here, "big");
        assert!(stored(&service)[0].0 > MIB << 20);
        match way {
            0 => here.names.unlink(Fid::ROOT, b"big", ROOT).unwrap(),
            1 => there.names.unlink(Fid::ROOT, b"big", ROOT).unwrap(),
            _ => here
                .names
                .rename(
                    Fid::ROOT,
                    b"small",
                    Fid::ROOT,
                    b"big",
                    RenameFlags::default(),
                    ROOT,
                )
                .unwrap(),
        }
        comes(&service, || {
            let status = service.status().unwrap();
            let open = |s: &MemberStatus| s.open_files == 0 && s.data_bytes == 0;
            status.iter().all(open) && service.nodes().iter().all(|n| n.files.open_files() == 0)
        });
        let write = |name: &str| {
            let opened = here.create(Fid::ROOT, name.as_bytes(), 0o644, false, BOTH, ROOT)?;
            let written = here.write(opened.handle, 0, &vec![5; 1 << 20], ROOT);
            written.and(here.release(opened.handle))
        };
        comes(&service, || write("new").is_ok());
        let fid = here.names.lookup(Fid::ROOT, b"new").unwrap().fid;
        assert!(contents(&there, fid) == vec![5; 1 << 20]);
        service.stop().unwrap();
    }
}

#[test]
fn what_a_close_could_not_publish_is_published_when_there_is_room() {
    let disk = FaultIo::new(7);
    let service = start_on(&disk, config(2));
    let fid = closed_without_room(&disk, &service.delegate(0), "big");
    let there = service.delegate(1);
    assert_eq!(there.names.getattr(fid).unwrap().size, 0);
    disk.set_capacity(disk.used() + (64 << 20));
    let whole = (MIB << 20) + 100_000;
    comes(&service, || there.names.getattr(fid).unwrap().size == whole);
    comes(&service, || {
        service.status().unwrap().iter().all(|s| s.open_files == 0)
    });
    assert_eq!(contents(&there, fid)[(MIB as usize) << 20..], [99; 100_000]);
    service.stop().unwrap();
}

#[test]
fn a_service_stops_well_with_a_removed_file_that_found_no_room() {
    for closed in [true, false] {
        let disk = FaultIo::new(8);
        let service = start_on(&disk, config(2));
        let here = service.delegate(0);
        let (_, handle) = create(&here, "big");
        here.write(handle, 0, &vec![1; 4 << 20], ROOT).unwrap();
        here.write(handle, 4 << 20, &[99; 100_000], ROOT).unwrap();
        disk.set_capacity(disk.used());
        here.names.unlink(Fid::ROOT, b"big", ROOT).unwrap();
        if closed {
            let _ = here.release(handle);
        }
        service.stop().unwrap();
    }
}

#[test]
fn what_a_write_accepted_on_a_full_disk_is_published_and_found_again() {
    let disk = FaultIo::new(9);
    let service = start_on(&disk, config(2));
    disk.set_capacity(disk.used() + (20 << 20));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let mut files: Vec<(&Delegate, Fid, Handle, Vec<u8>)> = Vec::new();
    for i in 0..6u8 {
        let delegate = [&*here, &*there][usize::from(i % 2)];
        let (fid, handle) = create(delegate, &format!("f{i}"));
        files.push((delegate, fid, handle, Vec::new()));
    }
    // Large writes go to the disk at once, small ones stay in memory.
    let mut refused = 0;
    for round in 0u64.. {
        for (delegate, _, handle, content) in &mut files {
            let len = if round.is_multiple_of(5) {
                400_000
            } else {
                9_000
            };
            let bytes = vec![round as u8 + 1; len];
            match delegate.write(*handle, content.len() as u64, &bytes, ROOT) {
                Ok(_) => content.extend(bytes),
                Err(e) => {
                    assert_eq!(e.errno(), Errno::NOSPC, "{e}");
                    refused += 1;
                }
            }
        }
        if refused > 20 {
            break;
        }
    }
    for (delegate, _, handle, _) in &files {
        delegate.release(*handle).unwrap();
    }
    let written: usize = files.iter().map(|f| f.3.len()).sum();
    assert!(written > 8 << 20, "only {written} bytes found room");
    assert_eq!(here.names.statfs().unwrap().free / 400_000, 0);
    // Names still find room.
    let dir = NewInode::new(Kind::Dir, 0o755);
    here.names.make(Fid::ROOT, b"d", dir, ROOT).unwrap();
    let expected: Vec<(Fid, Vec<u8>)> = files.into_iter().map(|f| (f.1, f.3)).collect();
    service.stop().unwrap();
    drop((here, there));
    let service = start_on(&disk, config(2));
    for (fid, content) in &expected {
        assert!(contents(&service.delegate(1), *fid) == *content);
    }
    service.stop().unwrap();
}
