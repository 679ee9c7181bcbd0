//! The paper's Figure 12: how long an operation of all servers takes, over their number; measured and simulated.

use super::figure::{Figure, Panels};
use super::panel::{Panel, PanelContent, Series, curves, log_axis};
use super::results::Results;
use forebay_trace::plot::axis::{Axis, three_digits};
use forebay_trace::plot::svg::PointShape::{Circle, Cross, Diamond, Square, Triangle};

const BENCH: &str = "ring";

const SUBJECTS: [Series; 5] = [
    Series::new("mdhim", "MDHIM-like", "#cc79a7", Square),
    Series::new("direct", "direct", "#d55e00", Triangle),
    Series::new("ring", "log-ring", "#56b4e9", Diamond),
    Series::new("ring-fitted", "log-ring, fitted", "#0072b2", Circle),
    Series::new("best-tree", "best tree", "#222222", Cross).dashed(),
];

/// The part of a case's name before the number of servers, the metric, and the words over the panel.
const PANELS: [(&str, &str, &str); 4] = [
    ("ring-local-", "latency_us", "measured: threads"),
    ("ring-mpi-", "latency_us", "measured: MPI processes"),
    ("ring-sim-", "latency_us", "simulated: LogGP"),
    ("ring-sim-", "root_messages", "messages at the root"),
];

/// The figure, if there is anything to draw.
pub fn figure(results: &Results) -> Option<Figure> {
    let mut panels = Panels::default();
    for (prefix, metric, title) in PANELS {
        let panel = panel(results, prefix, metric, title);
        panels.add(format!("{metric} of {prefix}..."), panel);
    }
    panels.figure(
        "One operation of all servers on a shared file (the paper's Figure 12)",
        2,
        "From the first request to the last answer. Measured: threads or MPI processes that share one machine, so its scheduler \
                  counts as much as the trees; all subjects have as many clients. Simulated: LogGP with the parameters of an InfiniBand \
                  network, from server to server. Both log-rings have the same \
                  messages at the root; the best tree has no limit on them.",
    )
}

fn panel(results: &Results, prefix: &str, metric: &str, title: &str) -> Option<Panel> {
    let cases = results.cases(BENCH, metric);
    let servers = cases.into_iter().filter_map(|case| {
        let servers: u32 = case.strip_prefix(prefix)?.parse().ok()?;
        // The law has steps between powers of two, which a curve with few points between would show as bends.
        servers.is_power_of_two().then_some((servers, case))
    });
    let mut servers: Vec<(u32, &str)> = servers.collect();
    servers.sort_unstable();
    let (first, last) = (servers.first()?.0, servers.last()?.0);
    let curves = curves(&SUBJECTS, |who| {
        let point = |(n, case): &(u32, &str)| {
            let found = results.get(BENCH, case, metric, who)?;
            (found.min > 0.0).then_some((f64::from(*n), found))
        };
        match (metric, who) {
            // The root of the best tree has as many messages as are fastest: no matter here.
            ("root_messages", "best-tree") => Vec::new(),
            _ => servers.iter().filter_map(point).collect(),
        }
    });
    let y_title = match metric {
        "root_messages" => "messages",
        _ => "latency (µs)",
    };
    Some(Panel {
        title: title.into(),
        y: log_axis(y_title, &curves)?,
        measured: metric == "latency_us" && !prefix.contains("sim"),
        content: PanelContent::Curves {
            x: Axis::log_at("servers", powers(first, last)),
            curves,
        },
    })
}

/// Powers of two around both ends; of four or sixteen where there would be many.
fn powers(first: u32, last: u32) -> Vec<(f64, String)> {
    let low = first.max(1).ilog2();
    let high = last.max(2).next_power_of_two().ilog2().max(low + 1);
    let step = (high - low).div_ceil(5).next_power_of_two();
    let low = high - (high - low).div_ceil(step) * step;
    let ticks = (low..=high).step_by(step as usize);
    ticks
        .map(|k| f64::from(1u32 << k))
        .map(|n| (n, three_digits(n)))
        .collect()
}
