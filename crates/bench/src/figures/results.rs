//! Results of benchmarks, read from their JSON lines.
//!
//! A line of the same bench, case, metric and subject as an earlier one takes its place: so results can be appended to a file.

use super::panel::{Curve, Series, curves};
use crate::fail::{Context, Failure, Result};
use crate::report::{ResultLine, Spread};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

impl Spread {
    /// Of a computed number: no spread.
    pub fn exact(value: f64) -> Spread {
        Spread {
            median: value,
            min: value,
            max: value,
            runs: 1,
        }
    }

    /// In a unit `scale` times smaller.
    pub fn times(self, scale: f64) -> Spread {
        Spread {
            median: self.median * scale,
            min: self.min * scale,
            max: self.max * scale,
            runs: self.runs,
        }
    }

    /// How often these go into `number`: the time that so many operations take at such rates, say; none where one is 0.
    pub fn divide(self, number: f64) -> Option<Spread> {
        (self.min > 0.0).then(|| Spread {
            median: number / self.median,
            min: number / self.max,
            max: number / self.min,
            runs: self.runs,
        })
    }
}

/// Names a result: bench, case, metric, subject.
type ResultKey = (String, String, String, String);

/// All results of some files.
#[derive(Debug, Default)]
pub struct Results {
    found: HashMap<ResultKey, Spread>,
}

impl Results {
    /// From files of JSON lines, or directories of files that end in `.jsonl`, in this order.
    ///
    /// # Errors
    /// Names the file, and the line if one is not a result.
    pub fn read(paths: &[PathBuf]) -> Result<Results> {
        let mut results = Results::default();
        for path in paths {
            for file in files(path)? {
                let text = std::fs::read_to_string(&file).doing(file.display())?;
                results.add(&text).doing(file.display())?;
            }
        }
        Ok(results)
    }

    /// The lines of `text`; empty ones are passed over.
    ///
    /// # Errors
    /// Names the line that is not a result.
    pub fn add(&mut self, text: &str) -> Result<()> {
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let place = format!("line {}", number + 1);
            let line: ResultLine<String> = serde_json::from_str(line).doing(&place)?;
            let Spread {
                median, min, max, ..
            } = line.spread;
            // JSON has no infinite numbers and no NaN; what is too large for a double becomes infinite.
            if !(0.0 <= min && min <= median && median <= max && max.is_finite()) {
                return Err(Failure::new(format!(
                    "{place}: {min} <= {median} <= {max} is not a spread"
                )));
            }
            let name = (line.bench, line.case, line.metric, line.subject);
            self.found.insert(name, line.spread);
        }
        Ok(())
    }

    /// One result, if it is there.
    pub fn get(&self, bench: &str, case: &str, metric: &str, subject: &str) -> Option<Spread> {
        let name = (bench.into(), case.into(), metric.into(), subject.into());
        self.found.get(&name).copied()
    }

    /// The cases of `bench` that have a result of `metric`, sorted.
    pub fn cases(&self, bench: &str, metric: &str) -> Vec<&str> {
        let wanted = |n: &&ResultKey| n.0 == bench && n.2 == metric;
        let mut cases: Vec<&str> = self.found.keys().filter(wanted).map(|n| &*n.1).collect();
        cases.sort_unstable();
        cases.dedup();
        cases
    }

    /// Those whose names have a number between `prefix` and `suffix`, by that number.
    pub fn numbered_cases(
        &self,
        bench: &str,
        metric: &str,
        (prefix, suffix): (&str, &str),
    ) -> Vec<(f64, &str)> {
        let numbered = |case| {
            let number = str::strip_prefix(case, prefix)?.strip_suffix(suffix)?;
            Some((f64::from(number.parse::<u32>().ok()?), case))
        };
        let cases = self.cases(bench, metric).into_iter();
        let mut cases: Vec<(f64, &str)> = cases.filter_map(numbered).collect();
        cases.sort_by(|a, b| a.0.total_cmp(&b.0));
        cases
    }

    /// The curves of a metric over the numbers of cases; 0 has no place on a logarithmic axis.
    pub fn curves(
        &self,
        bench: &str,
        metric: &str,
        series: &[Series],
        cases: &[(f64, &str)],
    ) -> Vec<Curve> {
        curves(series, |who| {
            let point = |(number, case): &(f64, &str)| {
                let found = self.get(bench, case, metric, who)?;
                (found.min > 0.0).then_some((*number, found))
            };
            cases.iter().filter_map(point).collect()
        })
    }
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.into()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).doing(path.display())? {
        let file = entry.doing(path.display())?.path();
        if file.extension().is_some_and(|e| e == "jsonl") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    #[test]
    fn what_a_report_writes_is_read_and_the_last_word_counts() {
        let mut results = Results::default();
        for rate in [100.0, 400.0] {
            let mut report = Report::new("index", "leveldb");
            for v in [rate, rate * 2.0, rate / 2.0] {
                report.add("ior-1m-drift", "put_ops_per_s", "forebay", "1/s", v);
            }
            results.add(&report.json("ior-1m-drift")).unwrap();
        }
        let found = results.get("index", "ior-1m-drift", "put_ops_per_s", "forebay");
        let found = found.unwrap();
        assert_eq!((found.median, found.min, found.max), (400.0, 200.0, 800.0));
        let time = found.divide(800.0).unwrap();
        assert_eq!((time.median, time.min, time.max), (2.0, 1.0, 4.0));
        assert_eq!(results.cases("index", "put_ops_per_s"), ["ior-1m-drift"]);
        assert_eq!(results.get("index", "ior-1m-drift", "x", "forebay"), None);
    }

    #[test]
    fn a_line_that_is_no_result_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let good = r#"{"bench":"b","case":"c","metric":"m","subject":"s","median":1.0,"min":1.0,"max":1.0,"runs":5,"unit":"1/s"}"#;
        for bad in ["Killed", &good.replace("\"min\":1.0", "\"min\":2.0")] {
            std::fs::write(dir.path().join("a.jsonl"), format!("{good}\n\n{bad}\n")).unwrap();
            std::fs::write(dir.path().join("notes.txt"), "not read").unwrap();
            let failed = Results::read(&[dir.path().into()]).unwrap_err();
            assert!(
                failed.0.contains("a.jsonl") && failed.0.contains("line 3"),
                "{failed}"
            );
        }
    }
}
