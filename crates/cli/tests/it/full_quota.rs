//! A full quota through a real mount: files are overwritten where they are, `df` says what the node's writers find, and
//! what was refused or removed leaves nothing behind.
use crate::common::*;
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::wait::{LIMIT, until_or};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};

const MIB: usize = 1 << 20;

/// Free bytes below a directory, as `df` says.
fn free(place: &Place, dir: &str) -> u64 {
    let mut df = std::process::Command::new("df");
    let output = run(df.args(["-B1", "--output=avail", &place.text(dir)]));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().last().unwrap().trim().parse().unwrap()
}

#[test]
fn a_full_quota_lets_files_be_overwritten_and_gives_all_back() {
    let Some(place) = Place::mountable() else {
        return;
    };
    let args = ["--nodes", "2", "--quota", "16MiB"];
    place.mount_well(&args);
    // Over committed bytes: there is never room for the file twice.
    let (old, new) = (seeded_bytes(1, 10 * MIB), seeded_bytes(2, 10 * MIB));
    let mut file = File::create(place.path("m/0/f")).unwrap();
    file.write_all(&old).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let mut file = OpenOptions::new()
        .write(true)
        .open(place.path("m/0/f"))
        .unwrap();
    file.write_all(&new).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert!(std::fs::read(place.path("m/1/f")).unwrap() == new);
    // A file that does not fit: what was accepted is published by its close.
    let mut second = File::create(place.path("m/0/second")).unwrap();
    // The same bytes again would be stored once.
    let len = MIB / 2;
    let piece = |i: usize| seeded_bytes(3 + i as u64, len);
    let mut accepted = 0;
    let error = loop {
        match second.write(&piece(accepted)) {
            Ok(n) if n == len => accepted += 1,
            Ok(_) => continue,
            Err(e) => break e,
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    second.sync_all().unwrap();
    drop(second);
    assert!(accepted >= 10, "{accepted} pieces");
    let seen = std::fs::read(place.path("m/1/second")).unwrap();
    for i in 0..accepted {
        assert!(seen[i * len..(i + 1) * len] == piece(i));
    }
    // Data stays on the writer's node.
    assert!(free(&place, "m/0") < (MIB / 2) as u64);
    assert_eq!(free(&place, "m/1"), 16 * MIB as u64);
    std::fs::write(place.path("m/1/third"), &old).unwrap();
    std::fs::remove_file(place.path("m/1/second")).unwrap();
    let free_now = || format!("{} bytes are free", free(&place, "m/0"));
    until_or(LIMIT, free_now, || free(&place, "m/0") == 6 * MIB as u64);
    place.umount_well();
    place.mount_well(&args);
    assert!(std::fs::read(place.path("m/1/f")).unwrap() == new);
    assert!(std::fs::read(place.path("m/0/third")).unwrap() == old);
    place.umount_well();
    let (code, out, err) = forebay(&["fsck", &place.store()]);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn checkpoints_that_fit_the_quota_only_once_are_all_kept_also_over_a_restart() {
    let Some(place) = Place::mountable() else {
        return;
    };
    let args = ["--quota", "24MiB", "--settle", "auto"];
    place.mount_well(&args);
    let bytes = seeded_bytes(1, 16 * MIB);
    let write = |name: &str, bytes: &[u8]| {
        let mut file = File::create(place.path(name))?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    for n in 0..3 {
        write(&format!("m/{n}"), &bytes).unwrap();
    }
    let total = 24 * MIB as u64;
    let enough = |free: u64| (6 * MIB as u64..total - bytes.len() as u64 + 1).contains(&free);
    let free_now = || format!("{} bytes are free", free(&place, "m"));
    until_or(LIMIT, free_now, || enough(free(&place, "m")));
    place.umount_well();
    place.mount_well(&args);
    assert!(enough(free(&place, "m")), "{}", free_now());
    write("m/3", &bytes).unwrap();
    // What is like nothing else does not fit.
    let refused = write("m/other", &seeded_bytes(2, 12 * MIB)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    for n in 0..4 {
        assert!(std::fs::read(place.path(&format!("m/{n}"))).unwrap() == bytes);
    }
    place.umount_well();
    let (code, out, err) = forebay(&["fsck", &place.store()]);
    assert_eq!(code, 0, "{out}{err}");
}
