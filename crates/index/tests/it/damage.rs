//! Damaged table files: whatever bit is flipped, wherever a file is cut, it is reported by the file's name and never returned; all
//! other data can be read, writing goes on, and nothing is lost: with the file put back everything is there.

use crate::support::*;
use forebay_index::Settings;
use forebay_index::{Change, Extent};
use forebay_storage::fault::{FaultIo, Image};
use forebay_storage::{Engine, EngineEdit, Error};
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

fn settings() -> Settings {
    Settings {
        block_bytes: 300,
        table_blocks: 64,
        background: false,
        ..Settings::default()
    }
}

/// Every second piece of a file, so that no two become one.
fn pieces(fid: u64, count: u64, seq: u64) -> Vec<Change> {
    let piece = |i| {
        Change::Put(Extent {
            offset: base(fid) + i * 20,
            len: 3 + i % 7,
            member: 1,
            log: 7 + i % 3,
            addr: 1000 * seq + i * 11,
            seq,
        })
    };
    (0..count).map(piece).collect()
}

fn put(world: &mut World, model: &mut Model, fid: u64, changes: &[Change]) {
    world.change(fid, changes).unwrap();
    model.change(fid, changes);
}

/// The disk of a killed process whose index has two runs, of a table file each, and these: file 0 with overwritten pieces, and file 1,
/// which is in the second only.
fn two_tables(count: u64) -> (Image, Model, Vec<PathBuf>) {
    let io = FaultIo::new(1);
    let mut world = World::open(&io, &settings()).unwrap();
    let mut model = Model::new();
    put(&mut world, &mut model, 0, &pieces(0, count, 1));
    world.index.engine().flush().unwrap();
    put(
        &mut world,
        &mut model,
        0,
        &pieces(0, count, 2)[count as usize / 2..][..2],
    );
    put(&mut world, &mut model, 1, &pieces(1, 4, 3));
    world.index.engine().flush().unwrap();
    assert_eq!(world.index.engine().stats().runs, 2);
    let image = io.kill();
    let tables: Vec<PathBuf> = tables(&image);
    assert_eq!(tables.len(), 2);
    (image, model, tables)
}

fn tables(image: &Image) -> Vec<PathBuf> {
    let names = image.files().map(|(path, _)| path.to_path_buf());
    names
        .filter(|p| {
            p.extension().is_some_and(|e| e == "tbl") && p.to_string_lossy().contains("side-")
        })
        .collect()
}

fn names(error: &Error, table: &Path) -> bool {
    error.to_string().contains(table.to_str().unwrap())
}

/// With the older table damaged: what needs it fails by its name or is right, what does not is right, the check names it, no merge
/// takes it in, writing goes on; and once it is `whole` again, nothing is lost. If the damage costs nothing, a merge puts it right.
fn reported(image: &Image, table: &Path, whole: &[u8], model: &Model, what: &str) {
    let io = FaultIo::with_image(image, 1);
    let mut world = World::open(&io, &settings()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let all = match world.bytes(0, &(0..LEN)) {
        Err(all) => all,
        Ok(all) => {
            assert!(all == model.bytes(0, &(0..LEN)), "{what}");
            let errors = world.index.engine().check();
            assert!(errors.iter().any(|e| names(e, table)), "{what}: not told");
            world.index.engine().compact().unwrap();
            assert!(world.index.engine().check().is_empty(), "{what}");
            world.agrees(model).unwrap();
            return;
        }
    };
    assert!(names(&all, table), "{what}: {all}");
    let requests: Vec<_> = (0..2).map(|f| (f, base(f)..base(f) + LEN)).collect();
    let many = world.index.get_many(&requests).expect_err(what);
    assert!(names(&many, table), "{what}: {many}");
    for start in (0..LEN).step_by(250) {
        let range = start..start + 250;
        match world.bytes(0, &range) {
            Ok(bytes) => assert!(bytes == model.bytes(0, &range), "{what}: {range:?}"),
            Err(e) => assert!(names(&e, table), "{what}: {e}"),
        }
    }
    let sound = |world: &World, model: &Model, fid: u64| {
        let bytes = world.bytes(fid, &(0..LEN));
        let bytes = bytes.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(bytes == model.bytes(fid, &(0..LEN)), "{what}: file {fid}");
    };
    sound(&world, model, 1);
    let errors = world.index.engine().check();
    assert!(!errors.is_empty(), "{what}");
    assert!(errors.iter().all(|e| names(e, table)), "{what}: {errors:?}");
    let merged = world.index.engine().compact().expect_err(what);
    assert!(names(&merged, table), "{what}: {merged}");
    let mut model = model.clone();
    put(&mut world, &mut model, 2, &pieces(2, 10, 9));
    let flushed = world.index.engine().flush();
    flushed.unwrap_or_else(|e| panic!("{what}: {e}"));
    sound(&world, &model, 1);
    sound(&world, &model, 2);
    let mut later = io.kill();
    let again = later.bytes_mut(table);
    *again.unwrap_or_else(|| panic!("{what}: the file is gone")) = whole.to_vec();
    let world = World::open(&FaultIo::with_image(&later, 1), &settings()).unwrap();
    world
        .agrees(&model)
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(world.index.engine().check().is_empty(), "{what}");
}

fn bytes_of<'a>(image: &'a Image, table: &Path) -> &'a [u8] {
    image.files().find(|(path, _)| *path == table).unwrap().1
}

