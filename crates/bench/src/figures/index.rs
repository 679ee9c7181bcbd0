//! The figures about the index: the paper's 3, 8, 9, 10 and 11, with the stores of `forebay-bench index`.
//!
//! The paper draws the time that all operations take. So do 3 and 9, over the number of records; the others show the time
//! of one operation, because their cases differ in size.

use super::figure::Figure;
use super::panel::{Panel, PanelContent, SeriesStyle};
use super::results::{Results, Spread};
use forebay_trace::plot::Axis;
use forebay_trace::plot::svg::PointShape;

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
const SUBJECTS: [(&str, SeriesStyle); 3] = [
    (
        "leveldb",
        SeriesStyle::new("LevelDB", "#e69f00", PointShape::Square),
    ),
    (
        "rocksdb",
        SeriesStyle::new("RocksDB", "#009e73", PointShape::Triangle),
    ),
    (
        "forebay",
        SeriesStyle::new("Forebay", "#0072b2", PointShape::Circle),
    ),
];

const ORDER_LOOKS: [SeriesStyle; 3] = [
    SeriesStyle::new("writers in lockstep", "#0072b2", PointShape::Circle),
    SeriesStyle::new("drifting writers", "#d55e00", PointShape::Diamond),
    SeriesStyle::new("random order", "#56b4e9", PointShape::Triangle),
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
    results.get(BENCH, &case, metric, who)?.time_of(records)
}

/// Points over the number of records.
fn points(results: &Results, order: &str, metric: &str, who: &str) -> Vec<(f64, Spread)> {
    let sizes = 0..SIZES.len();
    let point = |size: usize| Some((SIZES[size].1, time(results, size, order, metric, who)?));
    sizes.filter_map(point).collect()
}

fn curves_panel(title: String, curves: Vec<(SeriesStyle, Vec<(f64, Spread)>)>, y: Axis) -> Panel {
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

/// An axis for all of them; none if there is nothing.
fn seconds<'a>(spreads: impl Iterator<Item = &'a Spread>) -> Option<Axis> {
    let (mut low, mut high) = (f64::INFINITY, 0f64);
    for spread in spreads {
        low = low.min(spread.min);
        high = high.max(spread.max);
    }
    (high > 0.0).then(|| Axis::log("time of all operations (s)", low, high))
}

/// Figure 3: what the index costs with LevelDB, the motive.
fn leveldb(results: &Results) -> Option<Figure> {
    let mut panels = Vec::new();
    for (metric, title) in METRICS {
        let curves = ORDERS.iter().zip(ORDER_LOOKS);
        let curves = curves.map(|((order, _), style)| {
            let points = points(results, order, metric, "leveldb");
            (style, points)
        });
        let curves: Vec<_> = curves.filter(|c| !c.1.is_empty()).collect();
        if let Some(y) = seconds(curves.iter().flat_map(|c| &c.1).map(|p| &p.1)) {
            panels.push(curves_panel(title.into(), curves, y));
        }
    }
    let missing = missing_ior(results, &["leveldb"]);
    (!panels.is_empty()).then(|| Figure {
        title: "Index put and get time of LevelDB (the paper's Figure 3)".into(),
        panels,
        columns: 3,
        caption: format!("IOR: 16 writers of one shared file by turns. {CURVES} {CAPTION}"),
        missing,
    })
}

/// Figure 9: IOR, a row an arrival order; panels of one column have one axis.
fn ior(results: &Results) -> Option<Figure> {
    let mut panels = Vec::new();
    for (order, words) in ORDERS {
        for (metric, title) in METRICS {
            let every = ORDERS.iter().flat_map(|(order, _)| {
                let of = |(who, _): &(&str, SeriesStyle)| points(results, order, metric, who);
                SUBJECTS.iter().flat_map(of)
            });
            let every: Vec<Spread> = every.map(|p| p.1).collect();
            let curves = SUBJECTS
                .iter()
                .map(|(who, style)| (*style, points(results, order, metric, who)));
            let curves: Vec<_> = curves.filter(|c| !c.1.is_empty()).collect();
            if let (Some(y), false) = (seconds(every.iter()), curves.is_empty()) {
                panels.push(curves_panel(format!("{title}: {words}"), curves, y));
            }
        }
    }
    let missing = missing_ior(results, &SUBJECTS.map(|s| s.0));
    (!panels.is_empty()).then(|| Figure {
        title: "Index put and get time, IOR (the paper's Figure 9)".into(),
        panels,
        columns: 3,
        caption: format!(
            "IOR: 16 writers of one shared file by turns; their batches arrive in lockstep, drifting apart, or at random. {CURVES} {CAPTION}"
        ),
        missing,
    })
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
    let subjects = SUBJECTS.map(|s| s.0);
    let missing = cases
        .iter()
        .flat_map(|c| absent(results, &c.0, &subjects))
        .collect();
    let of = |case: &str, metric: &str, who: &str| {
        let spread = results.get(BENCH, case, metric, who)?;
        // In microseconds.
        spread.time_of(1e6)
    };
    let there = |case: &&(String, String)| {
        let has = |who: &str| METRICS.iter().any(|m| of(&case.0, m.0, who).is_some());
        subjects.into_iter().any(has)
    };
    let cases: Vec<_> = cases.iter().filter(there).collect();
    let mut panels = Vec::new();
    for (metric, panel) in METRICS {
        let sets = SUBJECTS.map(|(who, style)| {
            let values = cases.iter().map(|case| of(&case.0, metric, who));
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
        panels.push(Panel {
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
    (!panels.is_empty()).then(|| Figure {
        title: title.into(),
        panels,
        columns: 3,
        caption: format!("{caption} {CAPTION}"),
        missing,
    })
}
