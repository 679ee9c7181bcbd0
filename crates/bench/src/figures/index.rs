//! The figures about the index: the paper's 3, 8, 9, 10 and 11, with the stores of `forebay-bench index`.
//!
//! The paper draws the time that all operations take. So do 3 and 9, over the number of records; the others show the time
//! of one operation, because their cases differ in size.

use super::figure::{Figure, Panels};
use super::panel::{Curve, Panel, PanelContent, Series, curves, log_axis};
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

/// All of them, in order; `None` for one without data.
pub fn all(results: &Results) -> [(&'static str, Option<Figure>); 5] {
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

/// Time for all records of an IOR case.
fn time(results: &Results, size: usize, order: &str, metric: &str, who: &str) -> Option<Spread> {
    let (short, records, _) = SIZES[size];
    let case = format!("ior-{short}-{order}");
    results.get(BENCH, &case, metric, who)?.divide(records)
}

/// Points over the number of records.
fn points(results: &Results, order: &str, metric: &str, who: &str) -> Vec<(f64, Spread)> {
    let sizes = 0..SIZES.len();
    let point = |size: usize| Some((SIZES[size].1, time(results, size, order, metric, who)?));
    sizes.filter_map(point).collect()
}

fn curves_panel(title: String, curves: Vec<Curve>, y: Axis) -> Panel {
    let there = |records: f64| curves.iter().any(|c| c.1.iter().any(|p| p.0 == records));
    let sizes = SIZES.iter().filter(|s| there(s.1));
    let sizes: Vec<_> = sizes.map(|s| (s.1, s.2.to_string())).collect();
    Panel {
        title,
        y,
        measured: true,
        content: PanelContent::Curves {
            x: Axis::log_at("records", sizes),
            curves,
        },
    }
}

/// What the vertical axes of curves show.
const SECONDS: &str = "time of all operations (s)";

/// Figure 3: what the index costs with LevelDB, the motive.
fn leveldb(results: &Results) -> Option<Figure> {
    let mut panels = Panels {
        missing: missing_ior(results, &["leveldb"]),
        ..Panels::default()
    };
    for (metric, title) in METRICS {
        let curves = curves(&ORDER_SERIES, |order| {
            points(results, order, metric, "leveldb")
        });
        if let Some(y) = log_axis(SECONDS, &curves) {
            panels.panels.push(curves_panel(title.into(), curves, y));
        }
    }
    panels.figure(
        "Index put and get time of LevelDB (the paper's Figure 3)",
        3,
        format!("IOR: 16 writers of one shared file by turns. {CURVES} {CAPTION}"),
    )
}

/// Figure 9: IOR, a row an arrival order; panels of one column have one axis.
fn ior(results: &Results) -> Option<Figure> {
    let mut panels = Panels {
        missing: missing_ior(results, &SUBJECTS.map(|s| s.subject)),
        ..Panels::default()
    };
    for (order, words) in ORDERS {
        for (metric, title) in METRICS {
            let of = |order: &str| curves(&SUBJECTS, |who| points(results, order, metric, who));
            let every: Vec<Curve> = ORDERS.iter().flat_map(|(order, _)| of(order)).collect();
            if let (Some(y), curves) = (log_axis(SECONDS, &every), of(order))
                && !curves.is_empty()
            {
                let panel = curves_panel(format!("{title}: {words}"), curves, y);
                panels.panels.push(panel);
            }
        }
    }
    panels.figure(
        "Index put and get time, IOR (the paper's Figure 9)",
        3,
        format!(
            "IOR: 16 writers of one shared file by turns; their batches arrive in lockstep, drifting apart, or at random. {CURVES} {CAPTION}"
        ),
    )
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

/// What is not there of a case.
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
) -> Option<Figure> {
    let subjects = SUBJECTS.map(|s| s.subject);
    let mut panels = Panels {
        missing: cases
            .iter()
            .flat_map(|c| absent(results, &c.0, &subjects))
            .collect(),
        ..Panels::default()
    };
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
        let sets = SUBJECTS.map(|style| {
            let values = cases.iter().map(|case| of(&case.0, metric, style.subject));
            (style, values.collect::<Vec<_>>())
        });
        let sets: Vec<_> = sets
            .into_iter()
            .filter(|s| s.1.iter().any(Option::is_some))
            .collect();
        let highest = sets.iter().flat_map(|s| s.1.iter().flatten());
        let highest = highest.map(|s| s.max).fold(0.0, f64::max);
        if sets.is_empty() {
            continue;
        }
        panels.panels.push(Panel {
            title: panel.into(),
            // Room for the number over the highest bar.
            y: Axis::linear("time of one operation (µs)", highest * 1.08),
            measured: true,
            content: PanelContent::Bars {
                x_title: x_title.into(),
                groups: cases.iter().map(|c| c.1.clone()).collect(),
                sets,
            },
        });
    }
    panels.figure(title, 3, format!("{caption} {CAPTION}"))
}
