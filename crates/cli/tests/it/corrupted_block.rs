//! One byte of a stopped store is changed: what needs it answers `EIO` or is refused with a word, everything else is right,
//! and the check and the log say where it is. One bit of metadata is put right.
use crate::common::{Place, forebay, has_fuse};
use forebay_testkit::random::seeded_bytes;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BLOCK: usize = 4096;
const EIO: Option<i32> = Some(5);

/// One flipped bit of a byte, and four: more than a checksum can put right.
const ONE_BIT: u8 = 0x40;
const FOUR_BITS: u8 = 0x55;

/// Flips these bits of one byte of a file.
fn damage(file: &Path, at: u64, bits: u8) {
    let open = File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    open.read_exact_at(&mut byte, at).unwrap();
    open.write_all_at(&[byte[0] ^ bits], at).unwrap();
}

/// Files of a member's part of the store whose names end so, in order.
fn files(place: &Place, part: &str, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.path(part)).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    found.retain(|p| p.to_str().unwrap().ends_with(end));
    found.sort();
    found
}

/// Where these bytes are in a segment file of the store.
fn find(place: &Place, bytes: &[u8]) -> (PathBuf, u64) {
    for node in ["s/node-0/data", "s/node-1/data"] {
        for path in files(place, node, ".seg") {
            let segment = std::fs::read(&path).unwrap();
            if let Some(at) = segment.windows(bytes.len()).position(|w| w == bytes) {
                return (path, at as u64);
            }
        }
    }
    panic!("the bytes are in no segment file");
}

#[test]
fn one_changed_byte_of_data_costs_one_block_and_is_named() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&["--nodes", "2"]);
    let (hit, spared) = (seeded_bytes(1, 64 * BLOCK), seeded_bytes(2, 64 * BLOCK));
    std::fs::write(place.path("m/0/hit"), &hit).unwrap();
    std::fs::write(place.path("m/0/spared"), &spared).unwrap();
    place.umount_well();

    let bad = 37;
    let block = &hit[bad * BLOCK..][..BLOCK];
    let (segment, start) = find(&place, block);
    damage(&segment, start + 1234, ONE_BIT);
    let mut changed = block.to_vec();
    changed[1234] ^= ONE_BIT;
    let said = [
        segment.to_str().unwrap().to_string(),
        format!("byte {start} "),
        format!("{:08x}", forebay_checksum::crc32c(block)),
        format!("{:08x}", forebay_checksum::crc32c(&changed)),
    ];

    let (code, out, err) = forebay(&["fsck", &place.store()]);
    assert_eq!(code, 1, "{out}{err}");
    for part in &said {
        assert!(out.contains(part), "'{part}' is missing in: {out}");
    }
    place.mount_well(&["--nodes", "2"]);
    for node in 0..2 {
        let path = |name: &str| place.path(&format!("m/{node}/{name}"));
        let file = File::open(path("hit")).unwrap();
        let mut found = vec![0; BLOCK];
        for i in 0..64 {
            let read = file.read_exact_at(&mut found, (i * BLOCK) as u64);
            if i == bad {
                assert_eq!(read.unwrap_err().raw_os_error(), EIO, "node {node}");
            } else {
                read.unwrap();
                assert!(found == hit[i * BLOCK..][..BLOCK], "node {node} block {i}");
            }
        }
        let whole = std::fs::read(path("hit")).unwrap_err();
        assert_eq!(whole.raw_os_error(), EIO, "node {node}");
        assert!(std::fs::read(path("spared")).unwrap() == spared);
    }
    place.umount_well();
    let log = place.log();
    for part in &said {
        assert!(log.contains(part), "'{part}' is missing in: {log}");
    }
}

const NAMES: u64 = 1_500;

fn content(i: u64) -> Vec<u8> {
    seeded_bytes(i, 30 + i as usize % 50)
}

/// A store of one node with many small files: stopped, so that its metadata is in tables, or killed, so that it is in the log.
fn stored(killed: bool) -> Place {
    let place = Place::new();
    place.mount_well(&["--memory", "16MiB"]);
    for i in 0..NAMES {
        std::fs::write(place.path(&format!("m/f{i}")), content(i)).unwrap();
    }
    match killed {
        true => place.kill(),
        false => place.umount_well(),
    }
    place
}

