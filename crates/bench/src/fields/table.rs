//! The table: a row for each subject of a case, medians and the range of the rounds.
use crate::report::Report;
use std::fmt::Write as _;

/// The head.
pub fn head() -> String {
    format!(
        "{:<30} {:<20} {:>8} {:>22} {:>22} {:>22} {:>8} {:>10} {:>9} {:>9}\n",
        "case",
        "subject",
        "ratio",
        "encode MB/s",
        "decode MB/s",
        "one value ns",
        "p99 ns",
        "expansion",
        "sampling",
        "(single)"
    )
}

/// The rows of a case.
pub fn rows(report: &Report, case: &str) -> String {
    let mut out = String::new();
    for subject in report.subjects(case) {
        let median = |metric: &str, digits: usize| {
            let median = report.median(case, metric, subject);
            median.map_or("-".into(), |value| format!("{value:.digits$}"))
        };
        let spread = |metric: &str, scale: f64| {
            report
                .spread(case, metric, subject)
                .map_or("-".into(), |s| {
                    let [median, min, max] = [s.median, s.min, s.max].map(|value| value / scale);
                    format!("{median:.0} ({min:.0}-{max:.0})")
                })
        };
        let _ = writeln!(
            out,
            "{case:<30} {subject:<20} {:>8} {:>22} {:>22} {:>22} {:>8} {:>10} {:>9} {:>9}",
            median("ratio", 3),
            spread("encode_bytes_per_s", 1e6),
            spread("decode_bytes_per_s", 1e6),
            spread("one_value_ns", 1.0),
            median("one_value_p99_ns", 0),
            median("expansion", 5),
            median("sampling_share", 3),
            median("single_container_sampling_share", 3),
        );
    }
    out
}

/// The rows of a case with a store.
pub fn store_rows(report: &Report, case: &str) -> String {
    let mut out = format!(
        "{:<30} {:<20} {:>8} {:>22} {:>12} {:>12} {:>12}\n",
        "case", "subject", "ratio", "I/O time s", "write s", "last ms", "read s"
    );
    for subject in report.subjects(case) {
        let median = |metric: &str, scale: f64| {
            let median = report.median(case, metric, subject);
            median.map_or("-".into(), |value| format!("{:.3}", value / scale))
        };
        let io_time = report
            .spread(case, "io_time_s", subject)
            .map_or("-".into(), |s| {
                format!("{:.3} ({:.3}-{:.3})", s.median, s.min, s.max)
            });
        let _ = writeln!(
            out,
            "{case:<30} {subject:<20} {:>8} {io_time:>22} {:>12} {:>12} {:>12}",
            median("ratio", 1.0),
            median("write_s", 1.0),
            median("last_record_s", 1e-3),
            median("read_s", 1.0),
        );
    }
    out
}

/// The rows of a case with a mount.
pub fn mount_rows(report: &Report, case: &str) -> String {
    let mut out = format!(
        "{:<30} {:<20} {:>26} {:>8}\n",
        "case", "subject", "reads/s, MB/s written", "to raw"
    );
    let reads = |subject: &str| report.spread(case, "random_reads_per_s", subject);
    let of = |subject: &str| {
        let written = report.spread(case, "write_bytes_per_s", subject);
        reads(subject).or(written.map(|s| s.times(1e-6)))
    };
    let raw = of("raw").map(|raw| raw.median);
    for subject in report.subjects(case) {
        let median = of(subject).map_or("-".into(), |s| {
            format!("{:.0} ({:.0}-{:.0})", s.median, s.min, s.max)
        });
        let to_raw = of(subject).zip(raw);
        let to_raw = to_raw.map_or("-".into(), |(s, raw)| format!("{:.2}", s.median / raw));
        let _ = writeln!(out, "{case:<30} {subject:<20} {median:>26} {to_raw:>8}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_medians_and_ranges_or_a_dash() {
        let mut report = Report::new("fields", "raw");
        for speed in [1e9, 3e9, 2e9] {
            report.add("smooth", "encode_bytes_per_s", "lz4", "B/s", speed);
            report.add("smooth", "ratio", "lz4", "ratio", 1.5);
        }
        let rows = rows(&report, "smooth");
        let words: Vec<&str> = rows.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "smooth",
                "lz4",
                "1.500",
                "2000",
                "(1000-3000)",
                "-",
                "-",
                "-",
                "-",
                "-",
                "-"
            ]
        );
    }
}
