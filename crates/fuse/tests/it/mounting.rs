//! Mounting itself: what is refused with which words, dead mounts, busy ends.
use crate::common::{Harness, Map, Setup, create_new, errno};
use forebay_fuse::{MountError, mounts, unmount};
use forebay_testkit::random::seeded_bytes;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

#[test]
fn a_mount_point_in_use_or_unfit_is_refused_with_words() {
    let Some(mut h) = Harness::start(Setup {
        nodes: 2,
        ..Setup::default()
    }) else {
        return;
    };
    fs::write(h.mount(0).join("f"), "x").unwrap();
    // A second service on the same mount points: its own store, so only the mount can refuse.
    let mut second = crate::common::role(
        "serve",
        &[
            &format!("{}2", h.store().display()),
            h.mount(0).parent().unwrap().to_str().unwrap(),
            "2",
            "0",
            "1",
            "0",
            "-",
            "1",
            "-",
        ],
    );
    let out = second.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(
        said.contains("FAILED") && said.contains("in use") && said.contains("forebay umount"),
        "{said}"
    );
    // The running mount is untouched.
    assert_eq!(fs::read(h.mount(1).join("f")).unwrap(), b"x");
    h.stop();
    fs::write(h.mount(1).join("stray"), "x").unwrap();
    let refused = h.serve().unwrap_err();
    assert!(refused.contains("not empty"), "{refused}");
    fs::remove_file(h.mount(1).join("stray")).unwrap();
    fs::remove_dir(h.mount(1)).unwrap();
    let refused = h.serve().unwrap_err();
    assert!(refused.contains("does not exist"), "{refused}");
    fs::write(h.mount(1), "").unwrap();
    let refused = h.serve().unwrap_err();
    assert!(refused.contains("not a directory"), "{refused}");
    // Nothing of the refused starts is left behind.
    assert!(!mounts().unwrap().iter().any(|m| {
        m.point
            .starts_with(fs::canonicalize(h.store().parent().unwrap()).unwrap())
    }));
    fs::remove_file(h.mount(1)).unwrap();
    fs::create_dir(h.mount(1)).unwrap();
    h.serve().unwrap();
    assert_eq!(fs::read(h.mount(1).join("f")).unwrap(), b"x");
}

#[test]
fn dead_mounts_are_cleared_away_and_a_mount_inside_another_is_refused() {
    let Some(mut h) = Harness::four() else { return };
    fs::write(h.mount(0).join("f"), "x").unwrap();
    h.kill();
    assert_eq!(errno(fs::metadata(h.mount(0).join("f"))), libc::ENOTCONN);
    // Four mounts start in one process while all four points are dead mounts.
    h.serve().unwrap();
    assert_eq!(fs::read(h.mount(3).join("f")).unwrap(), b"x");
    let points = fs::canonicalize(h.mount(0).parent().unwrap()).unwrap();
    assert_eq!(
        mounts()
            .unwrap()
            .iter()
            .filter(|m| m.point.starts_with(&points))
            .count(),
        4
    );
    // A mount point inside a mount, through a symbolic link.
    fs::create_dir_all(h.mount(0).join("inner/0")).unwrap();
    let link = h.store().with_file_name("link");
    std::os::unix::fs::symlink(h.mount(0).join("inner"), &link).unwrap();
    let mut second = crate::common::role(
        "serve",
        &[
            &format!("{}2", h.store().display()),
            link.to_str().unwrap(),
            "1",
            "0",
            "1",
            "0",
            "-",
            "1",
            "-",
        ],
    );
    let said =
        String::from_utf8_lossy(&second.stdin(Stdio::null()).output().unwrap().stdout).into_owned();
    assert!(
        said.contains("FAILED") && said.contains("lies inside the mount"),
        "{said}"
    );
}

#[test]
fn a_mount_that_someone_unmounts_ends_and_a_busy_one_is_cut_off() {
    let Some(mut h) = Harness::start(Setup {
        nodes: 2,
        ..Setup::default()
    }) else {
        return;
    };
    assert!(matches!(
        unmount(&h.store(), false),
        Err(MountError::NotMounted { .. })
    ));
    let mut user = Command::new("sleep")
        .arg("1000")
        .current_dir(h.mount(1))
        .spawn()
        .unwrap();
    assert!(matches!(
        unmount(&h.mount(1), false),
        Err(MountError::Busy { .. })
    ));
    unmount(&h.mount(0), false).unwrap();
    // The server still stops in order; the user of the other mount is cut off after the grace period.
    let said = h.stop();
    assert!(
        said.contains("was cut off") && said.contains("STOPPED"),
        "{said}"
    );
    user.kill().unwrap();
    user.wait().unwrap();
    h.serve().unwrap();
}

#[test]
fn what_a_program_has_written_is_there_when_its_mount_is_cut_off_from_it() {
    for setup in [Setup::ALONE, Setup::ALONE_WRITE_THROUGH] {
        let Some(mut h) = Harness::start(setup) else {
            return;
        };
        let bytes = seeded_bytes(1, 3_000_000);
        let files = ["a", "b"].map(|name| create_new(&h.mount(0).join(name)));
        let mut map = None;
        for f in &files {
            f.write_all_at(&bytes, 0).unwrap();
            map = Some(Map::new(f, bytes.len(), libc::MAP_SHARED).unwrap());
        }
        map.as_mut().unwrap().bytes()[5] ^= 1;
        let said = h.stop();
        assert!(
            said.contains("was cut off") && said.contains("STOPPED"),
            "{said}"
        );
        drop((files, map));
        h.serve().unwrap();
        let mut mapped = bytes.clone();
        mapped[5] ^= 1;
        assert!(
            fs::read(h.mount(0).join("a")).unwrap() == bytes,
            "{setup:?}"
        );
        let read = fs::read(h.mount(0).join("b")).unwrap();
        // Without the writeback cache nobody asks for what a mapping has.
        assert!(
            read == mapped || !setup.write_back && read == bytes,
            "{setup:?}"
        );
    }
}
