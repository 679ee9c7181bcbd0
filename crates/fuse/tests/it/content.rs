//! What POSIX says about the bytes of files, asked through the kernel.
use crate::common::{Harness, Map, create_new, errno, open, open_to_write, truncate};
use forebay_testkit::random::seeded_bytes;
use rustix::fs::{FallocateFlags, SeekFrom};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

#[test]
fn appends_of_many_processes_on_all_nodes_lose_nothing() {
    let Some(h) = Harness::four() else { return };
    let lines = 50;
    let script = format!(
        "i=0; while [ $i -lt {lines} ]; do echo \"$0 $i of a line\" >> log; i=$((i+1)); done"
    );
    let writers: Vec<_> = (0..8)
        .map(|w| {
            let name = format!("writer{w}");
            std::process::Command::new("sh")
                .args(["-e", "-c", &script, &name])
                .current_dir(h.mount(w % 4))
                .spawn()
                .unwrap()
        })
        .collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let expected: BTreeSet<String> = (0..8)
        .flat_map(|w| (0..lines).map(move |i| format!("writer{w} {i} of a line")))
        .collect();
    for m in h.all() {
        let text = fs::read_to_string(m.join("log")).unwrap();
        assert_eq!(text.lines().count(), expected.len());
        assert_eq!(
            text.lines().map(str::to_string).collect::<BTreeSet<_>>(),
            expected
        );
    }
}

#[test]
fn sparse_files_above_four_gibibytes() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(0);
    let far = 5 << 30;
    let f = open(&m.join("s"));
    f.write_all_at(b"start", 0).unwrap();
    f.write_all_at(b"end", far).unwrap();
    assert_eq!(f.metadata().unwrap().len(), far + 3);
    assert!(
        f.metadata().unwrap().blocks() * 512 < 1 << 20,
        "holes take no room"
    );
    let mut hole = vec![1; 4096];
    f.read_exact_at(&mut hole, 1 << 32).unwrap();
    assert!(hole.iter().all(|b| *b == 0));
    f.sync_all().unwrap();
    let g = File::open(h.mount(3).join("s")).unwrap();
    let mut end = [0; 3];
    g.read_exact_at(&mut end, far).unwrap();
    assert_eq!(&end, b"end");
    let hole = rustix::fs::seek(&g, SeekFrom::Hole(0)).unwrap();
    assert!((5..=4096).contains(&hole), "{hole}");
    let data = rustix::fs::seek(&g, SeekFrom::Data(1 << 20)).unwrap();
    assert!(data > far - 4096 && data <= far, "{data}");
    assert_eq!(rustix::fs::seek(&g, SeekFrom::Hole(far)).unwrap(), far + 3);
    assert_eq!(
        errno(rustix::fs::seek(&g, SeekFrom::Data(far + 3))),
        libc::ENXIO
    );
    assert_eq!(rustix::fs::seek(&g, SeekFrom::End(0)).unwrap(), far + 3);
}

#[test]
fn truncate_both_ways_reads_zeros() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(2);
    let path = m.join("t");
    let bytes = seeded_bytes(1, 300_000);
    fs::write(&path, &bytes).unwrap();
    let f = open(&path);
    f.set_len(100_001).unwrap();
    f.set_len(200_000).unwrap();
    let mut expected = bytes[..100_001].to_vec();
    expected.resize(200_000, 0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    truncate(&h.mount(1).join("t"), 50).unwrap();
    assert_eq!(fs::read(&path).unwrap(), &bytes[..50]);
    assert_eq!(fs::read(h.mount(0).join("t")).unwrap(), &bytes[..50]);
    drop(
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .unwrap(),
    );
    assert_eq!(fs::metadata(h.mount(3).join("t")).unwrap().len(), 0);
}

#[test]
fn holes_are_punched_zeroed_and_reserved() {
    let Some(h) = Harness::four() else { return };
    let path = h.mount(1).join("p");
    let mut bytes = seeded_bytes(2, 1 << 20);
    fs::write(&path, &bytes).unwrap();
    let f = open(&path);
    rustix::fs::fallocate(
        &f,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        100_000,
        300_000,
    )
    .unwrap();
    bytes[100_000..400_000].fill(0);
    rustix::fs::fallocate(&f, FallocateFlags::ZERO_RANGE, 1_000_000, 100_000).unwrap();
    bytes.resize(1_100_000, 0);
    bytes[1_000_000..].fill(0);
    rustix::fs::fallocate(&f, FallocateFlags::KEEP_SIZE, 2_000_000, 100_000).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 1_100_000);
    rustix::fs::fallocate(&f, FallocateFlags::empty(), 1_100_000, 50_000).unwrap();
    bytes.resize(1_150_000, 0);
    assert!(fs::read(&path).unwrap() == bytes);
    f.sync_all().unwrap();
    assert!(fs::read(h.mount(2).join("p")).unwrap() == bytes);
    assert_eq!(
        errno(rustix::fs::fallocate(
            &f,
            FallocateFlags::COLLAPSE_RANGE,
            0,
            4096
        )),
        libc::EOPNOTSUPP
    );
}

