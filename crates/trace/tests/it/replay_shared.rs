//! The shared DXT traces replay on a plain directory, and every byte is right.
//!
//! Traces of more than 150 MB only with `SOAK=1`: the largest writes 17 GB.

use forebay_testkit::datasets::dataset;
use forebay_trace::replay::{Options, PathTarget, replay};
use forebay_trace::{Error, load};

#[test]
fn shared_traces_replay() {
    let Some(dir) = dataset("data/dxt") else {
        return;
    };
    let soak = forebay_testkit::seeds::is_soak();
    let mut replayed = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".csv.zst") {
            continue;
        }
        let trace = load(&path).unwrap();
        let bytes: u64 = trace.ops.iter().map(|op| op.len).sum();
        if bytes > 150_000_000 && !soak {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        // Two mounts that are one directory.
        let target = PathTarget::new(vec![dir.path().to_owned(); 2]).unwrap();
        match replay(&trace, &target, &Options::default()) {
            Ok(report) => {
                assert_eq!(report.read + report.written, bytes, "{name}");
                assert!(
                    report.checked >= if report.written > 0 { 1 } else { 0 },
                    "{name}"
                );
                println!("{name}: {report:?}");
                replayed += 1;
            }
            // The one log without offsets says so.
            Err(Error::Unfit { reason, .. }) if name.starts_with("mpi-io-test") => {
                assert!(reason.contains("offset is not known"))
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
    assert!(replayed >= 5, "{replayed} traces replayed");
}
