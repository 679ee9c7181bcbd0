//! One pair of axes with what is measured: curves over a number, or groups of bars.
//!
//! Every value is a median, with a thin line from the least to the most of its runs.

use crate::report::Spread;
use forebay_trace::plot::axis::{Axis, three_digits, with_unit_letter};
use forebay_trace::plot::svg::{Anchor, PointShape, Stroke, Svg, TextStyle};

/// A series: the results of one subject, and how they are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Series {
    /// As in results.
    pub subject: &'static str,
    /// As in the legend.
    pub name: &'static str,
    pub colour: &'static str,
    pub shape: PointShape,
    pub dashed: bool,
}

impl Series {
    pub const fn new(
        subject: &'static str,
        name: &'static str,
        colour: &'static str,
        shape: PointShape,
    ) -> Series {
        Series {
            subject,
            name,
            colour,
            shape,
            dashed: false,
        }
    }

    /// With a dashed line.
    pub const fn dashed(self) -> Series {
        Series {
            dashed: true,
            ..self
        }
    }

    pub fn stroke(&self) -> Stroke {
        Stroke {
            colour: self.colour,
            width: 2.0,
            dashed: self.dashed,
        }
    }
}

/// `x` against spread, ascending.
pub type Curve = (Series, Vec<(f64, Spread)>);

/// What a panel shows.
#[derive(Debug)]
pub enum PanelContent {
    Curves {
        x: Axis,
        curves: Vec<Curve>,
    },
    /// Dots of many series, which the legend does not name.
    Points {
        x: Axis,
        series: Vec<PointSeries>,
    },
    /// A bar a subject in each group; the axis must begin at 0, or be logarithmic.
    Bars {
        x_title: String,
        groups: Vec<String>,
        sets: Vec<BarSet>,
    },
}

/// The bars of a subject: a value for each group that has one.
pub type BarSet = (Series, Vec<Option<Spread>>);

/// The bars of each subject in these groups.
pub fn bar_sets<G>(
    series: &[Series],
    groups: &[G],
    value: impl Fn(&G, &str) -> Option<Spread>,
) -> Vec<BarSet> {
    let values = |s: &Series| groups.iter().map(|g| value(g, s.subject)).collect();
    series.iter().map(|s| (*s, values(s))).collect()
}

/// The curves of those that have points.
pub fn curves(series: &[Series], points: impl Fn(&str) -> Vec<(f64, Spread)>) -> Vec<Curve> {
    let curves = series.iter().map(|s| (*s, points(s.subject)));
    curves.filter(|c| !c.1.is_empty()).collect()
}

/// A logarithmic axis for all of these curves; none if there is nothing.
pub fn log_axis(title: &str, curves: &[Curve]) -> Option<Axis> {
    let all = || curves.iter().flat_map(|c| &c.1).map(|p| p.1);
    let low = all().map(|s| s.min).fold(f64::INFINITY, f64::min);
    let high = all().map(|s| s.max).fold(0.0, f64::max);
    (high > 0.0).then(|| Axis::log(title, low, high))
}

/// Dots of one colour.
#[derive(Debug)]
pub struct PointSeries {
    pub colour: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// A panel of a figure.
#[derive(Debug)]
pub struct Panel {
    pub title: String,
    pub y: Axis,
    /// Whether its values are of several runs: a simulation is exact.
    pub measured: bool,
    pub content: PanelContent,
}

/// Where a panel goes, with all that is written around it.
#[derive(Debug, Clone, Copy)]
pub struct PanelFrame {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

/// Room around the axes.
const LEFT: f64 = 66.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 46.0;
const TITLE: TextStyle = TextStyle::new(Anchor::Middle, 12.5).bold();
const SMALL: TextStyle = TextStyle::new(Anchor::Middle, 11.0);
const BESIDE: TextStyle = TextStyle::new(Anchor::End, 11.0);
const OVER_A_BAR: TextStyle = TextStyle::new(Anchor::Middle, 9.5);
const GRID: Stroke = Stroke::solid("#e4e4e4", 1.0);
const EDGE: Stroke = Stroke::solid("#444444", 1.0);
const SPREAD: Stroke = Stroke::solid("#222222", 1.0);

impl Panel {
    /// Of what was measured over a number; none without curves.
    pub fn of_curves(
        title: impl Into<String>,
        x: Axis,
        y: Option<Axis>,
        curves: Vec<Curve>,
    ) -> Option<Panel> {
        let y = y.filter(|_| !curves.is_empty())?;
        Some(Panel {
            title: title.into(),
            y,
            measured: true,
            content: PanelContent::Curves { x, curves },
        })
    }

