//! A chart as SVG: panels below each other, each with its own axes, the ranks above.
//!
//! Marks that fall on the same half pixels in the same colour are drawn once, so that a file of a million calls stays small;
//! where there are still too many, the grid gets coarser.

use super::colour::{DISTINCT, colour, hex};
use super::{Axis, Chart, Horizontal, Kind, Panel, count};
use crate::stats::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 74.0;
/// Above each panel, for its title, and below, for its axis.
const ABOVE: f64 = 30.0;
const BELOW: f64 = 52.0;
/// Inside a panel that stands alone, and one among others.
const ALONE: f64 = 400.0;
const AMONG: f64 = 220.0;
/// Panels that are drawn; the rest is named in a line.
const PANELS: usize = 6;
/// Marks of a panel that are drawn.
const MARKS: usize = 40_000;
const FONTS: &str = "DejaVu Sans, Verdana, Arial, sans-serif";
const GREY: &str = "#555555";

/// The file.
pub fn draw(chart: &Chart) -> String {
    let shown = &chart.panels[..chart.panels.len().min(PANELS)];
    let inside = if shown.len() > 1 { AMONG } else { ALONE };
    let more = chart.panels.len() - shown.len();
    let foot = if more > 0 { 24.0 } else { 6.0 };
    let height = TOP + shown.len().max(1) as f64 * (ABOVE + inside + BELOW) + foot;
    let mut svg = Svg(String::new());
    let _ = write!(
        svg.0,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"{FONTS}\"><rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
    );
    let title = match chart.name.is_empty() {
        true => String::from("Trace"),
        false => chart.name.clone(),
    };
    svg.text(LEFT, 28.0, 16.0, "start", "#000000", &title);
    legend(&mut svg, chart);
    let order: HashMap<u32, usize> = chart.ranks.iter().copied().zip(0..).collect();
    let mut top = TOP;
    for panel in shown {
        draw_panel(&mut svg, chart, panel, &order, top + ABOVE, inside);
        top += ABOVE + inside + BELOW;
    }
    if shown.is_empty() {
        let text = "no reads or writes with a known offset are selected";
        svg.text(LEFT, TOP + ABOVE, 13.0, "start", GREY, text);
    }
    if more > 0 {
        let text = format!("{} more files and kinds are not drawn", count(more));
        svg.text(LEFT, height - 10.0, 11.0, "start", GREY, &text);
    }
    svg.0.push_str("</svg>\n");
    svg.0
}

struct Svg(String);

impl Svg {
    fn text(&mut self, x: f64, y: f64, size: f64, anchor: &str, fill: &str, text: &str) {
        let _ = write!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{}</text>",
            escape(text)
        );
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        let _ = write!(
            self.0,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{colour}\" stroke-width=\"1\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn rectangle(&mut self, x: f64, y: f64, w: f64, h: f64, fill: &str) {
        let _ = write!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"{fill}\"/>"
        );
    }
}

/// As XML may hold it; control characters, which it may not, become spaces.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// The text, with its middle left out if it is longer than `most` characters.
fn shorten(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let half = most / 2;
    let start: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(length - half).collect();
    format!("{start}…{end}")
}

/// `1 call`, `2 calls`.
fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {what}{plural}", count(n))
}

fn legend(svg: &mut Svg, chart: &Chart) {
    let (y, total) = (54.0, chart.ranks.len());
    if total > DISTINCT {
        let (first, last) = (chart.ranks.first(), chart.ranks.last());
        let (first, last) = (first.copied().unwrap_or(0), last.copied().unwrap_or(0));
        svg.text(LEFT, y, 12.0, "start", "#000000", &format!("rank {first}"));
        let (from, steps) = (LEFT + 78.0, 48);
        for step in 0..steps {
            let fill = hex(colour(step, steps));
            svg.rectangle(from + step as f64 * 4.0, y - 10.0, 4.5, 12.0, &fill);
        }
        let to = from + steps as f64 * 4.0 + 8.0;
        let text = format!("{last} ({} ranks)", count(total));
        return svg.text(to, y, 12.0, "start", "#000000", &text);
    }
    let room = (WIDTH - LEFT - RIGHT) / total.max(1) as f64;
    for (index, rank) in chart.ranks.iter().enumerate() {
        let x = LEFT + index as f64 * room.min(190.0);
        svg.rectangle(x, y - 10.0, 12.0, 12.0, &hex(colour(index, total)));
        let name = chart.rank_names.get(rank).cloned();
        // Without the machine, which is mostly the same.
        let name = name.map(|n| n.split(" (").next().unwrap_or_default().to_owned());
        let name = shorten(
            &name.unwrap_or(format!("rank {rank}")),
            (room.min(190.0) / 8.0) as usize,
        );
        svg.text(x + 17.0, y, 12.0, "start", "#000000", &name);
    }
}

