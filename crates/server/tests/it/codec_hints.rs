//! The codec hints of files: by names, with opens, and in logs.
use crate::common::*;
use forebay_server::delegate::{Delegate, PrefetchConfig, PrefetchPolicy};
use forebay_server::{
    CODEC_XATTR, CodecConfig, CodecWhen, Config, Fid, Kind, NewInode, RenameFlags,
};
use std::sync::Arc;

fn named(nodes: u16, names: &str) -> Config {
    Config {
        codec: CodecConfig {
            names: Arc::new(names.parse().unwrap()),
            ..CodecConfig::default()
        },
        ..config(nodes)
    }
}

fn mkdir(delegate: &Delegate, parent: Fid, name: &str) -> Fid {
    let new = NewInode::new(Kind::Dir, 0o755);
    let made = delegate.names.make(parent, name.as_bytes(), new, ROOT);
    made.unwrap().fid
}

/// The hint of a file that is made so.
fn made(delegate: &Delegate, parent: Fid, name: &str) -> Option<String> {
    let opened = delegate.create(parent, name.as_bytes(), 0o644, true, BOTH, ROOT);
    let opened = opened.unwrap();
    delegate.release(opened.handle).unwrap();
    opened.attr.codec.map(|hint| hint.to_string())
}

fn set(delegate: &Delegate, fid: Fid, hint: &str) {
    let (name, value) = (CODEC_XATTR.as_bytes(), hint.as_bytes());
    let set = delegate.names.setxattr(fid, name, value, false, false);
    set.unwrap();
}

#[test]
fn names_choose_where_nobody_says_anything() {
    let dir = scratch();
    let service = start(&dir, named(3, "*.nc=field,f32; **/ckpt/*=zstd"));
    let here = service.delegate(0);
    assert_eq!(made(&here, Fid::ROOT, "a.nc").unwrap(), "field,f32");
    assert_eq!(made(&here, Fid::ROOT, "a.txt"), None);
    let new = NewInode::new(Kind::File, 0o644);
    let node = here.names.make(Fid::ROOT, b"node.nc", new, ROOT).unwrap();
    assert_eq!(node.codec, Some("field,f32".parse().unwrap()));
    let new = NewInode::new(Kind::Fifo, 0o644);
    let fifo = here.names.make(Fid::ROOT, b"fifo.nc", new, ROOT).unwrap();
    assert_eq!(fifo.codec, None);
    let run = mkdir(&here, Fid::ROOT, "run");
    let ckpt = mkdir(&here, run, "ckpt");
    assert_eq!(made(&here, ckpt, "1").unwrap(), "zstd");
    assert_eq!(made(&here, ckpt, "1.nc").unwrap(), "field,f32");
    set(&here, ckpt, "auto");
    assert_eq!(made(&here, ckpt, "2").unwrap(), "auto");
    service.stop().unwrap();
}

#[test]
fn a_path_is_that_of_now_and_is_found_by_nodes_that_never_saw_it() {
    let dir = scratch();
    let service = start(&dir, named(3, "run/ckpt/*=zstd; old/*/*=lz4"));
    let (here, there) = (service.delegate(0), service.delegate(2));
    let run = mkdir(&here, Fid::ROOT, "run");
    let ckpt = mkdir(&here, run, "ckpt");
    assert_eq!(made(&here, ckpt, "1").unwrap(), "zstd");
    assert_eq!(made(&there, ckpt, "2").unwrap(), "zstd");
    let rename = |delegate: &Delegate, from: &str, to: &str| {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let flags = RenameFlags::default();
        let renamed = delegate
            .names
            .rename(Fid::ROOT, from, Fid::ROOT, to, flags, ROOT);
        renamed.unwrap();
    };
    rename(&here, "run", "old");
    assert_eq!(made(&here, ckpt, "3").unwrap(), "lz4");
    // Another node goes by what it saw last, until it looks again.
    there.names.lookup(Fid::ROOT, b"old").unwrap();
    assert_eq!(made(&there, ckpt, "4").unwrap(), "lz4");
    rename(&there, "old", "new");
    assert_eq!(made(&there, ckpt, "5"), None);
    service.stop().unwrap();
}

