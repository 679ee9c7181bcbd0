//! A chart as SVG: panels below each other, each with its own axes, the ranks above.
//!
//! Calls that fall on the same half pixels in the same colour are drawn once, so that a file of a million calls stays small;
//! where there are still too many, the grid gets coarser.

use super::axis::{Axis, count, counted};
use super::colour::{DISTINCT, colour, hex};
use super::svg::{Anchor, Stroke, Svg, TextStyle};
use super::{Chart, Horizontal, Panel};
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
/// Height inside a panel that stands alone, and inside one among others.
const LONE_PANEL: f64 = 400.0;
const PANEL_AMONG_OTHERS: f64 = 220.0;
/// Panels that are drawn; the rest is named in a line.
const MOST_PANELS: usize = 6;
/// Rectangles of a panel that are drawn.
const MOST_RECTANGLES: usize = 40_000;

const TITLE: TextStyle = TextStyle::new(Anchor::Start, 16.0);
const PANEL_TITLE: TextStyle = TextStyle::new(Anchor::Start, 13.0);
const LEGEND: TextStyle = TextStyle::new(Anchor::Start, 12.0);
const AXIS_TITLE: TextStyle = TextStyle::new(Anchor::Middle, 12.0);
const TICK: TextStyle = TextStyle::new(Anchor::Middle, 11.0).coloured(GREY);
const TICK_BESIDE: TextStyle = TextStyle::new(Anchor::End, 11.0).coloured(GREY);
const REMARK: TextStyle = TextStyle::new(Anchor::Start, 13.0).coloured(GREY);
const GREY: &str = "#555555";
const GRID: Stroke = Stroke::solid("#e6e6e6", 1.0);
const EDGE: Stroke = Stroke::solid("#888888", 1.0);

impl Chart {
    /// As an SVG file.
    pub fn svg(&self) -> String {
        let shown = &self.panels[..self.panels.len().min(MOST_PANELS)];
        let inside = match shown.len() {
            0 | 1 => LONE_PANEL,
            _ => PANEL_AMONG_OTHERS,
        };
        let more = self.panels.len() - shown.len();
        let foot = if more > 0 { 24.0 } else { 6.0 };
        let height = TOP + shown.len().max(1) as f64 * (ABOVE + inside + BELOW) + foot;
        let title = self.title();
        let mut svg = Svg::new(WIDTH, height, title);
        svg.text((LEFT, 28.0), TITLE, title);
        legend(&mut svg, self);
        let order: HashMap<u32, usize> = self.ranks.keys().copied().zip(0..).collect();
        let mut top = TOP;
        for panel in shown {
            draw_panel(&mut svg, self, panel, &order, top + ABOVE, inside);
            top += ABOVE + inside + BELOW;
        }
        if shown.is_empty() {
            let text = "no reads or writes with a known offset are selected";
            svg.text((LEFT, TOP + ABOVE), REMARK, text);
        }
        if more > 0 {
            let text = format!("{} more files and kinds are not drawn", count(more as u64));
            svg.text((LEFT, height - 10.0), REMARK, &text);
        }
        svg.finish()
    }
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

fn legend(svg: &mut Svg, chart: &Chart) {
    let (y, total) = (54.0, chart.ranks.len());
    if total > DISTINCT {
        let (first, last) = (chart.ranks.first_key_value(), chart.ranks.last_key_value());
        let [first, last] = [first, last].map(|rank| rank.map_or(0, |(rank, _)| *rank));
        svg.text((LEFT, y), LEGEND, &format!("rank {first}"));
        let (from, steps) = (LEFT + 78.0, 48);
        for step in 0..steps {
            let fill = hex(colour(step, steps));
            let x = from + step as f64 * 4.0;
            svg.area((x, y - 10.0), (x + 4.5, y + 2.0), &fill);
        }
        let to = from + steps as f64 * 4.0 + 8.0;
        let text = format!("{last} ({} ranks)", count(total as u64));
        return svg.text((to, y), LEGEND, &text);
    }
    let room = (WIDTH - LEFT - RIGHT) / total.max(1) as f64;
    for (index, name) in chart.ranks.values().enumerate() {
        let x = LEFT + index as f64 * room.min(190.0);
        let fill = hex(colour(index, total));
        svg.area((x, y - 10.0), (x + 12.0, y + 2.0), &fill);
        // Without the machine, which is mostly the same.
        let name = name.split(" (").next().unwrap_or_default();
        let name = shorten(name, (room.min(190.0) / 8.0) as usize);
        svg.text((x + 17.0, y), LEGEND, &name);
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
    let facts = format!(
        "{}: {} of {}, {}",
        panel.kind_name(),
        counted(panel.marks.len() as u64, "call"),
        counted(panel.ranks, "rank"),
        Bytes(panel.bytes)
    );
    let name = shorten(&panel.name, 60);
    svg.text((LEFT, top - 9.0), PANEL_TITLE, &format!("{name}, {facts}"));

    let right = panel.marks.iter().map(|m| m.right).max().unwrap_or(0);
    let low = panel.marks.iter().map(|m| m.low).min().unwrap_or(0);
    let high = panel.marks.iter().map(|m| m.high).max().unwrap_or(0);
    let left = panel.marks.iter().map(|m| m.left).min().unwrap_or(0);
    let x = match chart.horizontal {
        Horizontal::Time => Axis::time("time", left, right),
        Horizontal::Calls => Axis::counts("number of the rank's call", left, right),
    };
    let y = Axis::bytes("offset", low, high);
    let width = WIDTH - LEFT - RIGHT;
    let (bottom, end) = (top + height, LEFT + width);
    for (place, text) in x.ticks() {
        let at = LEFT + place * width;
        svg.line((at, top), (at, bottom), GRID);
        svg.text((at, bottom + 16.0), TICK, text);
    }
    for (place, text) in y.ticks() {
        let at = bottom - place * height;
        svg.line((LEFT, at), (end, at), GRID);
        svg.text((LEFT - 6.0, at + 4.0), TICK_BESIDE, text);
    }
    svg.line((LEFT, top), (LEFT, bottom), EDGE);
    svg.line((LEFT, bottom), (end, bottom), EDGE);
    let below = (LEFT + width / 2.0, bottom + 36.0);
    svg.text(below, AXIS_TITLE, x.title());
    svg.upright((18.0, top + height / 2.0), AXIS_TITLE, y.title());
    let inside = (LEFT, top, width, height);
    for (rank_colour, path) in rectangles(panel, &x, &y, order, inside) {
        svg.path(&path, &hex(rank_colour), 0.9);
    }
}

/// A path of rectangles for each colour.
fn rectangles(
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
            if places.len() > MOST_RECTANGLES {
                break;
            }
        }
        if places.len() <= MOST_RECTANGLES || grid >= 8.0 {
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
