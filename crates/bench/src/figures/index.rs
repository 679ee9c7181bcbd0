//! The figures about the index: 3, 8, 9, 10 and 11 of MetaKV, with the stores of `forebay-bench index`.
//!
//! MetaKV draws the time that all operations take. So do 3 and 9, over the number of records; the others show the time
//! of one operation, because their cases differ in size.

use super::figure::Figure;
use super::panel::{Curve, Panel, Series, bar_sets, curves, log_axis};
use super::results::Results;
use crate::report::Spread;
use forebay_trace::plot::Axis;
use forebay_trace::plot::svg::PointShape::{Circle, Diamond, Square, Triangle};

const BENCH: &str = "index";

const METRICS: [(&str, &str); 3] = [
    ("put_ops_per_s", "put"),
    ("get_cold_ops_per_s", "get, cold caches"),
    ("get_warm_ops_per_s", "get, warm caches"),
];

const SIZES: [(&str, f64, &str); 3] = [
    ("1m", (1u32 << 20) as f64, "1 M"),
    ("8m", (8u32 << 20) as f64, "8 M"),
    ("32m", (32u32 << 20) as f64, "32 M"),
];

const ORDERS: [(&str, &str); 3] = [
    ("lockstep", "lockstep"),
    ("drift", "drifting"),
    ("random", "random"),
];

/// Colours that people see apart who do not see all colours (Okabe and Ito), and another mark each.
const SUBJECTS: [Series; 3] = [
    Series::new("leveldb", "LevelDB", "#e69f00", Square),
    Series::new("rocksdb", "RocksDB", "#009e73", Triangle),
    Series::new("forebay", "Forebay", "#0072b2", Circle),
];

/// One store, by the order of arrival.
const ORDER_SERIES: [Series; 3] = [
    Series::new("lockstep", "writers in lockstep", "#0072b2", Circle),
    Series::new("drift", "drifting writers", "#d55e00", Diamond),
    Series::new("random", "random order", "#56b4e9", Triangle),
];

const CAPTION: &str = "One server that holds the index. All stores get the same batches in the same order and keep a log that is not synced.";

/// Gets may have been measured with a part of the records.
const CURVES: &str = "Time: the number of records over the measured rate.";

