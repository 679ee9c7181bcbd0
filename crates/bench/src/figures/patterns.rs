//! The figures about patterns: 1 (how much smaller an index becomes) and 16 (how MILC writes) of Pattern PLFS.

use super::figure::Figure;
use super::panel::{Panel, PanelContent, PointSeries, Series, bar_sets};
use super::results::Results;
use crate::report::Spread;
use forebay_trace::plot::axis::{Axis, three_digits};
use forebay_trace::plot::svg::PointShape::Circle;
use forebay_trace::workload;

const BENCH: &str = "pattern";
const METRIC: &str = "merged_bytes";

const SUBJECTS: [Series; 2] = [
    Series::new("published", "the published algorithm", "#d55e00", Circle),
    Series::new("forebay", "Forebay", "#0072b2", Circle),
];

/// What is written under the bars of a case.
const NAMES: [(&str, &str); 13] = [
    ("fs-test-512x16k", "FS-TEST"),
    ("fs-test-segmented", "segmented"),
    ("ior-strided", "IOR"),
    ("ior-segmented", "IOR seg."),
    ("tile", "Tile-IO"),
    ("btio-q16", "BTIO"),
    ("milc-a", "MILC A"),
    ("milc-b", "MILC B"),
    ("milc-c", "MILC C"),
    ("nested-2d", "2-d"),
    ("nested-3d", "3-d"),
    ("random", "random"),
    ("random-overlap", "overlapping"),
];

/// Groups of bars side by side.
const A_PANEL: usize = 4;
const TRACES_A_PANEL: usize = 6;

/// Cases, and what is written under their bars.
type NamedFigures<'a> = Vec<(&'a str, String)>;

/// The figures, in order.
pub fn all(results: &Results) -> [(&'static str, Figure); 2] {
    [("figure-01", rates(results)), ("figure-16", milc(results))]
}

/// How many times smaller than raw entries.
fn rate(results: &Results, case: &str, who: &str) -> Option<Spread> {
    let raw = results.get(BENCH, case, METRIC, "raw")?.median;
    results.get(BENCH, case, METRIC, who)?.divide(raw)
}

fn rates(results: &Results) -> Figure {
    let measured = results.cases(BENCH, METRIC);
    let known = NAMES
        .iter()
        .filter(|(case, _)| measured.contains(case))
        .map(|(case, name)| (*case, name.to_string()));
    let traces = measured.iter().copied();
    let traces: Vec<&str> = traces.filter(|c| NAMES.iter().all(|n| n.0 != *c)).collect();
    let mut numbers: Vec<&str> = traces.iter().map(|c| split_direction(c).0).collect();
    numbers.dedup();
    let number = |case: &str| {
        let (name, side) = split_direction(case);
        let at = numbers.iter().position(|n| *n == name).unwrap_or_default();
        format!("{}{side}", at + 1)
    };
    let traces = traces.iter().map(|case| (*case, number(case)));
    let named = numbers.iter().enumerate();
    let named: Vec<String> = named.map(|(i, n)| format!("{}: {n}", i + 1)).collect();
    let said = match named.is_empty() {
        true => String::new(),
        false => format!(" Traces (r: reads, w: writes): {}.", named.join("; ")),
    };
    let mut figure = Figure::new(
        "Compression rates of indices (Pattern PLFS, Figure 1)",
        3,
        format!(
            "The index of a whole file, merged over its logs, against entries of 48 bytes. Both are written as varints, Forebay's with \
             checksums and versions.{said}"
        ),
    );
    let missing = NAMES.iter().filter(|n| !measured.contains(&n.0));
    figure.missing = missing.map(|n| n.0.to_string()).collect();
    let sets: [(&str, usize, NamedFigures<'_>); 2] = [
        ("generated", A_PANEL, known.collect()),
        ("traces", TRACES_A_PANEL, traces.collect()),
    ];
    let all = || sets.iter().flat_map(|s| &s.2);
    let every = all().flat_map(|(case, _)| SUBJECTS.map(|s| rate(results, case, s.subject)));
    let (low, high) = every.flatten().fold((1.0f64, 10.0f64), |(low, high), s| {
        (low.min(s.min), high.max(s.max))
    });
    for (title, together, cases) in &sets {
        for cases in cases.chunks(*together) {
            figure.panels.push(Panel {
                title: (*title).into(),
                y: Axis::log("times smaller", low * 1.2, high),
                // The same input gives the same bytes.
                measured: false,
                content: PanelContent::Bars {
                    x_title: String::new(),
                    groups: cases.iter().map(|c| c.1.clone()).collect(),
                    sets: bar_sets(&SUBJECTS, cases, |(case, _), who| rate(results, case, who)),
                },
            });
        }
    }
    figure
}

/// A trace's name, and a letter for its reads or its writes.
fn split_direction(case: &str) -> (&str, &str) {
    match case.rsplit_once('-') {
        Some((name, "reads")) => (name, "r"),
        Some((name, "writes")) => (name, "w"),
        _ => (case, ""),
    }
}

/// Ranks that are drawn, and calls of each, at most.
const RANKS: u32 = 16;
const CALLS: u64 = 24;
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#222222", "#999999",
];

fn milc(results: &Results) -> Figure {
    let mut figure = Figure::new(
        "How MILC writes, and how much smaller its index becomes (Pattern PLFS, Figure 16)",
        3,
        format!(
            "The generated calls: 16 ranks, a colour each, the first {CALLS} calls of a rank. A: sites in the order of the lattice; B: a contiguous part \
             for each rank; C: the same behind headers. The rate is that of Figure 1."
        ),
    );
    for (case, letter) in [("milc-a", "A"), ("milc-b", "B"), ("milc-c", "C")] {
        let panel = rate(results, case, "forebay").and_then(|rate| scatter(case, letter, rate));
        figure.add(case, panel);
    }
    figure
}

fn scatter(case: &str, letter: &str, rate: Spread) -> Option<Panel> {
    let calls = workload::parse(case).ok()?;
    let mut series: Vec<PointSeries> = Vec::new();
    let (mut last, mut high) = (1.0f64, 1.0f64);
    let mut seen = [0u64; RANKS as usize];
    for op in calls.ops() {
        let Some(count) = seen.get_mut(op.rank as usize) else {
            continue;
        };
        if op.kind != forebay_trace::Kind::Write || *count == CALLS {
            continue;
        }
        let at = (*count as f64, op.offset as f64 / 1024.0);
        *count += 1;
        (last, high) = (last.max(at.0), high.max(at.1));
        let rank = op.rank as usize;
        while series.len() <= rank {
            series.push(PointSeries {
                colour: COLOURS[series.len() % COLOURS.len()],
                points: Vec::new(),
            });
        }
        series[rank].points.push(at);
    }
    Some(Panel {
        title: format!(
            "({letter}) {} times smaller",
            three_digits(rate.median.round())
        ),
        y: Axis::linear("offset (KiB)", high),
        measured: false,
        content: PanelContent::Points {
            x: Axis::linear("call of the rank", last),
            series,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_two_sides() {
        assert_eq!(split_direction("a.posix-reads"), ("a.posix", "r"));
        assert_eq!(split_direction("a-b-writes"), ("a-b", "w"));
        assert_eq!(split_direction("plain"), ("plain", ""));
    }
}
