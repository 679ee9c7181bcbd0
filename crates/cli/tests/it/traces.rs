//! Traces from the command line: made, described, replayed with every byte verified.
use crate::common::left::nothing;
use crate::common::{Place, assert_fails, command, forebay, outcome};
use forebay_testkit::wait::until;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;

#[test]
fn a_made_trace_is_described() {
    let place = Place::new();
    let file = place.text("t");
    let (code, _, err) = forebay(&[
        "trace",
        "gen",
        "ior-strided",
        "ranks=4",
        "size=4KiB",
        "calls=10",
        "-o",
        &file,
    ]);
    assert_eq!(code, 0, "{err}");
    assert!(
        err.contains("80 calls of 4 ranks"),
        "written and read back: {err}"
    );
    let (code, out, _) = forebay(&["trace", "stats", &file, "--json"]);
    assert_eq!(code, 0);
    let stats: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(stats["writes"]["bytes"], 4 * 10 * 4096);
    assert_eq!(stats["files"][0]["writers"], 4);
    let (code, out, _) = forebay(&["trace", "stats", &file]);
    assert_eq!(code, 0);
    assert!(out.contains("160.0 KiB"), "{out}");
}

#[test]
fn every_workload_is_listed_and_can_be_made() {
    let (code, out, _) = forebay(&["trace", "gen", "list"]);
    assert_eq!(code, 0);
    for (kind, _) in forebay_trace::workload::KINDS {
        assert!(out.contains(kind), "{kind} in {out}");
    }
    assert_fails(
        &forebay(&["trace", "gen", "ior-strided", "rank=4", "-o", "/dev/null"]),
        2,
        &["rank", "ranks"],
    );
    assert_fails(
        &forebay(&["trace", "gen", "iro", "-o", "/dev/null"]),
        2,
        &["iro", "trace gen list"],
    );
}

/// Replays a small trace with further arguments; gives the report.
fn replay(place: &Place, args: &[&str]) -> serde_json::Value {
    let file = place.text("t");
    let (code, _, err) = forebay(&[
        "trace",
        "gen",
        "ior-strided",
        "ranks=8",
        "size=47008",
        "calls=6",
        "readers=3",
        "-o",
        &file,
    ]);
    assert_eq!(code, 0, "{err}");
    let (code, out, err) = forebay(&[&["trace", "replay", &file, "--json"], args].concat());
    assert_eq!(code, 0, "{err}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let bytes = 8 * 6 * 47008;
    assert_eq!(report["written_bytes"], bytes, "{out}");
    assert_eq!(report["read_bytes"], bytes, "{out}");
    assert_eq!(report["checked_bytes"], bytes, "{out}");
    report
}

#[test]
fn a_trace_replays_through_directories() {
    let place = Place::new();
    replay(&place, &["--mounts", &place.mount_point()]);
    assert_eq!(std::fs::read_dir(place.path("m")).unwrap().count(), 1);
}

#[test]
fn a_trace_replays_through_the_library_and_stays_in_the_store() {
    let place = Place::new();
    replay(
        &place,
        &["--store", &place.store(), "--library", "--nodes", "4"],
    );
    let (code, out, err) = forebay(&["fsck", &place.store(), "--json"]);
    assert_eq!(code, 0, "{err}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(
        report["sound"] == true && report["bytes"].as_u64().unwrap() >= 8 * 6 * 47008,
        "{out}"
    );
}

#[test]
fn a_trace_replays_through_a_service_of_its_own_and_through_mounts_that_are_there() {
    let Some(place) = Place::mountable() else {
        return;
    };
    replay(&place, &["--store", &place.store(), "--nodes", "4"]);
    place.mount_well(&["--nodes", "4"]);
    let mounts = (0..4)
        .map(|n| place.text(&format!("m/{n}")))
        .collect::<Vec<_>>()
        .join(",");
    replay(&place, &["--mounts", &mounts]);
    place.umount_well();
}

#[test]
fn an_interrupted_replay_leaves_no_mount_and_no_directory() {
    let Some(place) = Place::mountable() else {
        return;
    };
    let (file, dir) = (place.text("t"), place.path("tmp"));
    std::fs::create_dir(&dir).unwrap();
    let made = ["trace", "gen", "ior-strided", "ranks=4", "size=4KiB"];
    let (code, _, err) = forebay(&[&made[..], &["calls=500", "-o", &file]].concat());
    assert_eq!(code, 0, "{err}");
    let mut replay = command(&["trace", "replay", &file, "--delays", "100ms"]);
    replay.args(["--store", &place.store()]).env("TMPDIR", &dir);
    replay.stdout(Stdio::piped()).stderr(Stdio::piped());
    let replay = replay.spawn().unwrap();
    let base = dir.join(format!("forebay-replay-{}", replay.id()));
    let written =
        || std::fs::read_dir(base.join("0")).is_ok_and(|mut files| files.next().is_some());
    until("the replay writes", written);
    kill_process(Pid::from_child(&replay), Signal::INT).unwrap();
    let (code, out, err) = outcome(&replay.wait_with_output().unwrap());
    assert_eq!(code, 1, "{out}{err}");
    assert!(err.contains("interrupted"), "{err}");
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().collect();
    assert!(left.is_empty(), "{left:?}: {err}");
    nothing(&place);
}
