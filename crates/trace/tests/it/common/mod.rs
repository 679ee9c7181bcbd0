//! Where the shared traces are. They are no part of the repository.

use std::path::{Path, PathBuf};

/// The directory of the DXT traces: in `../shared`, or where `FOREBAY_SHARED` says. `None` (and a word on standard
/// output) if it is not there.
pub fn shared_traces() -> Option<PathBuf> {
    let shared = match std::env::var_os("FOREBAY_SHARED") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let dir = shared.join("data/dxt");
    if dir.is_dir() {
        return Some(dir);
    }
    println!(
        "skipped: no traces in {}; set FOREBAY_SHARED to the directory that has data/dxt",
        dir.display()
    );
    None
}