#[test]
fn every_flipped_bit_of_a_table_is_reported_and_none_returned() {
    let (image, model, tables) = two_tables(14);
    let (table, whole) = (&tables[0], bytes_of(&image, &tables[0]));
    assert!(whole.len() < 400, "{} bytes are many to flip", whole.len());
    for bit in 0..whole.len() as u64 * 8 {
        let mut damaged = image.clone();
        assert!(damaged.flip_bit(table, bit));
        reported(&damaged, table, whole, &model, &format!("bit {bit}"));
    }
}

#[test]
fn flipped_bits_of_a_larger_table_are_reported_and_none_returned() {
    let (image, model, tables) = two_tables(50);
    let (table, whole) = (&tables[0], bytes_of(&image, &tables[0]));
    let mut random = Random::new(5);
    for _ in 0..seeds::count(200, 20_000) {
        let mut damaged = image.clone();
        let bits: Vec<u64> = (0..1 + random.below(3))
            .map(|_| random.below(whole.len() as u64 * 8))
            .collect();
        for bit in &bits {
            damaged.flip_bit(table, *bit);
        }
        if bytes_of(&damaged, table) != whole {
            reported(&damaged, table, whole, &model, &format!("bits {bits:?}"));
        }
    }
}

#[test]
fn a_table_cut_short_grown_swapped_or_gone_is_reported() {
    let (image, model, tables) = two_tables(14);
    let (table, whole) = (&tables[0], bytes_of(&image, &tables[0]));
    for length in 0..whole.len() {
        let mut damaged = image.clone();
        damaged.bytes_mut(table).unwrap().truncate(length);
        reported(&damaged, table, whole, &model, &format!("{length} bytes"));
    }
    for more in [1, 64, 5000] {
        let mut damaged = image.clone();
        damaged.bytes_mut(table).unwrap().extend(vec![0; more]);
        reported(
            &damaged,
            table,
            whole,
            &model,
            &format!("{more} more bytes"),
        );
    }
    // Another table, whole in itself.
    let mut damaged = image.clone();
    *damaged.bytes_mut(table).unwrap() = bytes_of(&image, &tables[1]).to_vec();
    reported(&damaged, table, whole, &model, "another table");
    let mut damaged = image.clone();
    assert!(damaged.remove(table));
    let world = World::open(&FaultIo::with_image(&damaged, 1), &settings());
    let error = match world {
        Ok(world) => world.bytes(0, &(0..LEN)).unwrap_err(),
        Err(e) => e,
    };
    assert!(names(&error, table), "{error}");
}

#[test]
fn a_table_of_a_newer_version_says_what_to_do() {
    let (image, model, tables) = two_tables(14);
    let (table, whole) = (&tables[0], bytes_of(&image, &tables[0]));
    let mut newer = image.clone();
    let bytes = newer.bytes_mut(table).unwrap();
    let footer = bytes.len() - 64;
    bytes[footer + 8] = 4;
    let sum = forebay_checksum::crc32c(&bytes[footer..footer + 60]);
    bytes[footer + 60..].copy_from_slice(&sum.to_le_bytes());
    let world = World::open(&FaultIo::with_image(&newer, 1), &settings()).unwrap();
    let error = world.bytes(0, &(0..LEN)).unwrap_err().to_string();
    assert!(
        error.contains("version 4") && error.contains("use a newer Forebay"),
        "{error}"
    );
    drop(world);
    reported(&newer, table, whole, &model, "a newer version");
}

