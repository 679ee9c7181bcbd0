//! The figures about checkpoints: 13, 14 and 15 of Pattern PLFS, over the number of writes of each of 512 processes.
//!
//! The paper compares two file systems; here patterns are compared with a record for every write, in one file system.

use super::figure::Figure;
use super::panel::{Panel, Series, log_axis};
use super::results::Results;
use crate::report::Spread;
use forebay_trace::plot::axis::{Axis, three_digits};
use forebay_trace::plot::svg::PointShape::{Circle, Cross, Square};

const BENCH: &str = "checkpoint";
/// The cases: what comes before and behind the thousands of writes.
const CASES: (&str, &str) = ("fs-test-512x", "k");
const WRITERS: f64 = 512.0;
/// Bytes of an entry of PLFS's index, as the paper counts.
const ENTRY: f64 = 56.0;

const SUBJECTS: [Series; 2] = [
    Series::new(
        "patterns-off",
        "a record for every write",
        "#d55e00",
        Square,
    ),
    Series::new("forebay", "patterns", "#0072b2", Circle),
];
const RAW: Series = Series::new("raw", "entries of 56 bytes (computed)", "#888888", Cross).dashed();

/// What a panel shows: metric, words, unit.
type PanelMetric = (&'static str, &'static str, &'static str);

const WRITE: [PanelMetric; 3] = [
    ("write_open_s", "open of all", "seconds"),
    ("write_bytes_per_s", "bandwidth until published", "bytes/s"),
    ("write_close_s", "close of all", "seconds"),
];
const READ: [PanelMetric; 5] = [
    ("read_open_s", "uniform: open of all", "seconds"),
    ("read_bytes_per_s", "uniform: bandwidth", "bytes/s"),
    ("nonuniform_open_s", "non-uniform: open of all", "seconds"),
    (
        "nonuniform_bytes_per_s",
        "non-uniform: bandwidth",
        "bytes/s",
    ),
    ("resolve_s", "one process finds every piece", "seconds"),
];
const INDEX: [PanelMetric; 2] = [
    ("index_memory_bytes", "in a reader's memory", "bytes"),
    ("index_disk_bytes", "on disk", "bytes"),
];

const HOW: &str = "Only the index is written and read: no bytes of the writes move, so a bandwidth says how fast writes are indexed and found. Four nodes \
                   in one process.";

/// The figures, in order.
pub fn all(results: &Results) -> [(&'static str, Figure); 3] {
    let thirteen = "Write of 512 processes, 4 KiB a write (Pattern PLFS, Figure 13)";
    let fourteen =
        "Read by 512 processes (uniform) and 256, of 4 KiB writes (Pattern PLFS, Figure 14)";
    let fifteen = "Index of 512 processes' writes (Pattern PLFS, Figure 15)";
    [
        ("figure-13", figure(results, thirteen, &WRITE, HOW)),
        ("figure-14", figure(results, fourteen, &READ, HOW)),
        (
            "figure-15",
            figure(
                results,
                fifteen,
                &INDEX,
                "What a node holds of the file after one of its processes found every piece; without patterns that is a cache of records, \
                 which has a limit. On disk: records of patterns, and table files of the extent index. Entries: what an index without any \
                 compression would take.",
            ),
        ),
    ]
}

fn figure(results: &Results, title: &str, metrics: &[PanelMetric], caption: &str) -> Figure {
    let mut figure = Figure::new(title, 3, caption);
    for &(metric, words, unit) in metrics {
        figure.add(metric, panel(results, metric, words, unit));
    }
    if figure.panels.len() == 2 {
        figure.columns = 2;
    }
    figure
}

fn panel(results: &Results, metric: &str, title: &str, unit: &str) -> Option<Panel> {
    let cases = results.numbered_cases(BENCH, metric, CASES);
    let mut curves = results.curves(BENCH, metric, &SUBJECTS, &cases);
    if curves.is_empty() {
        return None;
    }
    if unit == "bytes" {
        let entries = |n: f64| Spread::exact(n * 1024.0 * WRITERS * ENTRY);
        curves.push((RAW, cases.iter().map(|c| (c.0, entries(c.0))).collect()));
    }
    let ticks: Vec<_> = cases.iter().map(|c| (c.0, three_digits(c.0))).collect();
    let x = Axis::log_at("writes of each process (x 1024)", ticks);
    Panel::of_curves(title, x, log_axis(unit, &curves), curves)
}
