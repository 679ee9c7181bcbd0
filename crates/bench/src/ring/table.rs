//! The results of one case as rows for people.

use crate::report::{Report, Spread};
use std::fmt::Write as _;

/// The head of the table.
pub const HEAD: &str = "case              subject       root messages      latency us                 min - max    best  direct\n";

/// The rows of `case`.
pub fn rows(report: &Report, case: &str) -> String {
    let mut out = String::new();
    let latency = |subject: &str| report.spread(case, "latency_us", subject);
    for subject in report.subjects(case) {
        if let Some(Spread {
            median, min, max, ..
        }) = latency(subject)
        {
            let messages = report.median(case, "root_messages", subject);
            let ratio = |to: &str, turned: bool| {
                latency(to).map_or("-".into(), |base| match turned {
                    true => format!("{:.2}x", base.median / median),
                    false => format!("{:.2}x", median / base.median),
                })
            };
            let _ = writeln!(
                out,
                "{case:<17} {subject:<13} {:>13} {median:>15.1} {:>25} {:>7} {:>7}",
                messages.map_or("-".into(), |m| format!("{m:.0}")),
                format!("{min:.1} - {max:.1}"),
                ratio("best-tree", false),
                ratio("direct", true),
            );
        }
        if let Some(worst) = report.median(case, "worst_ratio_to_best", subject) {
            let number = |metric| report.median(case, metric, subject).unwrap_or(0.0);
            let _ = writeln!(
                out,
                "{case:<17} {subject:<13} at most {:.3} times the best tree (at {:.0} servers); root messages other than ceil(log2 n) at {:.0} sizes",
                worst,
                number("worst_at_servers"),
                number("sizes_with_other_root_messages"),
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_against_the_best_tree_and_direct() {
        let mut report = Report::new("ring", "direct");
        for (subject, latency) in [("ring", 30.0), ("direct", 300.0), ("best-tree", 20.0)] {
            report.add("ring-sim-4", "latency_us", subject, "us", latency);
            report.add("ring-sim-4", "root_messages", subject, "messages", 2.0);
        }
        let text = rows(&report, "ring-sim-4");
        let first = text.lines().next().unwrap();
        assert!(
            first.contains("1.50x") && first.contains("10.00x"),
            "{text}"
        );
        assert!(report.json("ring-sim-4").contains("\"bench\":\"ring\""));
    }
}
