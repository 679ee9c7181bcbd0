//! The results of one case as rows for people.
use crate::report::{Report, Spread};
use std::fmt::Write as _;

/// The head of the table.
pub const HEAD: &str = "case              metric                         subject            median                   min - max  forebay\n";

/// A metric, its unit, and whether more of it is better.
pub struct Metric(pub &'static str, pub &'static str, pub bool);

/// All, in the order of the table.
pub const METRICS: [Metric; 14] = [
    Metric("put_ops_per_s", "1/s", true),
    Metric("put_settled_ops_per_s", "1/s", true),
    Metric("get_cold_ops_per_s", "1/s", true),
    Metric("get_warm_ops_per_s", "1/s", true),
    Metric("bytes_per_record", "B", false),
    Metric("write_amplification", "x", false),
    Metric("write_amplification_with_log", "x", false),
    Metric("memory_bytes", "B", false),
    Metric("resident_bytes", "B", false),
    Metric("put_cpu_ns", "ns", false),
    Metric("get_cold_cpu_ns", "ns", false),
    Metric("get_warm_cpu_ns", "ns", false),
    Metric("flush_seconds", "s", false),
    Metric("settle_seconds", "s", false),
];

/// The rows of `case`: the last column says how many times better Forebay is.
pub fn rows(report: &Report, case: &str) -> String {
    let mut out = String::new();
    for Metric(metric, unit, more) in METRICS {
        let ours = report.median(case, metric, "forebay");
        for subject in report.subjects(case) {
            let Some(Spread {
                median, min, max, ..
            }) = report.spread(case, metric, subject)
            else {
                continue;
            };
            // Seconds of flushing and settling may be none.
            let better = ours.filter(|_| subject != "forebay" && unit != "s");
            let better = better.map(|ours| match more {
                true => ours / median,
                false => median / ours,
            });
            let _ = writeln!(
                out,
                "{case:<17} {metric:<30} {subject:<9} {:>15} {:>27} {:>8}",
                show(unit, median),
                format!("{} - {}", show(unit, min), show(unit, max)),
                better.map_or("-".into(), |b| format!("{b:.2}x")),
            );
        }
    }
    out
}

fn show(unit: &str, value: f64) -> String {
    match unit {
        "1/s" => format!("{:.3} M/s", value / 1e6),
        "B" if value >= 1024.0 => crate::sizes::show(value),
        _ => format!("{value:.3} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_says_how_many_times_better() {
        let mut report = Report::new("index", "forebay");
        for (subject, puts, bytes) in [("forebay", 4e6, 2.0), ("leveldb", 1e6, 30.0)] {
            report.add("ior-1m-drift", "put_ops_per_s", subject, "1/s", puts);
            report.add("ior-1m-drift", "bytes_per_record", subject, "B", bytes);
        }
        let text = rows(&report, "ior-1m-drift");
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 4);
        assert!(
            rows[1].contains("1.000 M/s") && rows[1].ends_with("4.00x"),
            "{text}"
        );
        assert!(rows[3].ends_with("15.00x"), "{text}");
    }
}
