//! The demo end to end, in small.
use crate::common::{Place, assert_fails, command, forebay};
use forebay_testkit::wait::{LIMIT, until, until_some};
use std::io::Read;
use std::process::Stdio;

#[test]
fn the_demo_verifies_every_byte_and_leaves_nothing() {
    let Some(place) = Place::mountable() else {
        return;
    };
    let (code, out, err) = forebay(&[
        "demo",
        "--size",
        "16MiB",
        "--dir",
        &place.text("."),
        "--json",
    ]);
    assert_eq!(code, 0, "{err}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["verified_bytes"], 48 << 20);
    let stored = report["second_checkpoint"]["stored_ratio"].as_f64();
    assert!(stored.is_some_and(|ratio| ratio < 0.7), "{out}");
    assert_eq!(report["nodes"], 4);
    assert!(
        report["extents"].as_u64().unwrap() > 40 && report["index_bytes"].as_u64().unwrap() > 0,
        "{out}"
    );
    let each = report["index_bytes_per_record"].as_f64().unwrap();
    assert!(each > 0.0 && each < 46.0, "{out}");
    assert_eq!(report["index"]["table_records"], report["extents"]);
    // The second part, where the command is built for an MPI that can start it.
    #[cfg(feature = "mpi")]
    if crate::common::mpi::mpirun().is_some() {
        assert_eq!(report["over_mpi"]["size"], 16 << 20);
        assert_eq!(report["over_mpi"]["servers"], 4);
    }
    for step in ["write_16", "read_16", "read_6"] {
        assert!(report[step]["ratio"].as_f64().unwrap() > 0.0, "{out}");
    }
    assert_eq!(
        std::fs::read_dir(place.path(".")).unwrap().count(),
        1,
        "only the mount point of the test"
    );
}

#[test]
fn the_demo_cleans_up_after_ctrl_c() {
    let Some(place) = Place::mountable() else {
        return;
    };
    let mut command = command(&["demo", "--size", "1GiB", "--dir", &place.text(".")]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mounted = || {
        forebay_node::mount_table::all()
            .unwrap()
            .iter()
            .any(|m| m.point.starts_with(place.path("")))
    };
    until("it mounts", || {
        assert!(child.try_wait().unwrap().is_none());
        mounted()
    });
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let pid = child.id();
    let stacks = || forebay_node::processes::stacks(pid);
    let status = until_some(LIMIT, stacks, || child.try_wait().unwrap());
    let mut err = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    assert_eq!(status.code(), Some(1), "{err}");
    assert!(err.contains("interrupted"), "{err}");
    assert!(!mounted());
    assert_eq!(
        std::fs::read_dir(place.path(".")).unwrap().count(),
        1,
        "only the mount point of the test"
    );
}

#[test]
fn a_disk_without_room_is_refused_before_anything_is_written() {
    let Some(place) = Place::mountable() else {
        return;
    };
    let result = forebay(&["demo", "--size", "1000T", "--dir", &place.text(".")]);
    assert_fails(&result, 1, &["free", "--size"]);
    assert_fails(
        &forebay(&["demo", "--dir", &place.text("none")]),
        1,
        &["none", "--dir"],
    );
    assert_eq!(std::fs::read_dir(place.path(".")).unwrap().count(), 1);
}
