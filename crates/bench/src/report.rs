//! Results: collected by (case, metric, subject), printed as a table or as JSON lines.
use crate::sizes;
use std::fmt::Write as _;

/// The values of one metric of one subject in one case, a value a round.
#[derive(Debug, Clone)]
struct MetricSeries {
    case: &'static str,
    metric: &'static str,
    subject: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

/// The results of one run of a subject: metric, unit, value.
pub type Values = Vec<(&'static str, &'static str, f64)>;

/// The spread of several runs: `min <= median <= max`.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub runs: u32,
}

/// One line of JSON, as it is written and read; more fields do not matter.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct ResultLine<S> {
    pub bench: S,
    pub case: S,
    pub metric: S,
    pub subject: S,
    #[serde(flatten)]
    pub spread: Spread,
    #[serde(default)]
    pub unit: S,
}

/// All results of a run, in the order in which they first came.
#[derive(Debug)]
pub struct Report {
    bench: &'static str,
    /// The subject that ratios are against.
    base: &'static str,
    series: Vec<MetricSeries>,
}

impl Report {
    /// A report without results; ratios are against the subject `base`.
    pub fn new(bench: &'static str, base: &'static str) -> Report {
        Report {
            bench,
            base,
            series: Vec::new(),
        }
    }

    /// Ratios of the tables that follow are against `base`.
    pub fn compare_with(&mut self, base: &'static str) {
        self.base = base;
    }

    /// The spread of one series, if it has values.
    pub fn spread(&self, case: &str, metric: &str, subject: &str) -> Option<Spread> {
        self.values(case, metric, subject).map(Spread::of)
    }

    /// The values of one series, one for each round, if it has any.
    pub fn values(&self, case: &str, metric: &str, subject: &str) -> Option<&[f64]> {
        let same = |s: &&MetricSeries| (s.case, s.metric, s.subject) == (case, metric, subject);
        self.series.iter().find(same).map(|s| &s.values[..])
    }

    /// The median of one series, if it has values.
    pub fn median(&self, case: &str, metric: &str, subject: &str) -> Option<f64> {
        self.spread(case, metric, subject).map(|s| s.median)
    }

    /// The subjects of a case, in the order in which they first came.
    pub fn subjects(&self, case: &str) -> Vec<&'static str> {
        self.distinct(case, |s| s.subject)
    }

    /// The metrics of a case and their units, in the order in which they first came.
    pub fn metrics(&self, case: &str) -> Vec<(&'static str, &'static str)> {
        self.distinct(case, |s| (s.metric, s.unit))
    }

    fn distinct<T: PartialEq>(&self, case: &str, of: impl Fn(&MetricSeries) -> T) -> Vec<T> {
        let mut found = Vec::new();
        for one in self.series.iter().filter(|s| s.case == case).map(of) {
            if !found.contains(&one) {
                found.push(one);
            }
        }
        found
    }

    /// Adds the results of a run of a subject.
    pub fn add_all(&mut self, case: &'static str, subject: &'static str, found: Values) {
        for (metric, unit, value) in found {
            self.add(case, metric, subject, unit, value);
        }
    }

    /// Adds a value.
    pub fn add(
        &mut self,
        case: &'static str,
        metric: &'static str,
        subject: &'static str,
        unit: &'static str,
        value: f64,
    ) {
        let same = |s: &&mut MetricSeries| (s.case, s.metric, s.subject) == (case, metric, subject);
        match self.series.iter_mut().find(same) {
            Some(series) => series.values.push(value),
            None => self.series.push(MetricSeries {
                case,
                metric,
                subject,
                unit,
                values: vec![value],
            }),
        }
    }

    /// The JSON lines of one case.
    pub fn json(&self, case: &str) -> String {
        let mut out = String::new();
        for s in self.series.iter().filter(|s| s.case == case) {
            let line = ResultLine {
                bench: self.bench,
                case: s.case,
                metric: s.metric,
                subject: s.subject,
                spread: Spread::of(&s.values),
                unit: s.unit,
            };
            // A line holds numbers and plain names only.
            let _ = writeln!(out, "{}", serde_json::to_string(&line).unwrap_or_default());
        }
        out
    }

    /// The rows of one case.
    pub fn table(&self, case: &str) -> String {
        let mut out = String::new();
        let of_case = self.series.iter().filter(|s| s.case == case);
        let rates = of_case.filter(|s| s.unit != "s/GiB");
        let mut rates: Vec<&MetricSeries> = rates.collect();
        rates.sort_by_key(|s| {
            self.series
                .iter()
                .position(|o| o.case == case && root(o.metric) == root(s.metric))
        });
        for s in rates {
            let Spread {
                median, min, max, ..
            } = Spread::of(&s.values);
            let faster = |base: f64| match s.unit {
                "s" => base / median,
                _ => median / base,
            };
            // Reading through another node is compared with the base's plain reading.
            let base = self.median(case, root(s.metric), self.base);
            let ratio = base.map_or("-".into(), |b| format!("{:.2}x", faster(b)));
            let cpu = cpu_metric(s.metric).and_then(|cpu| self.median(case, cpu, s.subject));
            let cpu = cpu.map_or("-".into(), |c| format!("{c:.2}"));
            let spread = format!("{} - {}", show(s.unit, min), show(s.unit, max));
            let _ = writeln!(
                out,
                "{:<19} {:<23} {:<21} {:>13} {:>29} {ratio:>7} {cpu:>7}",
                s.case,
                s.metric,
                s.subject,
                show(s.unit, median),
                spread,
            );
        }
        out
    }

    /// The head of the table.
    pub fn head() -> String {
        format!(
            "{:<19} {:<23} {:<21} {:>13} {:>29} {:>7} {:>7}\n",
            "case", "metric", "subject", "median", "min - max", "ratio", "cpu"
        )
    }
}

