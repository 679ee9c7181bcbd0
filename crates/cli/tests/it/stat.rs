//! `forebay stat`: what it shows of files of a mount, with patterns on and off.
use crate::common::{Place, assert_fails, forebay};
use forebay_testkit::turns;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Writes rows of 4 KiB through all mounts.
fn stride(place: &Place, name: &str, nodes: u64, rows: u64) {
    for node in 0..nodes {
        // One handle a node: the end of another one would commit what is written till then.
        let path = place.path(&format!("m/{node}/{name}"));
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true).open(path);
        let file = file.unwrap();
        for row in 0..rows {
            let at = (row * nodes + node) * 4096;
            file.write_all_at(&[7; 4096], at).unwrap();
        }
    }
}

#[test]
fn patterns_and_extents_of_a_file_are_shown() {
    let _turn = turns::exclusive();
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&["--nodes", "2"]);
    stride(&place, "f", 2, 300);
    let file = place.text("m/1/f");
    let (code, out, _) = forebay(&["stat", "--extents", &file]);
    assert_eq!(code, 0, "{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with(&format!("{file}: 2.3 MiB, 2.3 MiB stored; owned by node ")));
    assert!(lines[1].starts_with("patterns: "), "{out}");
    assert!(lines[1].ends_with(" for 600 extents of 2 logs"), "{out}");
    assert_eq!(
        lines[2..],
        ["  at 0 B: 2 x [300 x 4 KiB stride 8 KiB] stride 4 KiB (2 logs of nodes 0-1)"]
    );
    let (code, out, _) = forebay(&["stat", &file]);
    assert_eq!((code, out.lines().count()), (0, 2), "{out}");

    let (code, out, _) = forebay(&["stat", "--json", "--extents", &file, &place.text("m/0/f")]);
    assert_eq!((code, out.lines().count()), (0, 2));
    for line in out.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["patterns"]["rows"][0]["extents"], 600);
        assert_eq!(value["layout"], "Patterned");
    }
    assert_fails(
        &forebay(&["stat", &place.text("m/0/none")]),
        1,
        &["cannot stat", "no such file"],
    );
    assert_fails(
        &forebay(&["stat", &place.text("m/0")]),
        1,
        &["not a regular file"],
    );
    std::fs::write(place.path("elsewhere"), "x").unwrap();
    assert_fails(
        &forebay(&["stat", "--extents", &place.text("elsewhere")]),
        1,
        &["not on a Forebay mount"],
    );
    place.umount_well();
}

#[test]
fn without_patterns_the_index_has_the_extents() {
    let _turn = turns::exclusive();
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&["--nodes", "2", "--patterns", "off"]);
    stride(&place, "f", 2, 300);
    let (code, out, _) = forebay(&["stat", "--extents", &place.text("m/0/f")]);
    assert_eq!(code, 0, "{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines[1..],
        [
            "index: 600 extents of 2 logs",
            "  at 0 B: 2 x [300 x 4 KiB stride 8 KiB] stride 4 KiB (2 logs of nodes 0-1)"
        ]
    );
    place.umount_well();
    assert_fails(
        &place.mount(&["--patterns", "maybe"]),
        2,
        &["'maybe'", "on or off"],
    );
}
