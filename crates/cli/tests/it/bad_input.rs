//! Bad input is refused in one line that says what, where and what next, with the right exit code; nothing is lost.
use crate::common::{Place, assert_fails, forebay, has_fuse, install, outcome, run};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

/// All files below a directory, with their bytes; but the lock file, in which a start writes who it is.
fn contents(dir: &std::path::Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else if !path.ends_with("lock") {
            all.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    all
}

#[test]
fn a_directory_of_something_else_is_refused_untouched() {
    let place = Place::new();
    if !has_fuse() {
        return;
    }
    std::fs::create_dir(place.path("s")).unwrap();
    std::fs::write(place.path("s/thesis.tex"), "years of work").unwrap();
    assert_fails(
        &place.mount(&[]),
        1,
        &["not a Forebay store", "thesis.tex", "choose an empty"],
    );
    assert_eq!(
        std::fs::read_to_string(place.path("s/thesis.tex")).unwrap(),
        "years of work"
    );
    assert!(!place.path("s/log").exists() && !place.path("s/superblock").exists());
}

#[test]
fn a_store_of_another_version_or_a_damaged_one_is_refused_untouched() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    std::fs::write(place.path("m/f"), "kept").unwrap();
    place.umount_well();
    let copies = ["s/superblock", "s/superblock.copy"].map(|name| place.path(name));
    let write = |bytes: &[u8]| {
        for path in &copies {
            std::fs::write(path, bytes).unwrap();
        }
    };
    let good = std::fs::read(&copies[0]).unwrap();
    assert_eq!(std::fs::read(&copies[1]).unwrap(), good);
    let earlier = good[11] - 1;
    let earlier_text = format!("version {earlier}");
    for (version, words) in [
        (200, ["version 200", "newer Forebay"]),
        (earlier, [&*earlier_text, "copy the files out"]),
    ] {
        let mut other = good.clone();
        other[11] = version;
        // Only a whole one says of which version it is.
        let summed = other.len() - 4;
        let sum = forebay_checksum::crc32c(&other[..summed]);
        other[summed..].copy_from_slice(&sum.to_be_bytes());
        write(&other);
        let before = contents(&place.path("s"));
        assert_fails(&place.mount(&[]), 1, &words);
        assert!(contents(&place.path("s")) == before);
    }
    let mut damaged = good.clone();
    damaged[30] ^= 1;
    write(&damaged);
    assert_fails(
        &place.mount(&[]),
        1,
        &["damaged", "checksum", "put back a copy"],
    );
    write(&good);
    // One of both is enough.
    for path in &copies {
        std::fs::write(path, &damaged).unwrap();
        place.mount_well(&[]);
        assert_eq!(std::fs::read_to_string(place.path("m/f")).unwrap(), "kept");
        place.umount_well();
        assert_eq!(std::fs::read(path).unwrap(), good);
    }
}

#[test]
fn another_users_store_is_refused() {
    if !has_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    std::fs::create_dir(place.path("s")).unwrap();
    std::os::unix::fs::chown(place.path("s"), Some(12345), None).unwrap();
    assert_fails(
        &place.mount(&[]),
        1,
        &["belongs to user 12345", "run as that user"],
    );
}

#[test]
fn a_store_in_use_is_refused_and_goes_on() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    std::fs::write(place.path("m/f"), "kept").unwrap();
    std::fs::create_dir(place.path("m2")).unwrap();
    let second = forebay(&["mount", &place.store(), &place.text("m2")]);
    assert_fails(&second, 1, &["in use by process", "forebay umount"]);
    // The same command again is refused as well, and leaves the mount of the first alone.
    assert_fails(&place.mount(&[]), 1, &["in use by process"]);
    assert_fails(
        &forebay(&["fsck", &place.store()]),
        1,
        &["in use", "forebay umount"],
    );
    assert_eq!(std::fs::read_to_string(place.path("m/f")).unwrap(), "kept");
    place.umount_well();
}

#[test]
fn another_number_of_nodes_is_refused_and_named() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&["--nodes", "2"]);
    place.umount_well();
    assert_fails(&place.mount(&["--nodes", "3"]), 1, &["2 nodes, not 3"]);
}