#[test]
fn a_hint_comes_with_the_open_on_every_node_and_after_a_restart() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let d = mkdir(&here, Fid::ROOT, "d");
    set(&here, d, "field,f64,stride=3");
    let opened = here.create(d, b"f", 0o644, true, BOTH, ROOT).unwrap();
    let hint = opened.attr.codec.unwrap();
    assert_eq!(hint.to_string(), "field,f64,stride=3");
    let unnamed = there.create_unnamed(d, 0o600, true, BOTH, ROOT).unwrap();
    assert_eq!(unnamed.attr.codec, Some(hint));
    let fid = opened.attr.fid;
    let elsewhere = there.open(fid, READ).unwrap();
    assert_eq!(elsewhere.attr.codec, Some(hint));
    for (delegate, handle) in [
        (&here, opened.handle),
        (&there, unnamed.handle),
        (&there, elsewhere.handle),
    ] {
        delegate.release(handle).unwrap();
    }
    service.stop().unwrap();
    let service = start(&dir, config(2));
    let opened = service.delegate(1).open(fid, BOTH).unwrap();
    assert_eq!(opened.attr.codec, Some(hint));
    service.delegate(1).release(opened.handle).unwrap();
    service.stop().unwrap();
}

#[test]
fn what_is_written_after_a_change_goes_to_a_log_of_the_new_hint() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, handle) = create(&here, "f");
    let logs = || {
        here.flush(handle).unwrap();
        there.locator.describe(fid).unwrap().extents.logs
    };
    here.write(handle, 0, b"one", ROOT).unwrap();
    here.write(handle, 3, b"two", ROOT).unwrap();
    assert_eq!(logs(), 1);
    set(&here, fid, "zstd");
    here.write(handle, 6, b"three", ROOT).unwrap();
    assert_eq!(logs(), 2);
    set(&here, fid, "zstd");
    here.write(handle, 11, b"four", ROOT).unwrap();
    assert_eq!(logs(), 2, "it is the same");
    // By another node: known here from the next commit on.
    set(&there, fid, "raw");
    logs();
    here.write(handle, 15, b"-", ROOT).unwrap();
    logs();
    here.write(handle, 16, b"five", ROOT).unwrap();
    assert_eq!(logs(), 3);
    let removed = here.names.removexattr(fid, CODEC_XATTR.as_bytes());
    removed.unwrap();
    here.write(handle, 20, b"six", ROOT).unwrap();
    assert_eq!(logs(), 4);
    assert_eq!(there.locator.describe(fid).unwrap().codec, None);
    assert_eq!(
        &here.read(handle, 0, 100).unwrap()[..],
        b"onetwothreefour-fivesix"
    );
    here.release(handle).unwrap();
    let report = there.locator.storage(fid).unwrap().report;
    assert_eq!((report.bytes(), report.unsettled), (23, 23));
    service.stop().unwrap();
}

#[test]
fn another_node_is_sent_what_is_stored_encoded() {
    let dir = scratch();
    let inline = Config {
        codec: CodecConfig {
            when: CodecWhen::Inline,
            ..CodecConfig::default()
        },
        // What is read is what is asked for.
        prefetch: PrefetchConfig {
            policy: PrefetchPolicy::None,
            ..PrefetchConfig::default()
        },
        ..config(2)
    };
    let service = start(&dir, inline);
    let (here, there) = (service.delegate(0), service.delegate(1));
    let (fid, handle) = create(&here, "f");
    set(&here, fid, "field,f32");
    let value = |i: u32| 280.0 + (i as f32 * 1e-3).sin();
    let bytes: Vec<u8> = (0..1 << 20).map(value).flat_map(f32::to_le_bytes).collect();
    for (i, part) in bytes.chunks(1 << 20).enumerate() {
        here.write(handle, (i << 20) as u64, part, ROOT).unwrap();
    }
    here.flush(handle).unwrap();
    here.release(handle).unwrap();
    let opened = there.open(fid, READ).unwrap();
    let mut at = 0;
    for len in [1 << 20, 128 << 10, 5000, 1 << 20, 3 << 20] {
        let read = there.read(opened.handle, at as u64, len).unwrap();
        let end = bytes.len().min(at + len as usize);
        assert!(read == bytes[at..end], "{at}");
        at = end;
    }
    assert_eq!(at, bytes.len());
    there.release(opened.handle).unwrap();
    let status = &service.status().unwrap()[0];
    assert!(status.sent_from_bytes >= bytes.len() as u64);
    let ratio = status.encoded_from_bytes as f64 / status.encoded_bytes as f64;
    let moved = status.sent_from_bytes as f64 / status.sent_bytes as f64;
    assert!(moved >= ratio / 1.1, "{moved} of {ratio}");
    service.stop().unwrap();
}
