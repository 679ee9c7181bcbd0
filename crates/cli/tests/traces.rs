//! Traces from the command line: made, described, replayed with every byte verified.
#![allow(clippy::unwrap_used)] // A test fails by panicking.
mod common;
use common::{Place, assert_fails, forebay};

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
