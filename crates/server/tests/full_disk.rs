//! A full disk: `ENOSPC` to the writer, nothing lost, deleting works and makes room, and a restart finds it all.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod common;
use common::*;
use forebay_server::{Config, Fid, Service};
use forebay_storage::fault::FaultIo;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

fn start_on(disk: &FaultIo) -> Service {
    let config = Config {
        nodes: 2,
        memory: 16 << 20,
        ..Config::default()
    };
    Service::start(Arc::new(disk.clone()), Path::new("/nowhere/store"), config).unwrap()
}

#[test]
fn deleting_on_a_full_disk_makes_room() {
    let disk = FaultIo::new(5);
    let service = start_on(&disk);
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
        here.unlink(Fid::ROOT, name.as_bytes(), ROOT).unwrap();
    }
    settle(&service);
    // Bytes are punched out of segments in the background: until then a write may still find no room, and no write that
    // found none keeps the next from succeeding.
    let write = || {
        let opened = here.create(Fid::ROOT, b"new", 0o644, false, BOTH, ROOT)?;
        let written = here.write(opened.handle, 0, &vec![200; 1_000_000], ROOT);
        let synced = written.and_then(|()| here.fsync(opened.handle));
        synced.and(here.release(opened.handle))
    };
    let room = (0..12_000).any(|_| match write() {
        Ok(()) => true,
        Err(e) => {
            assert_eq!(e.errno(), Errno::NOSPC, "{e}");
            std::thread::sleep(std::time::Duration::from_millis(5));
            false
        }
    });
    assert!(
        room,
        "deleting made no room: {} used, {:?}",
        disk.used(),
        service.status().unwrap()
    );
    let fid = here.lookup(Fid::ROOT, b"new").unwrap().fid;
    assert_eq!(contents(&there, fid), vec![200; 1_000_000]);
    service.stop().unwrap();
    drop((here, there));
    let service = start_on(&disk);
    for (_, fid, byte) in &kept {
        assert_eq!(contents(&service.delegate(1), *fid), vec![*byte; 300_000]);
    }
    service.stop().unwrap();
}
