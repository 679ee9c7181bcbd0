//! Real traces, fields and checkpoints, which are not in the repository, but in `../shared` or where `FOREBAY_SHARED` says.
use std::path::{Path, PathBuf};

/// A directory of them: in `../shared`, or where `FOREBAY_SHARED` says. `None` (and a word on standard output) if it is not there.
pub fn dataset(path: &str) -> Option<PathBuf> {
    let shared = match std::env::var_os("FOREBAY_SHARED") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let dir = shared.join(path);
    if dir.is_dir() {
        return Some(dir);
    }
    println!(
        "skipped: {} is not there; set FOREBAY_SHARED to the directory that has {path}",
        dir.display()
    );
    None
}
