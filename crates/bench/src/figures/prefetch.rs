//! The paper's Figures 20 and 21: what one process asks for over time, and what fetching ahead makes of the time that it waits.

use super::figure::{Figure, Panels};
use super::panel::{Panel, PanelContent, PointSeries, Series};
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

/// Figure 20, if its requests were replayed.
pub fn requests(results: &Results) -> Option<Figure> {
    results.get(BENCH, "pagoda", "io_time_s", "forebay")?;
    let layout = workload::parse("pagoda").ok()?.layout;
    let calls = layout.calls(0);
    let steps = workload::parse("pagoda:steps=2").ok()?.layout.calls(0);
    Some(Figure {
        title: "Requests of one process over time (the paper's Figure 20)".into(),
        panels: vec![
            offsets(&*layout, calls, "all time steps"),
            offsets(&*layout, steps, "the first two"),
        ],
        columns: 2,
        caption: "Rank 0 of 4 of the generated trace: in each time step it reads its part of six variables, each with a length and a stride of its own. \
                  Only the first offset of each request is drawn. Pagoda's own trace is not public."
            .into(),
        missing: Vec::new(),
    })
}

fn offsets(layout: &dyn Layout, calls: u64, title: &str) -> Panel {
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

/// Figure 21, if anything of it was measured.
pub fn effect(results: &Results) -> Option<Figure> {
    let measured = |case: &str| results.get(BENCH, case, "io_time_s", "none").is_some();
    let (there, absent): (Vec<_>, Vec<_>) = CASES.iter().partition(|(case, _)| measured(case));
    let mut panels = Panels {
        missing: absent.iter().map(|(case, _)| (*case).into()).collect(),
        ..Panels::default()
    };
    for metric in METRICS {
        let of = |(case, title): &(&str, &str)| bars(results, case, title, metric);
        panels.panels.extend(there.iter().map(of));
    }
    panels.figure(
        "What fetching ahead saves (the paper's Figure 21)",
        there.len(),
        "Reads replayed through the library of a service of two members, 200 µs apart, the readers on the one and the data, not in memory, on the other. \
                  Before each read a rank computes as long as an uncached read takes. Markov chains had a run before to learn from; \
                  perfect knows all requests beforehand.",
    )
}

fn bars(
    results: &Results,
    case: &str,
    title: &str,
    (metric, axis, scale): (&str, &str, f64),
) -> Panel {
    let found = |who| Some(results.get(BENCH, case, metric, who)?.times(scale));
    let sets = SUBJECTS.map(|style| (style, vec![found(style.subject)]));
    let sets: Vec<_> = sets.into_iter().filter(|s| s.1[0].is_some()).collect();
    let most = sets.iter().flat_map(|s| &s.1).flatten().map(|s| s.max);
    Panel {
        title: title.into(),
        // Room for the number over the highest bar.
        y: Axis::linear(axis, most.fold(0.0, f64::max) * 1.1),
        measured: true,
        content: PanelContent::Bars {
            x_title: String::new(),
            groups: vec![String::new()],
            sets,
        },
    }
}