/// The figures, in order.
pub fn all(results: &Results) -> [(&'static str, Figure); 5] {
    let orders: Vec<(String, String)> = ORDERS
        .iter()
        .map(|(order, words)| (format!("ior-1m-{order}"), (*words).into()))
        .collect();
    let btio = [("c", "C: 0.2 M"), ("d", "D: 2.0 M"), ("e", "E: 20.8 M")];
    let btio = btio.map(|(case, words)| (format!("btio-{case}"), words.into()));
    [
        ("figure-03", leveldb(results)),
        (
            "figure-08",
            bars(
                results,
                "Index put and get of several stores, 1 M records (the paper's Figure 8)",
                "how the writers' batches arrive",
                &orders,
                "IOR: 16 writers of one shared file by turns, 1 M records.",
            ),
        ),
        ("figure-09", ior(results)),
        (
            "figure-10",
            bars(
                results,
                "Index put and get, MPI-Tile-IO (the paper's Figure 10)",
                "",
                &[("tile-io".into(), "MPI-Tile-IO".into())],
                "MPI-Tile-IO: 16 writers, tiles beside each other, 524,288 records.",
            ),
        ),
        (
            "figure-11",
            bars(
                results,
                "Index put and get, BTIO (the paper's Figure 11)",
                "problem size: records",
                &btio,
                "NAS BT: 64, 144 and 400 writers.",
            ),
        ),
    ]
}

/// Points over the number of records: time for all of an IOR case.
fn points(results: &Results, order: &str, metric: &str, who: &str) -> Vec<(f64, Spread)> {
    let point = |(short, records, _): &(&str, f64, &str)| {
        let found = results.get(BENCH, &format!("ior-{short}-{order}"), metric, who)?;
        Some((*records, found.divide(*records)?))
    };
    SIZES.iter().filter_map(point).collect()
}

fn curves_panel(title: String, curves: Vec<Curve>, y: Option<Axis>) -> Option<Panel> {
    let there = |records: f64| curves.iter().any(|c| c.1.iter().any(|p| p.0 == records));
    let sizes = SIZES.iter().filter(|s| there(s.1));
    let sizes: Vec<_> = sizes.map(|s| (s.1, s.2.to_string())).collect();
    Panel::of_curves(title, Axis::log_at("records", sizes), y, curves)
}

/// What the vertical axes of curves show.
const SECONDS: &str = "time of all operations (s)";

/// Figure 3: what the index costs with LevelDB, the motive.
fn leveldb(results: &Results) -> Figure {
    let mut figure = Figure::new(
        "Index put and get time of LevelDB (the paper's Figure 3)",
        3,
        format!("IOR: 16 writers of one shared file by turns. {CURVES} {CAPTION}"),
    );
    figure.missing = missing_ior(results, &["leveldb"]);
    for (metric, title) in METRICS {
        let curves = curves(&ORDER_SERIES, |order| {
            points(results, order, metric, "leveldb")
        });
        let y = log_axis(SECONDS, &curves);
        figure.panels.extend(curves_panel(title.into(), curves, y));
    }
    figure
}

/// Figure 9: IOR, a row an arrival order; panels of one column have one axis.
fn ior(results: &Results) -> Figure {
    let mut figure = Figure::new(
        "Index put and get time, IOR (the paper's Figure 9)",
        3,
        format!(
            "IOR: 16 writers of one shared file by turns; their batches arrive in lockstep, drifting apart, or at random. {CURVES} {CAPTION}"
        ),
    );
    figure.missing = missing_ior(results, &SUBJECTS.map(|s| s.subject));
    for (order, words) in ORDERS {
        for (metric, title) in METRICS {
            let of = |order: &str| curves(&SUBJECTS, |who| points(results, order, metric, who));
            let every: Vec<Curve> = ORDERS.iter().flat_map(|(order, _)| of(order)).collect();
            let (title, y) = (format!("{title}: {words}"), log_axis(SECONDS, &every));
            figure.panels.extend(curves_panel(title, of(order), y));
        }
    }
    figure
}

fn missing_ior(results: &Results, subjects: &[&str]) -> Vec<String> {
    let mut missing = Vec::new();
    for (size, _, _) in SIZES {
        for (order, _) in ORDERS {
            missing.extend(absent(results, &format!("ior-{size}-{order}"), subjects));
        }
    }
    missing
}

/// The results of a case that are missing.
fn absent(results: &Results, case: &str, subjects: &[&str]) -> Vec<String> {
    let has = |who: &str, metric: &str| results.get(BENCH, case, metric, who).is_some();
    if !subjects.iter().any(|s| METRICS.iter().any(|m| has(s, m.0))) {
        return vec![case.into()];
    }
    let lacks = |who: &&&str| METRICS.iter().any(|m| !has(who, m.0));
    let found = subjects.iter().filter(lacks);
    found.map(|who| format!("{case} of {who}")).collect()
}

/// Bars of the time of one operation: a group a case.
fn bars(
    results: &Results,
    title: &str,
    x_title: &str,
    cases: &[(String, String)],
    caption: &str,
) -> Figure {
    let subjects = SUBJECTS.map(|s| s.subject);
    let mut figure = Figure::new(title, 3, format!("{caption} {CAPTION}"));
    let missing = cases.iter().map(|c| absent(results, &c.0, &subjects));
    figure.missing = missing.flatten().collect();
    let of = |case: &str, metric: &str, who: &str| {
        let spread = results.get(BENCH, case, metric, who)?;
        // In microseconds.
        spread.divide(1e6)
    };
    let there = |case: &&(String, String)| {
        let has = |who: &str| METRICS.iter().any(|m| of(&case.0, m.0, who).is_some());
        subjects.into_iter().any(has)
    };
    let cases: Vec<_> = cases.iter().filter(there).collect();
    for (metric, panel) in METRICS {
        let sets = bar_sets(&SUBJECTS, &cases, |case, who| of(&case.0, metric, who));
        let groups = cases.iter().map(|c| c.1.clone()).collect();
        let titles = (x_title, "time of one operation (µs)");
        let panel = Panel::of_bars(panel, titles, 1.08, groups, sets);
        figure.panels.extend(panel);
    }
    figure
}
