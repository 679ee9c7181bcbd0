//! Whether a run has left anything behind.
use super::Place;
use forebay_testkit::wait;
use std::path::Path;

/// Processes whose command line names the place, or that hold the lock of one of its stores.
pub fn processes(place: &Path) -> Vec<(u32, String)> {
    let dir = place.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if line.contains(&dir)
            && pid != std::process::id()
            && forebay_node::processes::is_alive(pid)
        {
            found.push((pid, line.replace('\0', " ")));
        }
    }
    for store in std::fs::read_dir(place).unwrap().flatten() {
        let lock = std::fs::read_to_string(store.path().join("lock")).unwrap_or_default();
        let holder = lock.trim().parse().unwrap_or(u32::MAX);
        let program = std::fs::read_to_string(format!("/proc/{holder}/cmdline"));
        if program.unwrap_or_default().contains("forebay")
            && forebay_node::processes::is_alive(holder)
        {
            found.push((holder, format!("the holder of {}", store.path().display())));
        }
    }
    found
}

/// Waits until nothing of the place runs, is mounted, or listens.
#[track_caller]
pub fn nothing(place: &Place) {
    let mounts = || {
        let mut all = forebay_node::mount_table::all().unwrap();
        all.retain(|m| m.point.starts_with(place.path("")));
        all
    };
    let left = || (processes(&place.path("")), mounts());
    let nothing = || left().0.is_empty() && left().1.is_empty();
    wait::until_or(
        wait::LIMIT,
        || format!("nothing is left: {:?}", left()),
        nothing,
    );
    for store in std::fs::read_dir(place.path("")).unwrap().flatten() {
        let log = || std::fs::read_to_string(store.path().join("log")).unwrap_or_default();
        let socket = store.path().join("control");
        assert!(!socket.exists(), "{}: {}", socket.display(), log());
    }
}
