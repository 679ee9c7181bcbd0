//! Refuses to unmount while files are open, and names the files and the processes that opened them: of all users, from the mount's
//! own table of handles.
use crate::control::MountStatus;
use crate::processes;
use crate::units::count;
use forebay_fuse::{OpenHandles, OpenPath};
use std::time::Duration;

/// How long to wait for the kernel to report closes, which it does some time after them.
const LATE_CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// Files named in a message.
const NAMED_FILES: usize = 3;

/// The refusal to unmount while something is open there.
pub fn refusal_if_open(mount: &MountStatus, handles: &OpenHandles) -> Option<String> {
    let files = handles.open_after(LATE_CLOSE_LIMIT);
    (!files.is_empty()).then(|| refusal(mount, &files))
}

fn refusal(mount: &MountStatus, files: &[OpenPath]) -> String {
    let mut named: Vec<String> = files.iter().take(NAMED_FILES).map(shown).collect();
    if let Some(more) = files.len().checked_sub(NAMED_FILES).filter(|n| *n > 0) {
        named.push(format!("{more} more"));
    }
    let things = match files.len() {
        1 => String::from("1 file or directory is"),
        n => format!("{} files or directories are", count(n as u64)),
    };
    format!(
        "cannot unmount {} (node {}): {things} open there: {} (EBUSY); close them and try again, or add --force",
        mount.path.display(),
        mount.member,
        named.join("; ")
    )
}

fn shown(file: &OpenPath) -> String {
    let mut by: Vec<String> = Vec::new();
    for opener in &file.openers {
        let who = match processes::of_thread(*opener) {
            Some((pid, name)) => format!("{name} (pid {pid})"),
            None => format!("pid {opener}, which has ended"),
        };
        if !by.contains(&who) {
            by.push(who);
        }
    }
    let path = String::from_utf8_lossy(&file.path).into_owned();
    let times = match file.handles {
        1 => String::new(),
        n => format!(", {n} times"),
    };
    match by.is_empty() {
        true => format!("{path}{times}"),
        false => format!("{path}{times}, opened by {}", by.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_paths_counts_and_processes() {
        let mount = MountStatus {
            member: 1,
            path: "/m/1".into(),
        };
        let file = |path: &str, handles, openers: &[u32]| OpenPath {
            path: path.into(),
            handles,
            openers: openers.to_vec(),
        };
        let me = std::process::id();
        let one = refusal(&mount, &[file("a/b", 2, &[me])]);
        let pid = format!("(pid {me})");
        for part in [
            "/m/1 (node 1)",
            "1 file or directory is open",
            "a/b, 2 times, opened by ",
            &pid,
            "EBUSY",
            "--force",
        ] {
            assert!(one.contains(part), "'{part}' is missing in: {one}");
        }
        let files: Vec<OpenPath> = (0..5)
            .map(|i| file(&format!("f{i}"), 1, &[u32::MAX]))
            .collect();
        let many = refusal(&mount, &files);
        for part in [
            "5 files or directories are open",
            "f2",
            "2 more",
            "which has ended",
        ] {
            assert!(many.contains(part), "'{part}' is missing in: {many}");
        }
        assert!(!many.contains("f3"), "{many}");
    }
}
