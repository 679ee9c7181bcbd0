//! What was found when a store was opened, as `forebay status` and the metrics tell it.
use crate::common::{Place, forebay};
use forebay_testkit::random::seeded_bytes;
use std::path::{Path, PathBuf};

/// The newest log of a member's records.
fn newest_log(kv: &Path) -> PathBuf {
    let entries = std::fs::read_dir(kv).unwrap();
    let paths = entries.map(|e| e.unwrap().path());
    let logs = paths.filter(|p| p.extension().is_some_and(|e| e == "log"));
    logs.max().unwrap()
}

#[test]
fn a_log_that_was_cut_and_a_superblock_that_was_made_again_are_told() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&["--nodes", "2"]);
    for i in 0..20 {
        std::fs::write(place.path(&format!("m/1/f{i}")), seeded_bytes(i, 1000)).unwrap();
    }
    place.kill();
    // The killed server did not finish its last record.
    let log = newest_log(&place.path("s/node-1/kv"));
    let mut bytes = std::fs::read(&log).unwrap();
    let end = bytes.iter().rposition(|b| *b != 0).unwrap();
    bytes.truncate(end - 2);
    std::fs::write(&log, bytes).unwrap();
    let copy = place.path("s/superblock.copy");
    let mut bytes = std::fs::read(&copy).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&copy, bytes).unwrap();
    let metrics = place.text("metrics");
    place.mount_well(&["--nodes", "2", "--metrics", &format!("unix:{metrics}")]);

    let log = log.file_name().unwrap().to_str().unwrap();
    let (code, out, err) = forebay(&["status", &place.store()]);
    assert_eq!(code, 0, "{err}");
    let line = |parts: &[&str]| {
        let found = out.lines().any(|l| parts.iter().all(|p| l.contains(p)));
        assert!(found, "{parts:?} in {out}");
    };
    line(&[
        "node 0, when it was opened: ",
        "superblock.copy was damaged",
    ]);
    line(&["node 0, when it was opened: it was not closed"]);
    line(&[
        "node 1, when it was opened: ",
        log,
        "cut at byte",
        "behind batch",
    ]);

    let (_, out, _) = forebay(&["status", &place.store(), "--json"]);
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    let member = &status["members"][1];
    assert_eq!(member["unclean"], true);
    let notes = member["notes"].as_array().unwrap();
    assert!(notes.len() == 1 && notes[0].as_str().unwrap().contains("cut at byte"));

    place.umount_well();
    place.mount_well(&["--nodes", "2"]);
    let (_, out, _) = forebay(&["status", &place.store()]);
    assert!(!out.contains("when it was opened"), "{out}");
    place.umount_well();
}