#[test]
fn a_mount_point_that_cannot_be_used_is_named() {
    let Some(place) = Place::mountable() else {
        return;
    };
    let (store, mount) = (place.store(), |point: &str| {
        forebay(&["mount", &place.store(), point])
    });
    assert_fails(
        &mount(&place.text("none")),
        1,
        &["none does not exist", "mkdir -p"],
    );
    assert_fails(&mount(&place.text("none/below")), 1, &["none", "create it"]);
    std::fs::write(place.path("file"), "x").unwrap();
    assert_fails(&mount(&place.text("file")), 1, &["not a directory"]);
    std::fs::write(place.path("m/file"), "x").unwrap();
    assert_fails(&mount(&place.mount_point()), 1, &["not empty"]);
    std::fs::remove_file(place.path("m/file")).unwrap();
    assert_fails(
        &mount("/proc"),
        1,
        &["/proc is in use", "another directory"],
    );
    // Nothing was made by these, least of all a store of one node that nobody chose.
    assert!(!place.path("s").exists());
    std::fs::create_dir(&store).unwrap();
    assert_fails(
        &mount(&format!("{store}/inside")),
        2,
        &["lie in each other"],
    );
    // One that is in use by another store of ours, which goes on.
    place.mount_well(&[]);
    std::fs::write(place.path("m/f"), "kept").unwrap();
    let second = forebay(&["mount", &place.text("s2"), &place.mount_point()]);
    assert_fails(&second, 1, &["in use", "forebay umount"]);
    assert_eq!(std::fs::read_to_string(place.path("m/f")).unwrap(), "kept");
    place.umount_well();
}

#[test]
fn the_store_and_the_mount_point_must_not_lie_in_each_other() {
    let Some(place) = Place::mountable() else {
        return;
    };
    let below = format!("{}/s", place.mount_point());
    assert_fails(
        &forebay(&["mount", &below, &place.mount_point()]),
        2,
        &["lie in each other"],
    );
}

#[test]
fn a_full_quota_stops_the_writer_and_loses_nothing() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&["--quota", "8MiB"]);
    // The same bytes again would be stored once.
    let pieces = |n: u64| forebay_testkit::random::seeded_bytes(n, 1 << 20);
    let piece = pieces(0);
    std::fs::write(place.path("m/first"), &piece).unwrap();
    let mut second = std::fs::File::create(place.path("m/second")).unwrap();
    let error = (1..64).find_map(|n| {
        second
            .write_all(&pieces(n))
            .and_then(|()| second.sync_all())
            .err()
    });
    assert_eq!(
        error.map(|e| e.kind()),
        Some(std::io::ErrorKind::StorageFull)
    );
    drop(second);
    assert_eq!(std::fs::read(place.path("m/first")).unwrap(), piece);
    // Deleting works on a full store, and makes room.
    std::fs::remove_file(place.path("m/second")).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while let Err(e) = std::fs::write(place.path("m/third"), &piece) {
        assert!(
            e.kind() == std::io::ErrorKind::StorageFull && std::time::Instant::now() < end,
            "{e}"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    place.umount_well();
    place.mount_well(&["--quota", "8MiB"]);
    for file in ["m/first", "m/third"] {
        assert_eq!(std::fs::read(place.path(file)).unwrap(), piece);
    }
    place.umount_well();
}

#[test]
fn a_damaged_block_is_found_by_fsck_and_reads_as_an_error_never_as_wrong_bytes() {
    let Some(place) = Place::mountable() else {
        return;
    };
    // Both files would have the same chunks.
    let raw = ["--settle", "off"];
    place.mount_well(&raw);
    let bytes = vec![42; 1 << 20];
    std::fs::write(place.path("m/hit"), &bytes).unwrap();
    place.umount_well();
    let (code, out, err) = forebay(&["fsck", &place.store()]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("is sound"), "{out}");
    place.mount_well(&raw);
    std::fs::write(place.path("m/spared"), &bytes).unwrap();
    place.umount_well();
    // One bit, in the middle of the first file's bytes.
    let segments = std::fs::read_dir(place.path("s/node-0/data")).unwrap();
    let first = segments.map(|e| e.unwrap().path()).min().unwrap();
    let mut segment = std::fs::read(&first).unwrap();
    let at = segment
        .windows(4096)
        .position(|w| w.iter().all(|b| *b == 42))
        .unwrap()
        + 300_000;
    segment[at] ^= 1;
    std::fs::write(&first, &segment).unwrap();
    let (code, out, err) = forebay(&["fsck", &place.store()]);
    assert_eq!((code, err.as_str()), (1, ""), "{out}");
    assert!(
        out.contains("problem in data") && out.contains("1 problem"),
        "{out}"
    );
    let (code, out, _) = forebay(&["fsck", &place.store(), "--json"]);
    assert_eq!(code, 1);
    assert!(out.contains("\"sound\":false"), "{out}");
    place.mount_well(&[]);
    let error = std::fs::read(place.path("m/hit")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "EIO");
    assert_eq!(std::fs::read(place.path("m/spared")).unwrap(), bytes);
    place.umount_well();
    let log = place.log();
    assert!(log.contains("checksum"), "{log}");
}

#[test]
fn a_malformed_trace_is_named_with_its_line() {
    let place = Place::new();
    std::fs::write(place.path("t.csv"), "rank,file_id,op\nnot,a,trace,at,all\n").unwrap();
    let trace = place.text("t.csv");
    assert_fails(&forebay(&["trace", "stats", &trace]), 1, &["t.csv"]);
    assert_fails(
        &forebay(&["trace", "stats", "/nonexistent/t"]),
        1,
        &["/nonexistent/t"],
    );
    let replay = forebay(&["trace", "replay", &trace, "--mounts", &place.mount_point()]);
    assert_fails(&replay, 1, &["t.csv"]);
    assert_eq!(std::fs::read_dir(place.path("m")).unwrap().count(), 0);
}

#[test]
fn nothing_to_check_or_to_show_is_said() {
    let place = Place::new();
    assert_fails(&forebay(&["fsck", &place.text("none")]), 1, &["none"]);
    assert_fails(
        &forebay(&["status", &place.text("none")]),
        1,
        &["no Forebay service runs", "forebay mount"],
    );
    assert_fails(
        &forebay(&["umount", &place.text("m")]),
        1,
        &["nothing is mounted"],
    );
}

#[test]
fn a_store_inside_another_one_is_refused() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    place.umount_well();
    for inner in ["s/inner", "s/node-0/inner"] {
        let said = forebay(&["mount", &place.text(inner), &place.mount_point()]);
        assert_fails(&said, 2, &["lies in the store", "outside"]);
        assert!(!place.path(inner).exists());
    }
}