#[test]
fn direct_io_and_copies_inside_the_kernel() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(0);
    let bytes = seeded_bytes(3, 3 << 20);
    // O_DIRECT: no alignment is asked for.
    let f = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_DIRECT)
        .open(m.join("d"))
        .unwrap();
    f.write_all_at(&bytes, 0).unwrap();
    let mut back = vec![0; bytes.len()];
    f.read_exact_at(&mut back, 0).unwrap();
    assert!(back == bytes);
    // A cached reader on the same node sees a direct writer.
    assert!(fs::read(m.join("d")).unwrap() == bytes);
    f.write_all_at(b"changed", 5000).unwrap();
    let mut seen = [0; 7];
    File::open(m.join("d"))
        .unwrap()
        .read_exact_at(&mut seen, 5000)
        .unwrap();
    assert_eq!(&seen, b"changed");
    f.write_all_at(&bytes[5000..5007], 5000).unwrap();
    f.sync_all().unwrap();
    let copy = File::create(m.join("c")).unwrap();
    let (mut from, mut to) = (0, 0);
    while from < bytes.len() as u64 {
        let n = rustix::fs::copy_file_range(&f, Some(&mut from), &copy, Some(&mut to), bytes.len())
            .unwrap();
        assert!(n > 0);
    }
    drop(copy);
    assert!(fs::read(h.mount(1).join("c")).unwrap() == bytes);
    let source = File::open(m.join("c")).unwrap();
    let sent = File::create(m.join("s")).unwrap();
    let mut offset = 0;
    while offset < bytes.len() as u64 {
        assert!(rustix::fs::sendfile(&sent, &source, Some(&mut offset), bytes.len()).unwrap() > 0);
    }
    drop(sent);
    assert!(fs::read(h.mount(3).join("s")).unwrap() == bytes);
}

#[test]
fn mappings_shared_and_private() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(1);
    let path = m.join("map");
    let mut bytes = seeded_bytes(4, 100_000);
    fs::write(&path, &bytes).unwrap();
    let f = open(&path);
    {
        let mut map = Map::new(&f, bytes.len(), libc::MAP_SHARED).unwrap();
        assert!(map.bytes() == &bytes[..]);
        map.bytes()[70_000..70_005].copy_from_slice(b"remap");
        bytes[70_000..70_005].copy_from_slice(b"remap");
        // The file ends its own life before the mapping does: the pages must still arrive.
        drop(f);
        map.bytes()[10..15].copy_from_slice(b"after");
        bytes[10..15].copy_from_slice(b"after");
    }
    assert!(fs::read(&path).unwrap() == bytes);
    // Releasing the mapping published it; the release is asynchronous, an open-and-close is not.
    drop(open_to_write(&path));
    assert!(fs::read(h.mount(2).join("map")).unwrap() == bytes);
    let f = open(&path);
    let mut map = Map::new(&f, bytes.len(), libc::MAP_PRIVATE).unwrap();
    map.bytes()[0] ^= 1;
    assert!(fs::read(&path).unwrap() == bytes);
    // A mapping next to a handle for appending: its pages belong at their offset, not at the end.
    let mut log = OpenOptions::new().append(true).open(&path).unwrap();
    let mut shared = Map::new(&f, bytes.len(), libc::MAP_SHARED).unwrap();
    shared.bytes()[50..54].copy_from_slice(b"page");
    bytes[50..54].copy_from_slice(b"page");
    log.write_all(b"tail").unwrap();
    shared.sync();
    drop((shared, log, f));
    bytes.extend_from_slice(b"tail");
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn an_unlinked_file_lives_until_its_last_close() {
    let Some(h) = Harness::four() else { return };
    let m = h.mount(0);
    let f = create_new(&m.join("u"));
    f.write_all_at(b"still here", 0).unwrap();
    fs::remove_file(m.join("u")).unwrap();
    assert_eq!(errno(File::open(m.join("u"))), libc::ENOENT);
    assert_eq!(f.metadata().unwrap().nlink(), 0);
    f.write_all_at(b"there", 6).unwrap();
    f.sync_all().unwrap();
    let mut text = vec![0; 11];
    f.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"still there");
    // Removed on another node while open on this one.
    fs::write(m.join("v"), "kept").unwrap();
    let mut v = File::open(m.join("v")).unwrap();
    fs::remove_file(h.mount(3).join("v")).unwrap();
    let mut text = String::new();
    v.read_to_string(&mut text).unwrap();
    assert_eq!(text, "kept");
    fs::create_dir(m.join("empty")).unwrap();
    fs::remove_dir(h.mount(2).join("empty")).unwrap();
    assert_eq!(errno(fs::read_dir(m.join("empty"))), libc::ENOENT);
}

#[test]
fn two_handles_on_one_node_commit_in_write_order() {
    let Some(h) = Harness::four() else { return };
    let path = h.mount(0).join("w");
    fs::write(&path, "....").unwrap();
    let older = open_to_write(&path);
    let newer = open_to_write(&path);
    older.write_all_at(b"old!", 0).unwrap();
    newer.write_all_at(b"NEW", 0).unwrap();
    drop(newer);
    drop(older);
    assert_eq!(fs::read(h.mount(1).join("w")).unwrap(), b"NEW!");
}
