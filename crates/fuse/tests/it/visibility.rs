//! When other nodes see what one wrote, through their kernels' caches.
use crate::common::{Harness, Map, create_new, errno, open, open_to_write, resident};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::turns;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;

#[test]
fn a_write_is_seen_elsewhere_after_fsync_or_close() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    let f = create_new(&h.mount(0).join("f"));
    // A second handle of the writer's node, open all the time: its close would publish, too.
    let beside = File::open(h.mount(0).join("f")).unwrap();
    f.write_all_at(b"first", 0).unwrap();
    // On its own node at once, through another handle.
    let mut seen = [0; 5];
    beside.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"first");
    // Elsewhere not yet: the name is there, the bytes are not.
    assert_eq!(fs::read(h.mount(1).join("f")).unwrap(), b"");
    f.sync_data().unwrap();
    assert_eq!(fs::read(h.mount(1).join("f")).unwrap(), b"first");
    f.write_all_at(b"SECOND", 0).unwrap();
    assert_eq!(fs::read(h.mount(2).join("f")).unwrap(), b"first");
    drop(f);
    for m in h.all() {
        assert_eq!(fs::read(m.join("f")).unwrap(), b"SECOND");
        assert_eq!(fs::metadata(m.join("f")).unwrap().len(), 6);
    }
}

#[test]
fn open_files_see_each_other_by_fsync_on_both_sides() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    let open = |m: usize| {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true);
        options.open(h.mount(m).join("f")).unwrap()
    };
    // Each node writes its part, all sync, and each reads the next one's: with pages of the round before in its cache.
    let files: Vec<File> = (0..4).map(open).collect();
    const PART: usize = 20_000;
    for round in 0..5u64 {
        for (k, f) in files.iter().enumerate() {
            let bytes = seeded_bytes(round * 4 + k as u64, PART);
            f.write_all_at(&bytes, (k * PART) as u64).unwrap();
            f.sync_data().unwrap();
        }
        for (k, f) in files.iter().enumerate() {
            f.sync_all().unwrap();
            let other = (k + 1) % 4;
            let mut seen = vec![0; PART];
            f.read_exact_at(&mut seen, (other * PART) as u64).unwrap();
            assert!(
                seen == seeded_bytes(round * 4 + other as u64, PART),
                "round {round}: node {k} reads what node {other} wrote"
            );
        }
    }
}

#[test]
fn an_open_drops_pages_that_another_node_made_old() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    let (a, b) = (h.mount(0).join("f"), h.mount(1).join("f"));
    let mut bytes = seeded_bytes(1, 1 << 20);
    fs::write(&a, &bytes).unwrap();
    for round in 0..10u64 {
        assert!(fs::read(&b).unwrap() == bytes, "round {round}");
        // Same size, other bytes; from alternating nodes, so that each has cached pages.
        let at = (round * 77_777) % 900_000;
        let new = seeded_bytes(round + 2, 5000);
        let writer = if round % 2 == 0 { &a } else { &b };
        let f = open_to_write(writer);
        f.write_all_at(&new, at).unwrap();
        drop(f);
        bytes[at as usize..][..5000].copy_from_slice(&new);
        assert!(fs::read(&a).unwrap() == bytes, "round {round}");
    }
}

#[test]
fn pages_stay_for_a_file_nobody_changed() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    let path = h.mount(1).join("f");
    let bytes = seeded_bytes(3, 4 << 20);
    fs::write(&path, &bytes).unwrap();
    for _ in 0..3 {
        assert!(fs::read(&path).unwrap() == bytes);
    }
    // mincore says which pages the kernel holds before anything is read again.
    let f = File::open(&path).unwrap();
    assert!(
        resident(&f, bytes.len()) > 0,
        "an open of an unchanged file dropped its pages"
    );
    fs::write(h.mount(0).join("f"), &bytes[1..]).unwrap();
    drop(f);
    let f = File::open(&path).unwrap();
    assert_eq!(
        resident(&f, bytes.len() - 1),
        0,
        "an open of a changed file kept its pages"
    );
}