#[test]
fn budgets_that_cannot_be_are_refused() {
    let place = Place::new();
    assert_fails(&place.mount(&["--quota", "0"]), 2, &["--quota", "none"]);
    let much = place.mount(&["--memory", "1024T"]);
    assert_fails(&much, 2, &["1.0 PiB", "this machine has", "--memory"]);
    assert!(!place.path("s").exists());
}

#[test]
fn an_interval_that_stands_apart_from_its_flag_is_told_how_it_is_written() {
    let place = Place::new();
    let (store, at) = (place.store(), place.text("1"));
    let apart = forebay(&["status", &store, "--watch", "1"]);
    assert_fails(&apart, 2, &["write `--watch=1`"]);
    assert_fails(
        &forebay(&["status", "--watch", &at]),
        1,
        &["`--watch=1 STORE`"],
    );
}

#[test]
fn a_mount_that_is_refused_leaves_no_new_store() {
    if !has_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    // A socket of metrics that cannot be, and a mount point that no file system can be mounted on for this user.
    let nowhere = format!("unix:{}", place.text("none/metrics"));
    let (code, _, err) = place.mount(&["--metrics", &nowhere]);
    assert!(code == 1 && err.contains("none"), "{err}");
    assert!(!place.path("s").exists(), "{err}");
    // An ordinary user may not let others in unless /etc/fuse.conf says so.
    std::fs::set_permissions(place.path("."), PermissionsExt::from_mode(0o777)).unwrap();
    let program = place.path("forebay");
    install(&program);
    let mut other = std::process::Command::new(&program);
    std::fs::create_dir(place.path("om")).unwrap();
    std::os::unix::fs::chown(place.path("om"), Some(54321), None).unwrap();
    let args = [
        "mount",
        "--allow-other",
        &place.text("os"),
        &place.text("om"),
    ];
    other.args(args).uid(54321).gid(54321).current_dir("/");
    let (code, out, err) = outcome(&run(other.env("XDG_CONFIG_HOME", "/nonexistent")));
    if code == 0 {
        eprintln!("skipped: /etc/fuse.conf lets everybody let others in: {out}");
        assert_eq!(forebay(&["umount", &place.text("om")]).0, 0);
        return;
    }
    assert!(!place.path("os").exists(), "{err}");
}
