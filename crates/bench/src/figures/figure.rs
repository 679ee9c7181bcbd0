//! A figure: title, legend, panels in a grid, and a caption below. Nothing is drawn over the data.

use super::drawing::{self, Anchor, Drawing, Stroke};
use super::panel::{Content, Frame, Look, Panel};

/// A figure as it is drawn; at least one panel.
#[derive(Debug)]
pub struct Figure {
    pub title: String,
    pub panels: Vec<Panel>,
    /// Panels side by side.
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

impl Figure {
    /// Who is in it, each once.
    fn looks(&self) -> Vec<Look> {
        let mut looks: Vec<Look> = Vec::new();
        for look in self.panels.iter().flat_map(Panel::looks) {
            if !looks.contains(&look) {
                looks.push(look);
            }
        }
        looks
    }

    /// As an SVG file.
    pub fn svg(&self) -> String {
        let columns = self.columns.min(self.panels.len()).max(1);
        let rows = self.panels.len().div_ceil(columns);
        // One panel is too narrow for the caption.
        let width = (2.0 * EDGE + columns as f64 * CELL.0).max(560.0);
        let legend = self.legend(width);
        let top = EDGE + TITLE + 8.0 + legend.len() as f64 * (LEGEND + 8.0) + 8.0;
        let caption = drawing::wrap(&self.caption, CAPTION, width - 2.0 * EDGE);
        let bottom = top + rows as f64 * CELL.1;
        let height = bottom + caption.len() as f64 * (CAPTION + 4.0) + EDGE;
        let mut out = Drawing::new(width, height, &self.title);
        out.text(
            (EDGE, EDGE + TITLE),
            Anchor::Start,
            TITLE,
            true,
            &self.title,
        );
        for (row, looks) in legend.iter().enumerate() {
            let y = EDGE + TITLE + 8.0 + (row as f64 + 1.0) * (LEGEND + 8.0) - 5.0;
            let mut x = EDGE + 4.0;
            for look in looks {
                self.sample(&mut out, (x, y - 4.0), look);
                out.text((x + 34.0, y), Anchor::Start, LEGEND, false, look.name);
                x += entry(look);
            }
        }
        let cell = (width - 2.0 * EDGE) / columns as f64;
        for (i, panel) in self.panels.iter().enumerate() {
            let frame = Frame {
                left: EDGE + (i % columns) as f64 * cell,
                top: top + (i / columns) as f64 * CELL.1,
                width: cell,
                height: CELL.1,
            };
            panel.draw(&mut out, frame);
        }
        for (i, line) in caption.iter().enumerate() {
            let y = bottom + (i as f64 + 1.0) * (CAPTION + 4.0) - 2.0;
            out.text((EDGE, y), Anchor::Start, CAPTION, false, line);
        }
        out.finish()
    }

    /// In rows that fit.
    fn legend(&self, width: f64) -> Vec<Vec<Look>> {
        let mut rows: Vec<Vec<Look>> = Vec::new();
        let mut used = f64::INFINITY;
        for look in self.looks() {
            if used + entry(&look) > width - 2.0 * EDGE {
                rows.push(Vec::new());
                used = 0.0;
            }
            used += entry(&look);
            if let Some(row) = rows.last_mut() {
                row.push(look);
            }
        }
        rows
    }

    /// A piece of what the legend names.
    fn sample(&self, out: &mut Drawing, at: (f64, f64), look: &Look) {
        let bars = |p: &Panel| matches!(p.content, Content::Bars { .. });
        if self.panels.iter().all(bars) {
            let (x, y) = at;
            out.area((x + 8.0, y - 6.0), (x + 26.0, y + 6.0), look.colour);
            return;
        }
        let stroke = Stroke {
            colour: look.colour,
            width: 2.0,
            dashed: look.dashed,
        };
        out.line(at, (at.0 + 28.0, at.1), stroke);
        out.mark(look.mark, (at.0 + 14.0, at.1), look.colour);
    }
}

/// The room of one name in the legend.
fn entry(look: &Look) -> f64 {
    34.0 + drawing::width(look.name, LEGEND) + 20.0
}
