//! The fault-injecting disk itself: it loses, tears and refuses what its fault model says, and nothing else.
use super::*;
use crate::Io;
use proptest::prelude::*;
use std::path::Path;

fn disk(seed: u64) -> FaultIo {
    let io = FaultIo::new(seed);
    io.create_dir_all(Path::new("/d")).unwrap();
    io.sync_dir(Path::new("/")).unwrap();
    io
}

fn bytes(image: &Image, path: &str) -> Option<Vec<u8>> {
    image
        .files()
        .find(|(p, _)| *p == Path::new(path))
        .map(|(_, b)| b.to_vec())
}

#[test]
fn synced_bytes_survive_and_unsynced_ones_may_not() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..100 {
        let io = disk(seed);
        let file = io.create(Path::new("/d/f")).unwrap();
        file.write_at(&[1; 2048], 0).unwrap();
        file.sync().unwrap();
        io.sync_dir(Path::new("/d")).unwrap();
        file.write_at(&[2; 2048], 0).unwrap();
        let after = bytes(&io.crash(), "/d/f").unwrap();
        assert_eq!(after.len(), 2048);
        let sectors: Vec<u8> = after.chunks(512).map(|s| s[0]).collect();
        assert!(
            after.chunks(512).all(|s| s.iter().all(|b| *b == s[0])),
            "a sector is whole"
        );
        match sectors.iter().filter(|s| **s == 2).count() {
            0 => lost += 1,
            4 => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 0 && kept > 0 && torn > 0, "{lost} {kept} {torn}");
}

#[test]
fn names_need_their_directory_synced() {
    let mut found = [0; 2];
    for seed in 0..50 {
        let io = disk(seed);
        let file = io.create(Path::new("/d/a")).unwrap();
        file.write_at(b"x", 0).unwrap();
        file.sync().unwrap();
        let image = io.crash();
        found[usize::from(bytes(&image, "/d/a").is_some())] += 1;
        let io = disk(seed);
        io.create(Path::new("/d/a")).unwrap();
        io.sync_dir(Path::new("/d")).unwrap();
        io.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
        let image = io.crash();
        assert_eq!(image.files().count(), 1, "a rename is atomic");
    }
    assert!(found[0] > 0 && found[1] > 0);
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let io = disk(1);
    io.set_capacity(3 * 4096);
    let file = io.create(Path::new("/d/f")).unwrap();
    file.allocate(0, 4096).unwrap();
    let error = file.write_at(&[7; 16384], 0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 3 * 4096);
    assert!(
        file.write_at(&[8; 4096], 4096).is_ok(),
        "owned pages can be written"
    );
    file.punch(0, 4096).unwrap();
    assert_eq!(io.used(), 2 * 4096);
    io.remove(Path::new("/d/f")).unwrap();
    assert_eq!(io.used(), 2 * 4096, "open files keep their pages");
    drop(file);
    assert_eq!(
        (io.used(), io.space(Path::new("/d")).unwrap()),
        (0, (3 * 4096, 3 * 4096))
    );
}

#[test]
fn the_nth_call_fails_once_and_a_failed_sync_loses() {
    let io = disk(1);
    let file = io.create(Path::new("/d/f")).unwrap();
    io.sync_dir(Path::new("/d")).unwrap();
    file.write_at(&[1; 100], 0).unwrap();
    io.fail_after(1, io::ErrorKind::Other);
    assert!(file.sync().is_err());
    assert!(io.failed_call().is_some());
    assert_eq!(bytes(&io.clone().image(), "/d/f").unwrap().len(), 100);
    assert_eq!(bytes(&io.crash(), "/d/f").unwrap().len(), 0);
    assert!(file.sync().is_err(), "nothing goes after a crash");
}

#[test]
fn images_go_through_a_real_directory() {
    let io = disk(1);
    io.create(Path::new("/d/f"))
        .unwrap()
        .write_at(b"hello", 0)
        .unwrap();
    let mut image = io.image();
    let dir = tempfile::tempdir().unwrap();
    image.save(Path::new("/d"), dir.path()).unwrap();
    let back = Image::load(dir.path()).unwrap();
    assert_eq!(
        bytes(&back, dir.path().join("f").to_str().unwrap()).unwrap(),
        b"hello"
    );
    assert!(image.flip_bit(Path::new("/d/f"), 3));
    assert!(!image.flip_bit(Path::new("/d/f"), 300));
    assert_eq!(bytes(&image, "/d/f").unwrap()[0], b'h' ^ 8);
}

proptest! {
    /// The live state is that of a plain vector, and the same seed crashes into the same image.
    #[test]
    fn files_are_vectors_and_crashes_replay(
        steps in proptest::collection::vec((0u8..5, 0u64..5000, 1usize..2000), 1..30), seed in any::<u64>(),
    ) {
        let run = || {
            let io = disk(seed);
            let file = io.create(Path::new("/d/f")).unwrap();
            io.sync_dir(Path::new("/d")).unwrap();
            let mut model: Vec<u8> = Vec::new();
            for (i, (kind, at, n)) in steps.iter().enumerate() {
                let end = *at as usize + n;
                match kind {
                    0 | 1 => {
                        file.write_at(&vec![i as u8 + 1; *n], *at).unwrap();
                        model.resize(model.len().max(end), 0);
                        model[*at as usize..end].fill(i as u8 + 1);
                    }
                    2 => {
                        file.set_len(*at).unwrap();
                        model.resize(*at as usize, 0);
                    }
                    3 => {
                        file.punch(*at, *n as u64).unwrap();
                        let (from, to) = ((*at as usize).min(model.len()), end.min(model.len()));
                        model[from..to].fill(0);
                    }
                    _ => file.sync().unwrap(),
                }
            }
            (bytes(&io.image(), "/d/f").unwrap(), model, io.crash())
        };
        let (live, model, crashed) = run();
        prop_assert_eq!(live, model);
        prop_assert_eq!(crashed, run().2);
    }
}
