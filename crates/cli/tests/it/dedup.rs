//! `forebay dedup`: what it counts of files of known content, as text, JSON and picture; what it is not to touch.
use crate::common::{Place, assert_fails, forebay};
use forebay_testkit::random::seeded_bytes;
use std::fs;
use std::os::unix::fs::symlink;

/// The numbers of the cut with this grid and chunk size.
fn cut(report: &serde_json::Value, kib: u64, grid: &str) -> [u64; 3] {
    let cuts = report["cuts"].as_array().unwrap();
    let cut = cuts
        .iter()
        .find(|c| c["chunk_bytes"] == kib << 10 && c["grid"] == grid)
        .unwrap();
    ["zero", "duplicate", "stored"].map(|name| cut[name].as_u64().unwrap())
}

fn json(args: &[&str]) -> serde_json::Value {
    let (code, out, err) = forebay(&[&["dedup", "--json"], args].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    serde_json::from_str(&out).unwrap()
}

/// 1 MiB of data, as it is and behind 137 bytes, and a hole of 1 MiB.
fn place() -> Place {
    let place = Place::new();
    let data = seeded_bytes(1, 1 << 20);
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/a"), [&data[..], &[0; 1 << 20]].concat()).unwrap();
    fs::write(
        place.path("tree/b"),
        [&seeded_bytes(2, 137), &data[..]].concat(),
    )
    .unwrap();
    fs::write(place.path("again"), &data).unwrap();
    place
}

#[test]
fn the_anchored_grid_finds_what_the_fixed_one_does_not_behind_a_header() {
    let place = place();
    let [tree, again] = ["tree", "again"].map(|f| place.text(f));
    let report = json(&[&tree, &again]);
    let tree = &report["paths"][0];
    assert_eq!(
        (&tree["files"], &tree["bytes"]),
        (&2.into(), &((3u64 << 20) + 137).into())
    );
    assert_eq!(cut(tree, 4, "fixed"), [1 << 20, 0, (2 << 20) + 137]);
    let [zero, duplicate, _] = cut(tree, 4, "anchored");
    assert!(
        zero == 1 << 20 && duplicate >= (1 << 20) - 8192,
        "{duplicate}"
    );
    // The second path is all in the first.
    for kib in [4, 8, 16, 32, 64] {
        assert_eq!(cut(&report["paths"][1], kib, "fixed"), [0, 1 << 20, 0]);
    }
    assert_eq!(
        cut(&report["total"], 4, "fixed"),
        [1 << 20, 1 << 20, (2 << 20) + 137]
    );
}

#[test]
fn the_table_says_it_to_people() {
    let place = place();
    let [tree, again] = ["tree", "again"].map(|f| place.text(f));
    let (code, out, err) = forebay(&["dedup", "--chunk", "4KiB", &tree, &again]);
    assert_eq!(code, 0, "{err}");
    for part in [
        "tree: 3.0 MiB in 2 files",
        "again: 1.0 MiB in 1 file\n",
        "all together: 4.0 MiB in 3 files",
        "Least is stored with anchored chunks of 4 KiB",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    assert!(!out.contains("8 KiB") && !out.contains('~'), "{out}");
}

#[test]
fn little_memory_makes_estimates_and_says_so() {
    let place = Place::new();
    let data = seeded_bytes(3, 8 << 20);
    for name in ["a", "b"] {
        fs::write(place.path(name), &data).unwrap();
    }
    let [a, b] = ["a", "b"].map(|f| place.text(f));
    let (code, out, err) = forebay(&["dedup", "--memory", "64KiB", "--chunk", "4K", &a, &b]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("~: estimates") && out.contains("~ "), "{out}");
    let report = json(&["--memory", "64KiB", "--chunk", "4K", &a, &b]);
    let [_, duplicate, _] = cut(&report["total"], 4, "fixed");
    let share = duplicate as f64 / (16 << 20) as f64;
    assert!((0.42..0.58).contains(&share), "{share}");
}

#[test]
fn files_with_two_names_count_once_and_links_are_not_followed() {
    let place = place();
    fs::hard_link(place.path("tree/a"), place.path("tree/c")).unwrap();
    symlink(place.path("again"), place.path("tree/d")).unwrap();
    symlink("..", place.path("tree/up")).unwrap();
    let before = fs::metadata(place.path("tree/a")).unwrap();
    let report = json(&[&place.text("tree"), &place.text("tree/c")]);
    assert_eq!(
        (&report["paths"][0]["files"], &report["paths"][1]["files"]),
        (&2.into(), &0.into())
    );
    let after = fs::metadata(place.path("tree/a")).unwrap();
    assert_eq!(
        (before.modified().unwrap(), before.len()),
        (after.modified().unwrap(), after.len())
    );
}

#[test]
fn the_picture_has_a_bar_for_each_grid_and_size() {
    let place = place();
    let [tree, svg] = ["tree", "p.svg"].map(|f| place.text(f));
    let (code, _, err) = forebay(&["dedup", &tree, "--plot", &svg]);
    assert_eq!(code, 0, "{err}");
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    for part in [
        "tree: 3.0 MiB in 2 files",
        "4 KiB",
        "64 KiB",
        "duplicate, anchored grid",
        ">33.3<",
    ] {
        assert!(drawn.contains(part), "{part}");
    }
    assert!(drawn.matches("<rect").count() >= 1 + 3 + 2 * 10);
    assert_fails(
        &forebay(&["dedup", &tree, "--plot", &place.text("p.pdf")]),
        2,
        &[".svg"],
    );
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_counts() {
    let place = place();
    assert_fails(
        &forebay(&["dedup", &place.text("none")]),
        2,
        &["none", "that are there"],
    );
    assert_fails(
        &forebay(&["dedup", "--chunk", "5K", &place.text("tree")]),
        2,
        &["5K", "64 KiB"],
    );
    // A regular file by its kind, of which nothing lies at the beginning.
    let (code, out, err) = forebay(&["dedup", "/proc/self/mem", &place.text("tree")]);
    assert_eq!(code, 1);
    assert!(
        err.contains("cannot read /proc/self/mem") && err.contains("1 file could not be read"),
        "{err}"
    );
    assert!(out.contains("tree: 3.0 MiB in 2 files"), "{out}");
}
