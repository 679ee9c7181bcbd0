//! The figures about checkpoints: 13, 14 and 15 of Pattern PLFS, over the number of writes of each of 512 processes.
//!
//! In place of the paper's two file systems stand patterns and records for every write, in one.

use super::figure::Figure;
use super::panel::{Panel, PanelContent, SeriesStyle};
use super::results::{Results, Spread};
use forebay_trace::plot::axis::{Axis, three_digits};
use forebay_trace::plot::svg::PointShape;

const BENCH: &str = "checkpoint";
/// The cases: what comes before and behind the thousands of writes.
const CASES: (&str, &str) = ("fs-test-512x", "k");
const WRITERS: f64 = 512.0;
/// Bytes of an entry of PLFS's index, as the paper counts.
const ENTRY: f64 = 56.0;

const SUBJECTS: [(&str, SeriesStyle); 2] = [
    (
        "patterns-off",
        SeriesStyle::new("a record for every write", "#d55e00", PointShape::Square),
    ),
    (
        "forebay",
        SeriesStyle::new("patterns", "#0072b2", PointShape::Circle),
    ),
];
const RAW: SeriesStyle = SeriesStyle::new(
    "entries of 56 bytes (computed)",
    "#888888",
    PointShape::Cross,
)
.dashed();

const WRITE: [(&str, &str, &str); 3] = [
    ("write_open_s", "open of all", "seconds"),
    ("write_bytes_per_s", "bandwidth until published", "bytes/s"),
    ("write_close_s", "close of all", "seconds"),
];
const READ: [(&str, &str, &str); 5] = [
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
const INDEX: [(&str, &str, &str); 2] = [
    ("index_memory_bytes", "in a reader's memory", "bytes"),
    ("index_disk_bytes", "on disk", "bytes"),
];

const HOW: &str = "Only the index is written and read: no bytes of the writes move, so a bandwidth says how fast writes are indexed and found. Four nodes \
                   in one process.";

/// All of them, in order; `None` for one without data.
pub fn all(results: &Results) -> [(&'static str, Option<Figure>); 3] {
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

fn figure(
    results: &Results,
    title: &str,
    metrics: &[(&str, &str, &str)],
    caption: &str,
) -> Option<Figure> {
    let mut panels = Vec::new();
    let mut missing = Vec::new();
    for &(metric, words, unit) in metrics {
        match panel(results, metric, words, unit) {
            Some(panel) => panels.push(panel),
            None => missing.push(metric.to_string()),
        }
    }
    (!panels.is_empty()).then(|| Figure {
        title: title.into(),
        columns: if panels.len() == 2 { 2 } else { 3 },
        panels,
        caption: caption.into(),
        missing,
    })
}

fn panel(results: &Results, metric: &str, title: &str, unit: &str) -> Option<Panel> {
    let cases = results.cases(BENCH, metric);
    let thousands = |case: &str| -> Option<f64> {
        let number = case.strip_prefix(CASES.0)?.strip_suffix(CASES.1)?;
        number.parse::<u32>().ok().map(f64::from)
    };
    let mut cases: Vec<(f64, &str)> = cases
        .into_iter()
        .filter_map(|c| Some((thousands(c)?, c)))
        .collect();
    cases.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut curves: Vec<(SeriesStyle, Vec<(f64, Spread)>)> = Vec::new();
    for (who, style) in SUBJECTS {
        let point = |(n, case): &(f64, &str)| {
            let found = results.get(BENCH, case, metric, who)?;
            (found.min > 0.0).then_some((*n, found))
        };
        let points: Vec<_> = cases.iter().filter_map(point).collect();
        if !points.is_empty() {
            curves.push((style, points));
        }
    }
    if curves.is_empty() {
        return None;
    }
    if unit == "bytes" {
        let entries = |n: f64| exact(n * 1024.0 * WRITERS * ENTRY);
        curves.push((RAW, cases.iter().map(|c| (c.0, entries(c.0))).collect()));
    }
    let all = || curves.iter().flat_map(|c| &c.1).map(|p| p.1);
    let low = all().map(|s| s.min).fold(f64::INFINITY, f64::min);
    let high = all().map(|s| s.max).fold(0.0, f64::max);
    let ticks: Vec<_> = cases.iter().map(|c| (c.0, three_digits(c.0))).collect();
    Some(Panel {
        title: title.into(),
        y: Axis::log(unit, low, high),
        measured: true,
        content: PanelContent::Curves {
            x: Axis::log_at("writes of each process (x 1024)", ticks),
            curves,
        },
    })
}

/// What needs no run.
fn exact(value: f64) -> Spread {
    Spread {
        median: value,
        min: value,
        max: value,
        runs: 1,
    }
}