#[test]
fn names_are_seen_at_once_everywhere() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    for (n, m) in h.all().iter().enumerate() {
        let name = format!("d{n}");
        for other in h.all() {
            // A remembered absence would hide the directory.
            assert_eq!(errno(fs::metadata(other.join(&name))), libc::ENOENT);
        }
        fs::create_dir(m.join(&name)).unwrap();
        for other in h.all() {
            assert!(fs::metadata(other.join(&name)).unwrap().is_dir());
            fs::write(other.join(&name).join("f"), &name).unwrap();
            fs::rename(other.join(&name).join("f"), other.join(&name).join("g")).unwrap();
            assert_eq!(errno(fs::metadata(m.join(&name).join("f"))), libc::ENOENT);
            assert_eq!(fs::read_to_string(m.join(&name).join("g")).unwrap(), name);
        }
        fs::remove_dir_all(m.join(&name)).unwrap();
        for other in h.all() {
            assert_eq!(errno(fs::metadata(other.join(&name))), libc::ENOENT);
        }
    }
}

#[test]
fn one_shared_file_written_in_strides_by_all_nodes() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    File::create(h.mount(0).join("shared")).unwrap();
    let (record, records) = (47_008usize, 64usize);
    let writers: Vec<_> = h
        .all()
        .into_iter()
        .enumerate()
        .map(|(n, m)| {
            std::thread::spawn(move || {
                let f = open_to_write(&m.join("shared"));
                for i in (n..records).step_by(4) {
                    f.write_all_at(&seeded_bytes(i as u64, record), (i * record) as u64)
                        .unwrap();
                }
                f.sync_all().unwrap();
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let expected: Vec<u8> = (0..records)
        .flat_map(|i| seeded_bytes(i as u64, record))
        .collect();
    for m in h.all() {
        assert!(fs::read(m.join("shared")).unwrap() == expected);
    }
}

#[test]
fn posix_consistency_shows_each_write_before_it_returns() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::posix(3) else { return };
    let f = create_new(&h.mount(0).join("f"));
    let mut readers: Vec<File> = h
        .all()
        .iter()
        .map(|m| File::open(m.join("f")).unwrap())
        .collect();
    for round in 0..20u64 {
        let bytes = seeded_bytes(round, 10_000);
        f.write_all_at(&bytes, round * 3000).unwrap();
        for reader in &mut readers {
            // Through handles that were open before the write.
            let mut back = vec![0; bytes.len()];
            reader.read_exact_at(&mut back, round * 3000).unwrap();
            assert!(back == bytes);
            assert_eq!(reader.metadata().unwrap().len(), round * 3000 + 10_000);
        }
    }
    let mut log = OpenOptions::new()
        .append(true)
        .open(h.mount(1).join("f"))
        .unwrap();
    log.write_all(b"end").unwrap();
    let mut all = Vec::new();
    readers[2].read_to_end(&mut all).unwrap();
    assert!(all.ends_with(b"end"));
}

#[test]
fn shared_mappings_work_in_posix_consistency() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::posix(2) else { return };
    let mut bytes = seeded_bytes(9, 50_000);
    fs::write(h.mount(0).join("m"), &bytes).unwrap();
    let f = open(&h.mount(0).join("m"));
    match Map::new(&f, bytes.len(), libc::MAP_SHARED) {
        Ok(mut map) => {
            map.bytes()[30_000..30_004].copy_from_slice(b"page");
            bytes[30_000..30_004].copy_from_slice(b"page");
            map.sync();
            assert!(fs::read(h.mount(1).join("m")).unwrap() == bytes);
        }
        // Before Linux 6.6 direct handles cannot be mapped shared; the call says so.
        Err(e) => assert_eq!(e.raw_os_error(), Some(libc::ENODEV)),
    }
}
