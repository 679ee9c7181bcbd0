//! A store with a damaged table: mounted to salvage what is whole, and repaired.
#![allow(clippy::unwrap_used)] // A test fails by panicking.
mod common;
use common::{Place, assert_fails, forebay, fuse, pattern};
use std::collections::BTreeMap;
use std::path::PathBuf;

const ROFS: Option<i32> = Some(30);
const FILES: u64 = 400;

/// A stopped store of two nodes with many files, and a flipped bit in the middle of the largest table of node 0.
fn damaged() -> (Place, BTreeMap<String, Vec<u8>>) {
    let place = Place::new();
    place.mount_well(&["--nodes", "2"]);
    let mut files = BTreeMap::new();
    for i in 0..FILES {
        let (dir, name) = (format!("d{}", i % 7), format!("d{}/f{i}", i % 7));
        std::fs::create_dir_all(place.path(&format!("m/0/{dir}"))).unwrap();
        let content = pattern(i, 100 + i as usize * 10);
        std::fs::write(place.path(&format!("m/0/{name}")), &content).unwrap();
        files.insert(name, content);
    }
    place.umount_well();
    let entries = std::fs::read_dir(place.path("s/node-0/kv")).unwrap();
    let mut tables: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    tables.retain(|p| {
        p.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("table-")
    });
    tables.sort_by_key(|p| std::fs::metadata(p).unwrap().len());
    let table = tables
        .last()
        .expect("a clean stop brings the records to tables");
    let mut bytes = std::fs::read(table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(table, bytes).unwrap();
    (place, files)
}

/// Reads all files below the mount; those that fail or are missing must be in the list, and few.
fn look(place: &Place, mount: &str, files: &BTreeMap<String, Vec<u8>>, list: &str) {
    let mut lost = 0;
    for (name, content) in files {
        match std::fs::read(place.path(&format!("{mount}/{name}"))) {
            Ok(found) => assert!(found == *content, "{name}"),
            Err(_) => lost += 1,
        }
    }
    assert!(lost < 120, "{lost} of {FILES} files are lost by one bit");
    assert!(
        lost == 0 || list.contains("not whole: ") || list.contains("found: "),
        "{list}"
    );
    assert!(list.contains("damaged: "), "{list}");
}

#[test]
fn what_is_whole_is_mounted_to_read_and_a_list_says_what_is_not() {
    if !fuse() {
        return;
    }
    let (place, files) = damaged();
    let scratch = place.text("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let before = std::fs::read_dir(place.path("s/node-0/kv"))
        .unwrap()
        .count();
    // One mount, however many nodes there are.
    std::fs::create_dir(place.path("x")).unwrap();
    let (store, mount) = (place.store(), place.text("x"));
    let (code, out, err) = forebay(&["mount", "--salvage", "--scratch", &scratch, &store, &mount]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(
        out.contains("read-only") && out.contains("salvage.txt"),
        "{out}"
    );
    let list = std::fs::read_to_string(place.path("s/salvage.txt")).unwrap();
    look(&place, "x", &files, &list);
    for refused in [
        std::fs::write(place.path("x/new"), b"x"),
        std::fs::create_dir(place.path("x/new")),
        std::fs::remove_file(place.path("x/d0/f0")),
    ] {
        assert_eq!(refused.unwrap_err().raw_os_error(), ROFS);
    }
    // Out of it, and not into it.
    let out_dir = place.text("out");
    let (_, _, _) = forebay(&["stage", "out", &mount, &out_dir]);
    look(&place, "out", &files, &list);
    let staged = forebay(&["stage", "in", &out_dir, &format!("{mount}/in")]);
    assert_fails(&staged, 1, &["read-only", "salvages"]);
    place.umount_well();
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
    let after = std::fs::read_dir(place.path("s/node-0/kv"))
        .unwrap()
        .count();
    assert_eq!(before, after, "files of the store");
}

#[test]
fn a_repair_asks_and_keeps_what_it_replaces_and_the_store_starts_again() {
    if !fuse() {
        return;
    }
    let (place, files) = damaged();
    let store = place.store();
    let (code, out, _) = forebay(&["fsck", &store]);
    assert!(code == 1 && out.contains("--repair"), "{out}");
    assert_fails(&forebay(&["fsck", "--repair", &store]), 2, &["--yes"]);
    let (code, out, err) = forebay(&["fsck", "--repair", "--yes", &store]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("to do: ") && out.contains("is sound"), "{out}");
    let aside = |end: &str| {
        let entries = std::fs::read_dir(place.path("s")).unwrap();
        let mut names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        names.find(|n| n.starts_with("damaged-") && n.ends_with(end))
    };
    let report = std::fs::read_to_string(place.path(&format!("s/{}", aside(".txt").unwrap())));
    let kept = std::fs::read_dir(place.path("s/node-0")).unwrap();
    let mut kept = kept
        .map(|e| e.unwrap().path())
        .filter(|p| p.join("kv/MANIFEST").exists());
    assert!(kept.next().is_some(), "the old records are kept");
    place.mount_well(&["--nodes", "2"]);
    look(&place, "m/1", &files, &report.unwrap());
    std::fs::write(place.path("m/0/new"), b"after the repair").unwrap();
    assert_eq!(
        std::fs::read(place.path("m/1/new")).unwrap(),
        b"after the repair"
    );
    place.umount_well();
    let (code, out, _) = forebay(&["fsck", "--repair", "--yes", &store]);
    assert!(code == 0 && out.contains("nothing to repair"), "{out}");
    // Bytes of files: no repair mends them, and the store can be used all the same.
    let segment = place.path("s/node-0/data/00000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes.iter_mut().step_by(4096).skip(1).for_each(|b| *b ^= 1);
    std::fs::write(&segment, bytes).unwrap();
    let (code, out, _) = forebay(&["fsck", "--repair", "--yes", &store]);
    assert!(
        code == 0 && out.contains("not whole: ") && out.contains("no repair mends"),
        "{out}"
    );
}
