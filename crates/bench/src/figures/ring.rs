//! Figure 12 of MetaKV: how long an operation of all servers takes, over their number; measured and simulated.

use super::figure::Figure;
use super::panel::{Panel, Series, log_axis};
use super::results::Results;
use forebay_trace::plot::axis::{Axis, three_digits};
use forebay_trace::plot::svg::PointShape::{Circle, Cross, Diamond, Square, Triangle};

const BENCH: &str = "ring";

/// The best tree is the last.
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

/// The figure.
pub fn figure(results: &Results) -> Figure {
    let mut figure = Figure::new(
        "One operation of all servers on a shared file (the paper's Figure 12)",
        2,
        "From the first request to the last answer. Measured: threads or MPI processes that share one machine, so its scheduler \
                  counts as much as the trees; all subjects have as many clients. Simulated: LogGP with the parameters of an InfiniBand \
                  network, from server to server. Both log-rings have the same \
                  messages at the root; the best tree has no limit on them.",
    );
    for (prefix, metric, title) in PANELS {
        let panel = panel(results, prefix, metric, title);
        figure.add(format!("{metric} of {prefix}..."), panel);
    }
    figure
}

fn panel(results: &Results, prefix: &str, metric: &str, title: &str) -> Option<Panel> {
    let mut servers = results.numbered_cases(BENCH, metric, (prefix, ""));
    // The law has steps between powers of two, which a curve with few points between would show as bends.
    servers.retain(|(n, _)| (*n as u32).is_power_of_two());
    let (first, last) = (servers.first()?.0, servers.last()?.0);
    let (y_title, shown) = match metric {
        // The root of the best tree has as many messages as are fastest: no matter here.
        "root_messages" => ("messages", &SUBJECTS[..4]),
        _ => ("latency (µs)", &SUBJECTS[..]),
    };
    let curves = results.curves(BENCH, metric, shown, &servers);
    let x = Axis::log_at("servers", powers(first as u32, last as u32));
    let mut panel = Panel::of_curves(title, x, log_axis(y_title, &curves), curves)?;
    panel.measured = metric == "latency_us" && !prefix.contains("sim");
    Some(panel)
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
