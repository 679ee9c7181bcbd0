//! A figure: title, legend, panels in a grid, and a caption below. Nothing is drawn over the data.

use super::panel::{Panel, PanelContent, PanelFrame, Series};
use forebay_trace::plot::svg::{Anchor, Svg, TextStyle, text_width, wrap};

/// A figure; it is drawn if it has a panel.
#[derive(Debug)]
pub struct Figure {
    pub title: String,
    pub panels: Vec<Panel>,
    /// Panels in a row.
    pub columns: usize,
    /// What was measured.
    pub caption: String,
    /// What is missing, for the person who draws it.
    pub missing: Vec<String>,
}

const EDGE: f64 = 14.0;
const CELL: (f64, f64) = (330.0, 270.0);
const TITLE: f64 = 15.0;
const LEGEND: f64 = 12.0;
const CAPTION: f64 = 11.0;
const TITLE_STYLE: TextStyle = TextStyle::new(Anchor::Start, TITLE).bold();
const LEGEND_STYLE: TextStyle = TextStyle::new(Anchor::Start, LEGEND);
const CAPTION_STYLE: TextStyle = TextStyle::new(Anchor::Start, CAPTION);

impl Figure {
    /// A figure without panels.
    pub fn new(title: &str, columns: usize, caption: impl Into<String>) -> Figure {
        Figure {
            title: title.into(),
            panels: Vec::new(),
            columns,
            caption: caption.into(),
            missing: Vec::new(),
        }
    }

    /// One more panel; without it `name` is missing.
    pub fn add(&mut self, name: impl Into<String>, panel: Option<Panel>) {
        match panel {
            Some(panel) => self.panels.push(panel),
            None => self.missing.push(name.into()),
        }
    }

    /// The series of all panels, each once.
    fn styles(&self) -> Vec<Series> {
        let mut styles: Vec<Series> = Vec::new();
        for style in self.panels.iter().flat_map(Panel::styles) {
            if !styles.contains(&style) {
                styles.push(style);
            }
        }
        styles
    }

    /// As an SVG file.
    pub fn svg(&self) -> String {
        let columns = self.columns.min(self.panels.len()).max(1);
        let rows = self.panels.len().div_ceil(columns);
        // One panel is too narrow for the caption.
        let width = (2.0 * EDGE + columns as f64 * CELL.0).max(560.0);
        let legend = self.legend(width);
        let top = EDGE + TITLE + 8.0 + legend.len() as f64 * (LEGEND + 8.0) + 8.0;
        let caption = wrap(&self.caption, CAPTION, width - 2.0 * EDGE);
        let bottom = top + rows as f64 * CELL.1;
        let height = bottom + caption.len() as f64 * (CAPTION + 4.0) + EDGE;
        let mut out = Svg::new(width, height, &self.title);
        out.text((EDGE, EDGE + TITLE), TITLE_STYLE, &self.title);
        for (row, styles) in legend.iter().enumerate() {
            let y = EDGE + TITLE + 8.0 + (row as f64 + 1.0) * (LEGEND + 8.0) - 5.0;
            let mut x = EDGE + 4.0;
            for style in styles {
                self.sample(&mut out, (x, y - 4.0), style);
                out.text((x + 34.0, y), LEGEND_STYLE, style.name);
                x += entry(style);
            }
        }
        let cell = (width - 2.0 * EDGE) / columns as f64;
        for (i, panel) in self.panels.iter().enumerate() {
            let frame = PanelFrame {
                left: EDGE + (i % columns) as f64 * cell,
                top: top + (i / columns) as f64 * CELL.1,
                width: cell,
                height: CELL.1,
            };
            panel.draw(&mut out, frame);
        }
        for (i, line) in caption.iter().enumerate() {
            let y = bottom + (i as f64 + 1.0) * (CAPTION + 4.0) - 2.0;
            out.text((EDGE, y), CAPTION_STYLE, line);
        }
        out.finish()
    }

    /// The series of the legend, in rows that fit.
    fn legend(&self, width: f64) -> Vec<Vec<Series>> {
        let mut rows: Vec<Vec<Series>> = Vec::new();
        let mut used = f64::INFINITY;
        for style in self.styles() {
            if used + entry(&style) > width - 2.0 * EDGE {
                rows.push(Vec::new());
                used = 0.0;
            }
            used += entry(&style);
            if let Some(row) = rows.last_mut() {
                row.push(style);
            }
        }
        rows
    }

    /// Draws the sample of a series beside its name in the legend.
    fn sample(&self, out: &mut Svg, at: (f64, f64), style: &Series) {
        let bars = |p: &Panel| matches!(p.content, PanelContent::Bars { .. });
        if self.panels.iter().all(bars) {
            let (x, y) = at;
            out.area((x + 8.0, y - 6.0), (x + 26.0, y + 6.0), style.colour);
            return;
        }
        out.line(at, (at.0 + 28.0, at.1), style.stroke());
        out.point(style.shape, (at.0 + 14.0, at.1), style.colour);
    }
}

/// The room of one name in the legend.
fn entry(style: &Series) -> f64 {
    34.0 + text_width(style.name, LEGEND) + 20.0
}
