//! The table: a row for each metric of a case, a column for each subject.
use crate::report::Report;
use crate::sizes;
use std::fmt::Write as _;

/// The head.
pub fn head(subjects: &[&str]) -> String {
    let mut out = format!("{:<19} {:<19}", "case", "metric");
    for subject in subjects {
        let _ = write!(out, " {subject:>14}");
    }
    out.push('\n');
    out
}

/// The rows of a case: medians.
pub fn rows(report: &Report, case: &str, subjects: &[&str]) -> String {
    let mut out = String::new();
    for (metric, unit) in report.metrics(case) {
        let _ = write!(out, "{case:<19} {metric:<19}");
        for subject in subjects {
            let median = report.median(case, metric, subject);
            let shown = median.map_or("-".into(), |value| show(unit, value));
            let _ = write!(out, " {shown:>14}");
        }
        out.push('\n');
    }
    out
}

fn show(unit: &str, value: f64) -> String {
    match unit {
        "B/s" => format!("{}/s", sizes::show(value)),
        "B" => sizes::show(value),
        "s/GiB" => format!("{value:.2} s"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_without_a_value_has_a_dash() {
        let mut report = Report::new("dedup", "settle-off");
        report.add("unique", "stored_ratio", "restic", "ratio", 1.0012);
        report.add("unique", "read_bytes_per_s", "settle-off", "B/s", 1e9);
        let subjects = ["settle-off", "restic"];
        let lines = head(&subjects) + &rows(&report, "unique", &subjects);
        let words = lines.lines().map(|l| l.split_whitespace().collect());
        let words: Vec<Vec<&str>> = words.collect();
        assert_eq!(words[0], ["case", "metric", "settle-off", "restic"]);
        assert_eq!(words[1], ["unique", "stored_ratio", "-", "1.0012"]);
        assert_eq!(
            words[2],
            ["unique", "read_bytes_per_s", "953.7", "MiB/s", "-"]
        );
    }
}
