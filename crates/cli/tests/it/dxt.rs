//! Every shared DXT trace replays through the mounts of a four-node service, every byte verified, and leaves a sound store.
//!
//! The traces are no part of the repository: they are looked for in `../shared`, or where `FOREBAY_SHARED` says. Those of
//! several GiB run with `SOAK=1` only; with `SOAK_DIR` set, what is done is not done again.
use crate::common::{Place, command, forebay, has_fuse, outcome, run_within};
use forebay_testkit::datasets::dataset;
use forebay_testkit::seeds;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// They move 4 to 32 GiB.
const LARGE: [&str; 2] = ["openpmd-", "vpic-"];

/// None where the shared traces are missing.
fn traces() -> Vec<PathBuf> {
    let entries = dataset("data/dxt").map(|dir| std::fs::read_dir(dir).unwrap());
    let entries = entries.into_iter().flatten();
    let mut traces: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    traces.retain(|p| p.to_string_lossy().ends_with(".csv.zst"));
    traces.sort();
    traces
}

#[test]
fn every_shared_trace_replays_through_the_mounts() {
    if !has_fuse() {
        return;
    }
    let traces = traces();
    if traces.is_empty() {
        return;
    }
    let soak = seeds::is_soak();
    let progress = seeds::progress_file("dxt");
    let done = progress
        .as_deref()
        .and_then(|p| std::fs::read_to_string(p).ok())
        .unwrap_or_default();
    let mut done: BTreeSet<String> = done.lines().map(String::from).collect();
    for trace in traces {
        let name = trace.file_name().unwrap().to_string_lossy().into_owned();
        let large = LARGE.iter().any(|prefix| name.starts_with(prefix));
        if (large && !soak) || done.contains(&name) {
            continue;
        }
        // The MPI-IO layer of an old log does not tell offsets; its POSIX layer does.
        if name.contains(".mpiio.") {
            let ops = forebay_trace::load(&trace).unwrap().ops;
            if ops.iter().any(|op| op.offset == forebay_trace::NO_OFFSET) {
                println!("{name}: offsets are not known; its POSIX layer is replayed");
                continue;
            }
        }
        let place = Place::new();
        let limit = Duration::from_secs(if large { 3600 } else { 180 });
        let mut replay = command(&["trace", "replay", trace.to_str().unwrap()]);
        replay.args(["--store", &place.store(), "--nodes", "4"]);
        let (code, out, err) = outcome(&run_within(&mut replay, limit));
        assert_eq!(code, 0, "{name}: {out}{err}{}", place.log());
        let (code, out, err) = forebay(&["fsck", &place.store()]);
        assert_eq!(code, 0, "{name}: fsck: {out}{err}");
        done.insert(name);
        if let Some(path) = &progress {
            std::fs::write(path, done.iter().cloned().collect::<Vec<_>>().join("\n")).unwrap();
        }
    }
}
