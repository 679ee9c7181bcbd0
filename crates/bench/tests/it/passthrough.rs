//! The program end to end: the pass-through is a correct file system, and the benchmark prints what it promises.
use forebay_testkit::prerequisites::has_fuse;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const BENCH: &str = env!("CARGO_BIN_EXE_forebay-bench");

/// A served mount; gone with its standard input.
struct Served(Child);

impl Served {
    fn start(source: &Path, point: &Path) -> Served {
        let mut child = Command::new(BENCH)
            .arg("__passthrough")
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

#[test]
fn the_pass_through_behaves_like_the_directory_below() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (below, mount) = (dir.path().join("below"), dir.path().join("mount"));
    std::fs::create_dir(&below).unwrap();
    std::fs::create_dir(&mount).unwrap();
    let served = Served::start(&below, &mount);

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
fn a_small_run_prints_lines_of_json_and_nothing_else() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(BENCH)
        .args([
            "mount", "--json", "--runs", "2", "--size", "8MiB", "--files", "40", "--dir",
        ])
        .arg(dir.path())
        .args(["--subject", "disk", "--subject", "passthrough"])
        .args([
            "--case",
            "seq-1m-4p",
            "--case",
            "strided-47008-4p",
            "--case",
            "random-4k-1p",
            "--case",
            "files-shared-4p",
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
    for subject in ["disk", "passthrough"] {
        for case in ["seq-1m-4p", "strided-47008-4p"] {
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
            assert!(has("files-shared-4p", metric, subject), "{text}");
        }
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
    assert_eq!(text.lines().count(), 14);
    assert!(text.lines().any(|l| l == "shared-1m-4p"));
}
