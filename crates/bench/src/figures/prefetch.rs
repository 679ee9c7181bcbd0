//! Figures 20 and 21 of Pattern PLFS: what one process asks for over time, and what fetching ahead makes of the time that it waits.

use super::figure::Figure;
use super::panel::{Panel, PanelContent, PointSeries, Series, bar_sets};
use super::results::Results;
use forebay_trace::plot::Axis;
use forebay_trace::plot::svg::PointShape::{Circle, Cross, Diamond, Square, Triangle};
use forebay_trace::workload::{self, Layout};

const BENCH: &str = "prefetch";

const SUBJECTS: [Series; 5] = [
    Series::new("none", "no prefetching", "#d55e00", Square),
    Series::new("readahead", "readahead", "#e69f00", Triangle),
    Series::new("markov", "Markov, second run", "#cc79a7", Diamond),
    Series::new("forebay", "Forebay: patterns", "#0072b2", Circle),
    Series::new("perfect", "perfect", "#222222", Cross),
];

const CASES: [(&str, &str); 3] = [
    ("pagoda", "like Pagoda (generated)"),
    ("openpmd", "openPMD metadata (DXT)"),
    ("random", "random"),
];

/// Metric, the axis, and how many of its units are a second.
const METRICS: [(&str, &str, f64); 2] = [
    ("io_time_s", "I/O time of all ranks (s)", 1.0),
    ("read_p99_s", "99 % of reads within (µs)", 1e6),
];

/// The figures, in order.
pub fn all(results: &Results) -> [(&'static str, Figure); 2] {
    [
        ("figure-20", requests(results)),
        ("figure-21", effect(results)),
    ]
}

/// Figure 20: without panels unless its requests were replayed.
fn requests(results: &Results) -> Figure {
    let mut figure = Figure::new(
        "Requests of one process over time (the paper's Figure 20)",
        2,
        "Rank 0 of 4 of the generated trace: in each time step it reads its part of six variables, each with a length and a stride of its own. \
                  Only the first offset of each request is drawn. Pagoda's own trace is not public.",
    );
    let replayed = results.get(BENCH, "pagoda", "io_time_s", "forebay");
    let parts = [
        ("pagoda", "all time steps"),
        ("pagoda:steps=2", "the first two"),
    ];
    for (spec, title) in parts.into_iter().filter(|_| replayed.is_some()) {
        if let Ok(workload) = workload::parse(spec) {
            figure.panels.push(offsets(&*workload.layout, title));
        }
    }
    figure
}

fn offsets(layout: &dyn Layout, title: &str) -> Panel {
    let calls = layout.calls(0);
    let point = |index| {
        let access = layout.access(0, index);
        (index as f64, access.offset as f64 / 1e6)
    };
    let points: Vec<(f64, f64)> = (0..calls).map(point).collect();
    let high = points.iter().map(|p| p.1).fold(0.0, f64::max);
    Panel {
        title: title.into(),
        y: Axis::linear("offset (MB)", high),
        measured: false,
        content: PanelContent::Points {
            x: Axis::linear("request", calls as f64),
            series: vec![PointSeries {
                colour: "#0072b2",
                points,
            }],
        },
    }
}

fn effect(results: &Results) -> Figure {
    let measured = |case: &str| results.get(BENCH, case, "io_time_s", "none").is_some();
    let (there, absent): (Vec<_>, Vec<_>) = CASES.iter().partition(|(case, _)| measured(case));
    let mut figure = Figure::new(
        "What fetching ahead saves (the paper's Figure 21)",
        there.len(),
        "Reads replayed through the library of a service of two members, 200 µs apart, the readers on the one and the data, not in memory, on the other. \
                  Before each read a rank computes as long as an uncached read takes. Markov chains had a run before to learn from; \
                  perfect knows all requests beforehand.",
    );
    figure.missing = absent.iter().map(|(case, _)| (*case).into()).collect();
    for (metric, axis, scale) in METRICS {
        for (case, title) in &there {
            let found =
                |_: &(), who: &str| Some(results.get(BENCH, case, metric, who)?.times(scale));
            let sets = bar_sets(&SUBJECTS, &[()], found);
            let groups = vec![String::new()];
            figure
                .panels
                .extend(Panel::of_bars(title, ("", axis), 1.1, groups, sets));
        }
    }
    figure
}