impl Spread {
    /// Of values, of which there is at least one.
    pub fn of(values: &[f64]) -> Spread {
        let mut v = values.to_vec();
        v.sort_by(f64::total_cmp);
        let (n, mid) = (v.len(), v.len() / 2);
        let median = if n % 2 == 1 {
            v[mid]
        } else {
            (v[mid - 1] + v[mid]) / 2.0
        };
        Spread {
            median,
            min: v[0],
            max: v[n - 1],
            runs: n as u32,
        }
    }
}

/// The metric that tells the processor time of another.
pub fn cpu_metric(metric: &str) -> Option<&'static str> {
    Some(match metric {
        "write_bytes_per_s" => "write_cpu_s_per_gib",
        "read_bytes_per_s" => "read_cpu_s_per_gib",
        "read_other_bytes_per_s" => "read_other_cpu_s_per_gib",
        _ => return None,
    })
}

/// `read_other_...` belongs to `read_...`.
fn root(metric: &'static str) -> &'static str {
    if metric == "read_other_bytes_per_s" {
        "read_bytes_per_s"
    } else {
        metric
    }
}

fn show(unit: &str, value: f64) -> String {
    match unit {
        "B/s" => format!("{}/s", sizes::show(value)),
        "s" => format!("{value:.3} s"),
        _ => format!("{value:.0}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut r = Report::new("mount", "passthrough");
        for v in [100e6, 300e6, 200e6] {
            r.add("seq-1m-1p", "read_bytes_per_s", "passthrough", "B/s", v);
            r.add("seq-1m-1p", "read_bytes_per_s", "forebay", "B/s", v * 0.5);
            r.add("seq-1m-1p", "read_cpu_s_per_gib", "forebay", "s/GiB", 0.25);
            r.add(
                "seq-1m-1p",
                "read_other_bytes_per_s",
                "forebay",
                "B/s",
                v * 0.25,
            );
        }
        r
    }

    #[test]
    fn json_lines_have_the_agreed_shape() {
        let text = report().json("seq-1m-1p");
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(
            lines[0],
            serde_json::json!({"bench": "mount", "case": "seq-1m-1p", "metric": "read_bytes_per_s", "subject": "passthrough",
                "median": 200e6, "min": 100e6, "max": 300e6, "runs": 3, "unit": "B/s"})
        );
        assert_eq!(report().json("another"), "");
    }

    #[test]
    fn ratios_are_against_the_passthrough_of_the_same_case() {
        let text = report().table("seq-1m-1p");
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 3);
        assert!(
            rows[0].contains("1.00x") && rows[1].contains("0.50x") && rows[1].contains("0.25"),
            "{text}"
        );
        assert!(
            rows[2].contains("read_other") && rows[2].contains("0.25x"),
            "{text}"
        );
    }

    #[test]
    fn half_the_time_is_twice_the_speed_of_the_base_that_was_named_last() {
        let mut r = Report::new("mount", "disk");
        r.add("source-tree", "unpack_s", "disk", "s", 1.0);
        r.add("source-tree", "unpack_s", "passthrough", "s", 4.0);
        r.add("source-tree", "unpack_s", "forebay", "s", 2.0);
        r.compare_with("passthrough");
        let text = r.table("source-tree");
        let rows: Vec<&str> = text.lines().collect();
        assert!(
            rows[0].contains("4.00x") && rows[1].contains("1.00x") && rows[2].contains("2.00x"),
            "{text}"
        );
        assert!(rows[2].contains("2.000 s"), "{text}");
    }

    #[test]
    fn an_even_number_of_runs_has_a_median_too() {
        let mut r = Report::new("mount", "passthrough");
        r.add("files-own-1p", "stats_per_s", "disk", "1/s", 10.0);
        r.add("files-own-1p", "stats_per_s", "disk", "1/s", 20.0);
        assert!(r.json("files-own-1p").contains("\"median\":15.0"));
    }
}