    /// Of what was measured, as bars from 0 on, without subjects that have none; `above` is the height of the axis as so many times
    /// that of the highest bar, for the number over it.
    pub fn of_bars(
        title: &str,
        (x_title, y_title): (&str, &str),
        above: f64,
        groups: Vec<String>,
        mut sets: Vec<BarSet>,
    ) -> Option<Panel> {
        sets.retain(|s| s.1.iter().any(Option::is_some));
        let highest = sets.iter().flat_map(|s| s.1.iter().flatten());
        let highest = highest.map(|s| s.max).fold(0.0, f64::max);
        (!sets.is_empty()).then(|| Panel {
            title: title.into(),
            y: Axis::linear(y_title, highest * above),
            measured: true,
            content: PanelContent::Bars {
                x_title: x_title.into(),
                groups,
                sets,
            },
        })
    }

    /// Its series.
    pub fn styles(&self) -> Vec<Series> {
        match &self.content {
            PanelContent::Curves { curves, .. } => curves.iter().map(|c| c.0).collect(),
            PanelContent::Points { .. } => Vec::new(),
            PanelContent::Bars { sets, .. } => sets.iter().map(|s| s.0).collect(),
        }
    }

    /// The numbers of runs behind its values; none of what is exact.
    pub fn runs(&self) -> Vec<u32> {
        if !self.measured {
            return Vec::new();
        }
        match &self.content {
            PanelContent::Curves { curves, .. } => {
                let points = curves.iter().flat_map(|c| &c.1);
                points.map(|p| p.1.runs).collect()
            }
            PanelContent::Points { .. } => Vec::new(),
            PanelContent::Bars { sets, .. } => {
                let values = sets.iter().flat_map(|s| &s.1);
                values.flatten().map(|s| s.runs).collect()
            }
        }
    }

    /// Draws the panel.
    pub fn draw(&self, out: &mut Svg, frame: PanelFrame) {
        let inner = PanelFrame {
            left: frame.left + LEFT,
            top: frame.top + TOP,
            width: frame.width - LEFT - RIGHT,
            height: frame.height - TOP - BOTTOM,
        };
        let middle = inner.left + inner.width / 2.0;
        out.text((middle, frame.top + 15.0), TITLE, &self.title);
        for (place, words) in self.y.ticks() {
            let y = inner.y(place);
            out.line((inner.left, y), (inner.right(), y), GRID);
            out.text((inner.left - 6.0, y + 4.0), BESIDE, words);
        }
        let beside = (frame.left + 13.0, inner.top + inner.height / 2.0);
        out.upright(beside, SMALL, self.y.title());
        match &self.content {
            PanelContent::Curves { x, curves } => self.curves(out, inner, x, curves),
            PanelContent::Points { x, series } => self.points(out, inner, x, series),
            PanelContent::Bars {
                x_title,
                groups,
                sets,
            } => {
                self.bars(out, inner, groups, sets);
                below(out, inner, x_title);
            }
        }
        let bottom = inner.top + inner.height;
        out.line((inner.left, inner.top), (inner.left, bottom), EDGE);
        out.line((inner.left, bottom), (inner.right(), bottom), EDGE);
    }

    fn curves(&self, out: &mut Svg, inner: PanelFrame, x: &Axis, curves: &[Curve]) {
        numbers(out, inner, x);
        let at = |(value, spread): &(f64, Spread)| {
            let y = inner.y(self.y.place(spread.median));
            (inner.across(x.place(*value)), y)
        };
        for (style, points) in curves {
            let places: Vec<(f64, f64)> = points.iter().map(at).collect();
            out.polyline(&places, style.stroke());
            for (at, (_, spread)) in places.iter().zip(points) {
                self.spread(out, inner, at.0, *spread, 3.0);
                out.point(style.shape, *at, style.colour);
            }
        }
    }

