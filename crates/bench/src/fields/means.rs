//! Means over the arrays of a folder, computed from what was measured of each.
use crate::report::{Report, Values};

/// The geometric mean of numbers above zero, of which there is at least one.
pub fn geometric_mean(numbers: &[f64]) -> f64 {
    let logarithms: f64 = numbers.iter().map(|n| n.ln()).sum();
    (logarithms / numbers.len() as f64).exp()
}

/// Of each round a subject's means over arrays: geometric ones, but the largest `expansion`, and of shares of a time what they add to the
/// mean of that time. Only of metrics that all arrays have.
pub fn of_subject(report: &Report, arrays: &[&'static str], subject: &str) -> Vec<Values> {
    let mut rounds: Vec<Values> = Vec::new();
    let metrics = arrays.first().map(|first| report.metrics(first));
    for (metric, unit) in metrics.unwrap_or_default() {
        let series = arrays
            .iter()
            .map(|array| report.values(array, metric, subject));
        let Some(series) = series.collect::<Option<Vec<&[f64]>>>() else {
            continue;
        };
        let count = series.iter().map(|values| values.len()).min().unwrap_or(0);
        rounds.resize_with(rounds.len().max(count), Values::new);
        for (round, means) in rounds.iter_mut().enumerate().take(count) {
            let found: Vec<f64> = series.iter().map(|values| values[round]).collect();
            let mean = match metric {
                "expansion" => found.iter().copied().fold(0.0, f64::max),
                share if share.ends_with("_share") => {
                    let factors: Vec<f64> = found.iter().map(|share| 1.0 + share).collect();
                    geometric_mean(&factors) - 1.0
                }
                _ => geometric_mean(&found),
            };
            means.push((metric, unit, mean));
        }
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_geometric_mean_is_the_root_of_the_product() {
        assert!((geometric_mean(&[2.0, 8.0]) - 4.0).abs() < 1e-12);
        assert!((geometric_mean(&[5.0]) - 5.0).abs() < 1e-12);
    }

    #[test]
    fn the_mean_of_shares_is_what_they_add_to_the_mean_time() {
        let mut report = Report::new("fields", "raw");
        for (array, share) in [("a", 0.0), ("b", 0.21)] {
            report.add(array, "sampling_share", "forebay", "ratio", share);
        }
        let rounds = of_subject(&report, &["a", "b"], "forebay");
        assert!((rounds[0][0].2 - 0.1).abs() < 1e-12, "{rounds:?}");
    }

    #[test]
    fn means_are_of_each_round_and_of_what_all_arrays_have() {
        let mut report = Report::new("fields", "raw");
        for (array, factor) in [("a", 1.0), ("b", 4.0)] {
            for round in [1.0, 3.0] {
                report.add(array, "ratio", "lz4", "ratio", round * factor);
                report.add(array, "expansion", "lz4", "ratio", factor);
            }
        }
        report.add("a", "one_value_ns", "lz4", "ns", 1.0);
        let rounds = of_subject(&report, &["a", "b"], "lz4");
        let ratios: Vec<f64> = rounds.iter().map(|values| values[0].2.round()).collect();
        assert_eq!(ratios, [2.0, 6.0]);
        assert!(
            rounds
                .iter()
                .all(|v| v.len() == 2 && v[1] == ("expansion", "ratio", 4.0))
        );
        assert!(of_subject(&report, &["a", "b"], "zstd").is_empty());
    }
}
