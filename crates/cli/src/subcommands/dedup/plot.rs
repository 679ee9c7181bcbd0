//! The totals as a bar chart: for each chunk size one bar for the fixed grid and one for the anchored grid, each with the
//! percentages of zero and of duplicate bytes.
use super::report::{CutReport, DedupReport};
use forebay_node::units::{counted, size};
use forebay_trace::plot::axis::Axis;
use forebay_trace::plot::svg::{Anchor, Stroke, Svg, TextStyle};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 56.0;
const ZERO: &str = "#bbbbbb";
const FIXED: &str = "#56b4e9";
const ANCHORED: &str = "#0072b2";
const TITLE: TextStyle = TextStyle::new(Anchor::Middle, 14.0).bold();
const SMALL: TextStyle = TextStyle::new(Anchor::Middle, 11.0);
const LEGEND: TextStyle = TextStyle::new(Anchor::Start, 11.0);
const BESIDE: TextStyle = TextStyle::new(Anchor::End, 11.0);

/// The picture.
pub fn svg(report: &DedupReport) -> String {
    let total = &report.total;
    let what = match &report.paths[..] {
        [one] => one.path.clone(),
        paths => format!("{} paths", paths.len()),
    };
    let title = format!(
        "{what}: {} in {}",
        size(total.bytes),
        counted(total.files, "file")
    );
    let mut svg = Svg::new(WIDTH, HEIGHT, &title);
    svg.text((WIDTH / 2.0, 22.0), TITLE, &title);
    let legend = [
        (ZERO, "zero"),
        (FIXED, "duplicate, fixed grid"),
        (ANCHORED, "duplicate, anchored grid"),
    ];
    for (i, (colour, text)) in legend.into_iter().enumerate() {
        let left = LEFT + [0.0, 90.0, 260.0][i];
        svg.area((left, 36.0), (left + 12.0, 48.0), colour);
        svg.text((left + 18.0, 46.0), LEGEND, text);
    }
    let y = Axis::linear("percent of all bytes", 100.0);
    let at = |percent: f64| HEIGHT - BOTTOM - y.place(percent) * (HEIGHT - BOTTOM - TOP);
    for (place, text) in y.ticks() {
        let height = HEIGHT - BOTTOM - place * (HEIGHT - BOTTOM - TOP);
        let line = ((LEFT, height), (WIDTH - RIGHT, height));
        svg.line(line.0, line.1, Stroke::solid("#e4e4e4", 1.0));
        svg.text((LEFT - 6.0, height + 4.0), BESIDE, text);
    }
    svg.upright((18.0, (TOP + HEIGHT - BOTTOM) / 2.0), SMALL, y.title());
    let groups: Vec<&[CutReport]> = total
        .cuts
        .chunk_by(|a, b| a.chunk_bytes == b.chunk_bytes)
        .collect();
    let wide = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let bar = (wide / 3.0).min(60.0);
    for (i, group) in groups.iter().enumerate() {
        let middle = LEFT + wide * (i as f64 + 0.5);
        let mut left = middle - bar * group.len() as f64 / 2.0;
        for cut in *group {
            let (zero, saved) = (cut.percent(cut.zero), cut.percent(cut.zero + cut.duplicate));
            let colour = if cut.grid == "fixed" { FIXED } else { ANCHORED };
            let (from, to) = (left + 2.0, left + bar - 2.0);
            svg.area((from, at(0.0)), (to, at(zero)), ZERO);
            svg.area((from, at(zero)), (to, at(saved)), colour);
            svg.text(
                ((from + to) / 2.0, at(saved) - 5.0),
                SMALL,
                &format!("{saved:.1}"),
            );
            left += bar;
        }
        let name = group.first().map_or(String::new(), CutReport::chunk_size);
        svg.text((middle, HEIGHT - BOTTOM + 18.0), SMALL, &name);
    }
    svg.line(
        (LEFT, at(0.0)),
        (WIDTH - RIGHT, at(0.0)),
        Stroke::solid("#444444", 1.0),
    );
    svg.text(
        ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 14.0),
        SMALL,
        "size of chunks",
    );
    svg.finish()
}
