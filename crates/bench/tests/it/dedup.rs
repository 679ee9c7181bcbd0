//! The benchmark `dedup` end to end: chains are stored by peers, read back and compared, and it prints what it promises.
use std::process::{Command, Output};

const BENCH: &str = env!("CARGO_BIN_EXE_forebay-bench");

/// Whether a program can be run; says so if not.
fn has(program: &str, flag: &str) -> bool {
    let found = Command::new(program).arg(flag).output().is_ok();
    if !found {
        eprintln!("skipped: {program} is missing; scripts/setup.sh dedup installs it");
    }
    found
}

fn dedup(dir: &std::path::Path, flags: &[&str]) -> Output {
    let mut command = Command::new(BENCH);
    command.args(["dedup", "--dir"]).arg(dir).args(flags);
    command.output().unwrap()
}

/// Medians and units of the lines that it printed.
fn medians(output: &Output) -> Vec<(String, String, f64)> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&line["bench"], &line["runs"]),
            (&"dedup".into(), &1.into())
        );
        let word = |field: &str| line[field].as_str().unwrap().to_string();
        let median = line["median"].as_f64().unwrap();
        (word("case"), word("metric"), median)
    });
    lines.collect()
}

/// A round of two chains by one peer, which may store at most so much of the one that is changed in place.
fn stores_chains(subject: &str, most: f64) {
    let dir = tempfile::tempdir().unwrap();
    let flags = [
        "--json",
        "--runs",
        "1",
        "--size",
        "4MiB",
        "--subject",
        subject,
        "--case",
        "chain-inplace,unique",
    ];
    let output = dedup(dir.path(), &flags);
    let medians = medians(&output);
    let median = |case: &str, metric: &str| {
        let found = medians.iter().find(|(c, m, _)| c == case && m == metric);
        found.map(|(_, _, median)| *median)
    };
    let stored = median("chain-inplace", "stored_ratio").unwrap();
    assert!(stored >= 0.36 && stored <= most, "{stored}");
    assert!(median("chain-inplace", "found_ratio").unwrap() <= 1.0);
    for metric in [
        "write_bytes_per_s",
        "settle_bytes_per_s",
        "read_bytes_per_s",
        "cpu_s_per_gib",
        "dedup_cpu_s_per_gib",
    ] {
        for case in ["chain-inplace", "unique"] {
            assert!(median(case, metric).unwrap() > 0.0, "{case} {metric}");
        }
    }
    assert_eq!(median("unique", "cit_bytes_per_tib"), None);
    let unique = median("unique", "stored_ratio").unwrap();
    assert!((1.0..1.1).contains(&unique), "{unique}");
    assert_eq!(median("unique", "found_ratio"), None);
    let head = String::from_utf8_lossy(&output.stderr).into_owned();
    for word in [
        "durability: disk",
        "memory:",
        "cold",
        "compression",
        subject,
    ] {
        assert!(head.contains(word), "{word}: {head}");
    }
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "left behind");
}

#[test]
fn blocks_of_a_fixed_size_are_stored_once_and_read_back() {
    if has("borg", "--version") {
        stores_chains("borg-fixed", 0.45);
    }
}

#[test]
fn chunks_cut_by_content_are_stored_and_read_back() {
    if has("restic", "version") {
        stores_chains("restic", 1.1);
    }
}

#[test]
fn the_cases_are_listed_and_unknown_subjects_named() {
    let dir = tempfile::tempdir().unwrap();
    let listed = String::from_utf8(dedup(dir.path(), &["--list"]).stdout).unwrap();
    let cases = [
        "chain-inplace",
        "chain-shifted-256k",
        "chain-shifted-4k",
        "chain-20",
        "unique",
        "index-64g",
    ];
    assert_eq!(listed.lines().collect::<Vec<_>>(), cases);
    let flags = ["--subject", "tape"];
    let output = dedup(dir.path(), &flags);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("no subject 'tape'"),
        "{said}"
    );
}