/// A copy of a stopped store, at a place of its own.
fn copy(from: &Place) -> Place {
    let place = Place::new();
    let status = std::process::Command::new("cp")
        .args(["-a", &from.store(), &place.store()])
        .status();
    assert!(status.unwrap().success());
    place
}

/// What a damaged store answered.
#[derive(Debug, Default)]
struct Answers {
    /// The start was refused, with these words.
    refused: Option<String>,
    right: u64,
    eio: u64,
}

/// Uses the store through a mount. Fails on anything but what was written, `EIO`, or a refused start.
fn survey(place: &Place, what: &str) -> Answers {
    let mut answers = Answers::default();
    let (code, out, err) = place.mount(&["--memory", "16MiB"]);
    if code != 0 {
        answers.refused = Some(out + &err);
        return answers;
    }
    let mut judge = |right: std::io::Result<bool>, of: &str| match right {
        Ok(true) => answers.right += 1,
        Ok(false) => panic!("{what}: {of}: wrong"),
        Err(e) if e.raw_os_error() == EIO => answers.eio += 1,
        Err(e) => panic!("{what}: {of}: {e}"),
    };
    let listed = std::fs::read_dir(place.path("m"))
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .map(|names| names.len() as u64 == NAMES);
    judge(listed, "the list");
    for i in 0..NAMES {
        let read = std::fs::read(place.path(&format!("m/f{i}")));
        judge(read.map(|found| found == content(i)), &format!("f{i}"));
    }
    // It may have to say that something could not be brought to its end.
    forebay(&["umount", &place.store()]);
    answers
}

#[test]
fn one_changed_byte_of_metadata_is_refused_or_an_error_and_never_an_answer() {
    if !has_fuse() {
        return;
    }
    let kv = "s/node-0/kv";
    let mut reported = 0;
    for (end, parts) in [(".tbl", 4), (".log", 2)] {
        let stored = stored(end == ".log");
        let whole = survey(&copy(&stored), "untouched");
        assert_eq!((whole.refused, whole.right), (None, NAMES + 1));
        let found = files(&stored, kv, end);
        assert!(!found.is_empty(), "no file {end}");
        let file = found.iter().max_by_key(|p| p.metadata().unwrap().len());
        let name = file.unwrap().file_name().unwrap().to_str().unwrap();
        for (part, bits) in (0..parts).flat_map(|part| [(part, ONE_BIT), (part, FOUR_BITS)]) {
            let place = copy(&stored);
            let path = place.path(kv).join(name);
            // Behind the header, and ahead of the zeros that a log file ends with.
            let bytes = std::fs::read(&path).unwrap();
            let used = bytes.iter().rposition(|b| *b != 0).unwrap() as u64;
            let at = 64 + (used - 64) * part / parts;
            damage(&path, at, bits);
            let what = format!("{name} byte {at} of {used}, bits {bits:#04x}");
            let (code, out, err) = forebay(&["fsck", &place.store()]);
            let answers = survey(&place, &what);
            println!("{what}: {answers:?}");
            assert_eq!(code, 1, "{what}: {out}{err}");
            assert!((out.clone() + &err).contains(name), "{what}: {out}{err}");
            if bits == ONE_BIT {
                let found = (&answers.refused, answers.right);
                assert_eq!(found, (&None, NAMES + 1), "{what}");
            } else if let Some(said) = &answers.refused {
                for part in [name, "damaged", "forebay fsck"] {
                    assert!(said.contains(part), "{what}: {said}");
                }
            } else if answers.eio > 0 {
                assert!(place.log().contains(name), "{what}: {}", place.log());
            }
            // A table's damage costs what its block holds; the start and most files stay.
            let most = answers.right > NAMES / 2;
            assert!(end != ".tbl" || most, "{what}: {answers:?}");
            reported += u64::from(answers.refused.is_some() || answers.eio > 0);
        }
    }
    assert!(reported > 0, "no use of the store met the damage");
}
