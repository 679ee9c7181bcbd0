//! The benchmark `fields` end to end: it reads arrays, measures each subject, and prints means over them.
use forebay_testkit::prerequisites::{has_fuse, skip};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

const BENCH: &str = env!("CARGO_BIN_EXE_forebay-bench");

fn fields(data: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(BENCH);
    command.args(["fields", "--data"]).arg(data).args(flags);
    command.output().unwrap()
}

/// Medians by case, metric and subject.
fn medians(output: &Output) -> BTreeMap<[String; 3], f64> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["bench"], "fields");
        let key = ["case", "metric", "subject"].map(|f| line[f].as_str().unwrap().to_owned());
        (key, line["median"].as_f64().unwrap())
    });
    lines.collect()
}

/// A folder of an array of a few numbers, and one of many.
fn write_arrays(data: &Path) {
    let folder = data.join("fields");
    std::fs::create_dir(&folder).unwrap();
    for (name, count) in [("long", 300_000), ("short", 1000)] {
        let numbers = (0..count).map(|i| 280.0 + (i as f32 * 1e-3).sin());
        let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
        let bytes = zstd::encode_all(&bytes[..], 3).unwrap();
        std::fs::write(folder.join(format!("{name}.bin.zst")), bytes).unwrap();
        std::fs::write(folder.join(format!("{name}.json")), r#"{"dtype": "<f4"}"#).unwrap();
    }
}

#[test]
fn means_of_a_folder_are_of_its_arrays_and_a_missing_folder_is_named() {
    let data = tempfile::tempdir().unwrap();
    write_arrays(data.path());
    let flags = ["--json", "--runs", "1", "--case", "fields"];
    let output = fields(data.path(), &flags);
    let medians = medians(&output);
    let get = |case: &str, metric: &str, subject: &str| {
        medians
            .get(&[case, metric, subject].map(str::to_owned))
            .copied()
    };
    for subject in ["forebay", "paper", "raw", "shuffle-zstd-3-whole"] {
        let [short, long, mean] =
            ["short", "long", "fields"].map(|case| get(case, "ratio", subject).unwrap());
        assert!((short * long - mean * mean).abs() < 1e-6, "{subject}");
    }
    for metric in [
        "encode_bytes_per_s",
        "decode_bytes_per_s",
        "one_value_ns",
        "one_value_p99_ns",
        "expansion",
    ] {
        assert!(get("fields", metric, "field").unwrap() > 0.0, "{metric}");
    }
    assert_eq!(get("long", "ratio", "field-base"), None);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("skipped: ") && errors.contains("checkpoints"),
        "{errors}"
    );
}

#[test]
fn encoded_files_of_a_mount_are_written_and_read() {
    let program = Path::new(BENCH).with_file_name("forebay");
    if !has_fuse() {
        return;
    }
    if !program.is_file() {
        return skip(
            "PROGRAMS",
            format_args!("{} is not built", program.display()),
        );
    }
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("disk");
    let flags = [
        "--json",
        "--runs",
        "1",
        "--case",
        "mount-random-4k,mount-checkpoints",
        "--size",
        "3MiB",
        "--subject",
        "field,raw",
        "--dir",
        dir.to_str().unwrap(),
    ];
    let medians = medians(&fields(data.path(), &flags));
    for subject in ["field", "raw"] {
        for (case, metric) in [
            ("mount-random-4k", "random_reads_per_s"),
            ("mount-checkpoints", "write_bytes_per_s"),
        ] {
            let key = [case, metric, subject].map(str::to_owned);
            assert!(medians[&key] > 0.0, "{medians:?}");
        }
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn random_bytes_do_not_grow_and_the_table_says_so() {
    let data = tempfile::tempdir().unwrap();
    let flags = [
        "--runs",
        "1",
        "--case",
        "random",
        "--size",
        "1MiB",
        "--subject",
        "forebay,paper",
    ];
    let output = fields(data.path(), &flags);
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("random"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows.iter().map(|row| row[1]).collect::<Vec<_>>(),
        ["forebay", "paper"]
    );
    for row in rows {
        // Before what choosing takes.
        let expansion: f64 = row[row.len() - 3].parse().unwrap();
        assert!((1.0..1.001).contains(&expansion), "{row:?}");
    }
}
