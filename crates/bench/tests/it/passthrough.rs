//! The program end to end: the pass-through is a correct file system, and the benchmark prints what it promises.
use forebay_testkit::prerequisites::has_fuse;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BENCH: &str = env!("CARGO_BIN_EXE_forebay-bench");
/// Those that need no other program.
const SUBJECTS: [&str; 3] = ["disk", "passthrough", "passthrough-writeback"];

/// A served mount; gone with its standard input.
struct Served(Child);

impl Served {
    fn start(source: &Path, point: &Path, flags: &[&str]) -> Served {
        let mut child = Command::new(BENCH)
            .arg("__passthrough")
            .args(flags)
            .args([source, point])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Served(child)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can mount without a helper");
    }
    root && has_fuse()
}

/// A new directory in `dir` and a pass-through mount of it.
fn serve(dir: &Path, flags: &[&str]) -> (Served, PathBuf, PathBuf) {
    let (below, mount) = (dir.join("below"), dir.join("mount"));
    std::fs::create_dir(&below).unwrap();
    std::fs::create_dir(&mount).unwrap();
    (Served::start(&below, &mount, flags), below, mount)
}

#[test]
fn the_pass_through_behaves_like_the_directory_below() {
    behaves_like_the_directory_below(&[]);
}

#[test]
fn the_pass_through_with_the_writeback_cache_behaves_like_the_directory_below() {
    behaves_like_the_directory_below(&["--writeback"]);
}

fn behaves_like_the_directory_below(flags: &[&str]) {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (served, below, mount) = serve(dir.path(), flags);

    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    std::fs::create_dir(mount.join("d")).unwrap();
    std::fs::write(mount.join("d/f"), &data).unwrap();
    assert!(
        std::fs::read(below.join("d/f")).unwrap() == data,
        "written bytes differ below"
    );
    std::fs::write(below.join("g"), &data[1000..]).unwrap();
    assert!(
        std::fs::read(mount.join("g")).unwrap() == data[1000..],
        "read bytes differ"
    );

    let file = std::fs::File::options()
        .write(true)
        .open(mount.join("d/f"))
        .unwrap();
    file.write_all_at(b"there", 2_999_998).unwrap();
    file.sync_data().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3_000_003);
    file.set_len(10).unwrap();
    assert_eq!(std::fs::read(below.join("d/f")).unwrap(), &data[..10]);
    drop(file);

    std::fs::set_permissions(mount.join("g"), std::fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(below.join("g").metadata().unwrap().mode() & 0o777, 0o640);
    std::fs::rename(mount.join("g"), mount.join("d/h")).unwrap();
    std::os::unix::fs::symlink("d/h", mount.join("link")).unwrap();
    assert_eq!(
        std::fs::read_link(mount.join("link")).unwrap(),
        Path::new("d/h")
    );
    let mut names: Vec<_> = mount
        .join("d")
        .read_dir()
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["f", "h"]);
    assert!(
        std::fs::remove_dir(mount.join("d")).is_err(),
        "a directory in use was removed"
    );
    std::fs::remove_dir_all(mount.join("d")).unwrap();
    assert!(!below.join("d").exists());
    assert!(mount.join("d").symlink_metadata().is_err());

    drop(served);
    assert_eq!(mount.read_dir().unwrap().count(), 0, "still mounted");
}

#[test]
fn with_the_writeback_cache_a_write_only_handle_changes_part_of_a_page_and_appends() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (_served, below, mount) = serve(dir.path(), &["--writeback"]);
    // Written below, so the mount has none of its pages and must read the rest of those that are changed.
    std::fs::write(below.join("f"), [1; 10_000]).unwrap();
    let mut file = std::fs::File::options()
        .write(true)
        .open(mount.join("f"))
        .unwrap();
    file.write_all_at(&[2; 10], 5000).unwrap();
    file.sync_data().unwrap();
    let mut expected = vec![1; 10_000];
    expected[5000..5010].fill(2);
    assert!(std::fs::read(below.join("f")).unwrap() == expected);
    drop(file);

    file = std::fs::File::options()
        .append(true)
        .open(mount.join("f"))
        .unwrap();
    for _ in 0..2 {
        file.write_all(&[3; 7]).unwrap();
    }
    drop(file);
    expected.extend([3; 14]);
    assert!(std::fs::read(below.join("f")).unwrap() == expected);
}

/// So a comparison with the one is none with the other.
#[test]
fn only_with_the_writeback_cache_the_size_is_the_kernels() {
    if !can_mount() {
        return;
    }
    for (flags, size) in [(&[][..], 20), (&["--writeback"][..], 10)] {
        let dir = tempfile::tempdir().unwrap();
        let (_served, below, mount) = serve(dir.path(), flags);
        let file = std::fs::File::create(mount.join("f")).unwrap();
        file.write_all_at(&[1; 10], 0).unwrap();
        file.sync_data().unwrap();
        std::fs::write(below.join("f"), [2; 20]).unwrap();
        assert_eq!(file.metadata().unwrap().len(), size, "{flags:?}");
    }
}

#[test]
fn a_small_run_prints_lines_of_json_and_nothing_else() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(BENCH)
        .args([
            "mount",
            "--json",
            "--runs",
            "2",
            "--size",
            "8MiB",
            "--files",
            "40",
            "--tree-files",
            "50",
            "--dir",
        ])
        .arg(dir.path())
        .args(SUBJECTS.map(|s| ["--subject", s]).as_flattened())
        .args([
            "--case",
            "seq-1m-4p",
            "--case",
            "strided-47008-4p",
            "--case",
            "random-4k-1p",
            "--case",
            "files-shared-4p",
            "--case",
            "source-tree",
            "--case",
            "strided-4k-4p-4n,files-own-4p-4n",
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let has = |case: &str, metric: &str, subject: &str| {
        lines
            .iter()
            .any(|l| l["case"] == case && l["metric"] == metric && l["subject"] == subject)
    };
    for subject in SUBJECTS {
        for case in ["seq-1m-4p", "strided-47008-4p", "strided-4k-4p-4n"] {
            assert!(
                has(case, "write_bytes_per_s", subject) && has(case, "read_bytes_per_s", subject),
                "{text}"
            );
        }
        assert!(
            has("random-4k-1p", "read_bytes_per_s", subject)
                && !has("random-4k-1p", "write_bytes_per_s", subject)
        );
        for metric in ["creates_per_s", "stats_per_s", "unlinks_per_s"] {
            for case in ["files-shared-4p", "files-own-4p-4n"] {
                assert!(has(case, metric, subject), "{text}");
            }
        }
        assert!(has("source-tree", "unpack_s", subject), "{text}");
    }
    for line in &lines {
        assert_eq!(line["bench"], "mount");
        assert_eq!(line["runs"], 2);
        let (min, median, max) = (
            line["min"].as_f64(),
            line["median"].as_f64(),
            line["max"].as_f64(),
        );
        assert!(min <= median && median <= max && min >= Some(0.0), "{line}");
    }
    let head = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        head.contains("durability: process") && head.contains("memory:") && head.contains("cold"),
        "{head}"
    );
    assert_eq!(
        dir.path().read_dir().unwrap().count(),
        0,
        "something was left behind"
    );
}

#[test]
fn the_cases_are_listed() {
    let output = Command::new(BENCH)
        .args(["mount", "--list"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 19);
    for case in ["shared-1m-4p", "strided-47008-4p-4n", "source-tree"] {
        assert!(text.lines().any(|l| l == case), "{case}");
    }
}