fn draw_panel(
    svg: &mut Svg,
    chart: &Chart,
    panel: &Panel,
    order: &HashMap<u32, usize>,
    top: f64,
    height: f64,
) {
    let kind = match panel.kind {
        Kind::Read => "reads",
        Kind::Write => "writes",
    };
    let facts = format!(
        "{kind}: {} of {}, {}",
        counted(panel.marks.len(), "call"),
        counted(panel.ranks as usize, "rank"),
        Bytes(panel.bytes)
    );
    let name = shorten(&panel.name, 60);
    svg.text(
        LEFT,
        top - 9.0,
        13.0,
        "start",
        "#000000",
        &format!("{name}, {facts}"),
    );

    let right = panel.marks.iter().map(|m| m.right).max().unwrap_or(0);
    let low = panel.marks.iter().map(|m| m.low).min().unwrap_or(0);
    let high = panel.marks.iter().map(|m| m.high).max().unwrap_or(0);
    let left = panel.marks.iter().map(|m| m.left).min().unwrap_or(0);
    let x = match chart.horizontal {
        Horizontal::Time => Axis::time(left, right),
        Horizontal::Calls => Axis::calls(left, right),
    };
    let y = Axis::bytes(low, high);
    let width = WIDTH - LEFT - RIGHT;
    let (bottom, end) = (top + height, LEFT + width);
    for (value, text) in &x.ticks {
        let at = LEFT + x.place(*value) * width;
        svg.line((at, top), (at, bottom), "#e6e6e6");
        svg.text(at, bottom + 16.0, 11.0, "middle", GREY, text);
    }
    for (value, text) in &y.ticks {
        let at = bottom - y.place(*value) * height;
        svg.line((LEFT, at), (end, at), "#e6e6e6");
        svg.text(LEFT - 6.0, at + 4.0, 11.0, "end", GREY, text);
    }
    svg.line((LEFT, top), (LEFT, bottom), "#888888");
    svg.line((LEFT, bottom), (end, bottom), "#888888");
    let across = match chart.horizontal {
        Horizontal::Time => format!("time ({})", x.unit),
        Horizontal::Calls => String::from("number of the rank's call"),
    };
    let middle = LEFT + width / 2.0;
    svg.text(middle, bottom + 36.0, 12.0, "middle", "#000000", &across);
    let _ = write!(
        svg.0,
        "<text transform=\"translate(18 {:.1}) rotate(-90)\" font-size=\"12\" text-anchor=\"middle\">offset ({})</text>",
        top + height / 2.0,
        y.unit
    );
    let paths = marks(panel, &x, &y, order, (LEFT, top, width, height));
    for (rank_colour, path) in paths {
        let _ = write!(
            svg.0,
            "<path fill=\"{}\" fill-opacity=\"0.9\" d=\"{path}\"/>",
            hex(rank_colour)
        );
    }
}

/// A path of rectangles for each colour.
fn marks(
    panel: &Panel,
    x: &Axis,
    y: &Axis,
    order: &HashMap<u32, usize>,
    (left, top, width, height): (f64, f64, f64, f64),
) -> BTreeMap<[u8; 3], String> {
    let mut grid = 0.5;
    let places = loop {
        let mut places = BTreeSet::new();
        let half = |v: f64| (v / grid).round() as i64;
        for mark in &panel.marks {
            let (x0, x1) = (x.place(mark.left as f64), x.place(mark.right as f64));
            let (y0, y1) = (y.place(mark.low as f64), y.place(mark.high as f64));
            let index = order.get(&mark.rank).copied().unwrap_or(0);
            let least = (1.5 / grid).ceil() as i64;
            let (from, over) = (half(x0 * width), half(height - y1 * height));
            places.insert((
                colour(index, order.len()),
                from,
                over,
                (half(x1 * width) - from).max(least),
                (half(height - y0 * height) - over).max(least),
            ));
            if places.len() > MARKS {
                break;
            }
        }
        if places.len() <= MARKS || grid >= 8.0 {
            break places;
        }
        grid *= 2.0;
    };
    let mut paths: BTreeMap<[u8; 3], String> = BTreeMap::new();
    for (rank_colour, from, over, wide, tall) in places {
        let path = paths.entry(rank_colour).or_default();
        let at = |n: i64| n as f64 * grid;
        let _ = write!(
            path,
            "M{} {}h{}v{}h-{}z",
            left + at(from),
            top + at(over),
            at(wide),
            at(tall),
            at(wide)
        );
    }
    paths
}