    fn points(&self, out: &mut Svg, inner: PanelFrame, x: &Axis, series: &[PointSeries]) {
        numbers(out, inner, x);
        for PointSeries { colour, points } in series {
            let at = |(a, b): &(f64, f64)| (inner.across(x.place(*a)), inner.y(self.y.place(*b)));
            out.dots(points.iter().map(at), colour);
        }
    }

    fn bars(&self, out: &mut Svg, inner: PanelFrame, groups: &[String], sets: &[BarSet]) {
        let bottom = inner.top + inner.height;
        let group = inner.width / groups.len().max(1) as f64;
        // A lone group does not need bars as wide as a hand.
        let wide = (group * 0.84 / sets.len().max(1) as f64).min(46.0);
        for (g, name) in groups.iter().enumerate() {
            let middle = inner.left + group * (g as f64 + 0.5);
            out.text((middle, bottom + 17.0), SMALL, name);
            let first = middle - wide * sets.len() as f64 / 2.0;
            for (s, (style, values)) in sets.iter().enumerate() {
                let Some(spread) = values.get(g).copied().flatten() else {
                    continue;
                };
                let left = first + wide * s as f64;
                let top = inner.y(self.y.place(spread.median));
                out.area((left + 1.5, top), (left + wide - 1.5, bottom), style.colour);
                let center = left + wide / 2.0;
                self.spread(out, inner, center, spread, 4.0);
                let over = inner.y(self.y.place(spread.max)).min(top) - 4.0;
                let words = two_digits(spread.median);
                out.text((center, over), OVER_A_BAR, &words);
            }
        }
    }

    /// Draws the thin line from the least to the most value; none if they look the same.
    fn spread(&self, out: &mut Svg, inner: PanelFrame, x: f64, spread: Spread, cap: f64) {
        let [low, high] = [spread.min, spread.max].map(|v| inner.y(self.y.place(v)));
        if low - high < 1.0 {
            return;
        }
        out.line((x, low), (x, high), SPREAD);
        for y in [low, high] {
            out.line((x - cap, y), (x + cap, y), SPREAD);
        }
    }
}

impl PanelFrame {
    fn right(self) -> f64 {
        self.left + self.width
    }

    /// Data points keep clear of the edges.
    fn across(self, place: f64) -> f64 {
        self.left + 10.0 + place * (self.width - 20.0)
    }

    fn y(self, place: f64) -> f64 {
        self.top + self.height * (1.0 - place)
    }
}

/// An axis of numbers below.
fn numbers(out: &mut Svg, inner: PanelFrame, x: &Axis) {
    let bottom = inner.top + inner.height;
    for (place, words) in x.ticks() {
        let x = inner.across(place);
        out.line((x, bottom), (x, bottom + 4.0), EDGE);
        out.text((x, bottom + 17.0), SMALL, words);
    }
    below(out, inner, x.title());
}

fn below(out: &mut Svg, inner: PanelFrame, title: &str) {
    let at = (
        inner.left + inner.width / 2.0,
        inner.top + inner.height + 36.0,
    );
    out.text(at, SMALL, title);
}

/// Two digits that count: there is little room over a bar.
fn two_digits(value: f64) -> String {
    if value <= 0.0 || (100.0..1e4).contains(&value) {
        return three_digits(value.round());
    }
    let power = 10f64.powi(value.log10().floor() as i32 - 1);
    let rounded = (value / power).round() * power;
    with_unit_letter(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_written_over_a_bar() {
        let written = [0.0, 0.1234, 3.96, 12.3, 1234.5, 45_678.0, 22_369_621.0].map(two_digits);
        assert_eq!(
            written,
            ["0", "0.12", "4", "12", "1,235", "46,000", "22 M"].map(String::from)
        );
    }
}