#[test]
fn what_the_manifest_tells_in_a_newer_way_or_not_at_all_is_refused_at_the_start() {
    for (told, advice) in [
        (&[9, 1, 2][..], "newer Forebay"),
        (&[1, 1], "forebay fsck"),
        (&[], "forebay fsck"),
    ] {
        let io = FaultIo::new(1);
        let world = World::open(&io, &settings()).unwrap();
        let host = world.store.engine_host();
        let number = host.new_number();
        let edit = EngineEdit {
            add: vec![(number, told.to_vec().into())],
            ..EngineEdit::default()
        };
        host.edit(edit).unwrap();
        let path = host.path(number);
        drop(world);
        let mut image = io.kill();
        // The file is there: what is told of it is the matter.
        image.set(&path, b"anything".to_vec());
        let Err(error) = World::open(&FaultIo::with_image(&image, 1), &settings()) else {
            panic!("{told:?} was accepted");
        };
        assert!(
            names(&error, &path) && error.to_string().contains(advice),
            "{error}"
        );
    }
}

#[test]
fn a_read_that_fails_once_fails_once() {
    let (image, model, _) = two_tables(50);
    let calls = {
        let io = FaultIo::with_image(&image, 1);
        let world = World::open(&io, &settings()).unwrap();
        let before = io.calls();
        world.agrees(&model).unwrap();
        world.index.engine().compact().unwrap();
        io.calls() - before
    };
    assert!(calls > 5, "{calls}");
    let mut failed = 0;
    for n in 1..=calls {
        let io = FaultIo::with_image(&image, 1);
        let mut model = model.clone();
        let mut world = World::open(&io, &settings()).unwrap();
        io.fail_after(n, std::io::ErrorKind::Other);
        failed += usize::from(world.agrees(&model).is_err());
        if io.failed_call().is_none() {
            // It fails in the merge: if that was reading, everything goes on; if not, the store is closed until it is opened again.
            let done = world.index.engine().compact();
            // A file that could not be removed is removed at the next start.
            assert_eq!(done.is_ok(), io.failed_call() == Some("remove"), "{done:?}");
            failed += 1;
        }
        world.agrees(&model).unwrap();
        match io.failed_call() {
            Some("open" | "read_at" | "len") => {
                put(&mut world, &mut model, 1, &pieces(1, 20, 9));
                world.index.engine().compact().unwrap();
            }
            _ => {
                drop(world);
                world = World::open(&FaultIo::with_image(&io.kill(), 1), &settings()).unwrap();
            }
        }
        world.agrees(&model).unwrap();
    }
    assert_eq!(failed as u64, calls);
}

#[test]
fn a_read_that_fails_once_while_a_scan_begins_is_an_error_and_leaves_nothing_out() {
    let io = FaultIo::new(1);
    let mut world = World::open(&io, &settings()).unwrap();
    let mut model = Model::new();
    put(&mut world, &mut model, 0, &pieces(0, 50, 1));
    put(&mut world, &mut model, 1, &pieces(1, 50, 2));
    world.index.engine().flush().unwrap();
    let image = io.kill();
    let mut failed = 0;
    for n in 1..20 {
        let io = FaultIo::with_image(&image, 1);
        let world = World::open(&io, &settings()).unwrap();
        io.fail_after(n, ErrorKind::Other);
        // So few extents are scanned for. Those of file 1 begin in the middle of the table.
        let Ok(found) = world.index.get(1, base(1)..base(1) + LEN, 10) else {
            failed += 1;
            continue;
        };
        let places: Vec<u64> = found.iter().map(|e| e.offset - base(1)).collect();
        let want: Vec<u64> = (0..10).map(|i| i * 20).collect();
        assert_eq!(places, want, "call {n} failed");
    }
    assert!(failed > 0, "no call of a scan failed");
}
