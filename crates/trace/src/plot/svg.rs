//! An SVG file as it is written: lines, boxes, marks and text, in pixels from the top left.
//!
//! Text has no measured width, because that depends on the font that a viewer has: it is anchored at its start, middle or end,
//! and [`text_width`] is a guess on the wide side for what must keep clear of it.

use std::fmt::Write as _;

/// The font, and what comes near it where there is none. PNGs are made with the first.
const FONTS: &str = "DejaVu Sans, Verdana, Arial, sans-serif";

/// Which point of a text lies where it is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The left end of its base line.
    Start,
    /// The middle of its base line.
    Middle,
    /// The right end of its base line.
    End,
}

/// A text's look. Sizes in pixels.
#[derive(Debug, Clone, Copy)]
pub struct TextStyle {
    anchor: Anchor,
    size: f64,
    bold: bool,
    colour: &'static str,
}

impl TextStyle {
    /// Nearly black.
    pub const fn new(anchor: Anchor, size: f64) -> TextStyle {
        TextStyle {
            anchor,
            size,
            bold: false,
            colour: "#222222",
        }
    }

    /// The same in bold.
    pub const fn bold(self) -> TextStyle {
        TextStyle { bold: true, ..self }
    }

    /// The same in another colour.
    pub const fn coloured(self, colour: &'static str) -> TextStyle {
        TextStyle { colour, ..self }
    }
}

/// The shape of a data point, so that series differ by more than colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointShape {
    /// Filled.
    Circle,
    /// Filled.
    Square,
    /// Filled, with a corner above.
    Triangle,
    /// Filled, standing on a corner.
    Diamond,
    /// Two lines.
    Cross,
}

/// A line's look.
#[derive(Debug, Clone, Copy)]
pub struct Stroke {
    /// As SVG writes it.
    pub colour: &'static str,
    /// In pixels.
    pub width: f64,
    /// Interrupted.
    pub dashed: bool,
}

impl Stroke {
    /// Without interruptions.
    pub const fn solid(colour: &'static str, width: f64) -> Stroke {
        Stroke {
            colour,
            width,
            dashed: false,
        }
    }
}

/// What was drawn so far.
pub struct Svg {
    out: String,
}

impl Svg {
    /// Empty and white.
    pub fn new(width: f64, height: f64, title: &str) -> Svg {
        let mut out = String::new();
        // Writing to a string does not fail, here and below.
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"{FONTS}\" role=\"img\">\n<title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
            escape(title)
        );
        Svg { out }
    }

    /// The whole file.
    pub fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: Stroke) {
        self.polyline(&[from, to], stroke);
    }

    /// Lines from point to point.
    pub fn polyline(&mut self, points: &[(f64, f64)], stroke: Stroke) {
        let points: Vec<String> = points.iter().map(|p| pair(*p)).collect();
        let dashes = if stroke.dashed {
            " stroke-dasharray=\"6 4\""
        } else {
            ""
        };
        let _ = writeln!(
            self.out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{dashes}/>",
            points.join(" "),
            stroke.colour,
            stroke.width
        );
    }

    /// A filled box between two corners.
    pub fn area(&mut self, corner: (f64, f64), other: (f64, f64), colour: &str) {
        let (x, y) = (corner.0.min(other.0), corner.1.min(other.1));
        let (w, h) = ((corner.0 - other.0).abs(), (corner.1 - other.1).abs());
        let _ = writeln!(
            self.out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"{colour}\"/>"
        );
    }

    /// Small squares, all in one path.
    pub fn dots(&mut self, at: impl Iterator<Item = (f64, f64)>, colour: &str) {
        let dots: String = at
            .map(|(x, y)| format!("M{:.1} {:.1}h3v3h-3z", x - 1.5, y - 1.5))
            .collect();
        let _ = writeln!(self.out, "<path d=\"{dots}\" fill=\"{colour}\"/>");
    }

    /// The mark of a data point.
    pub fn point(&mut self, shape: PointShape, at: (f64, f64), colour: &str) {
        let (x, y) = at;
        let corners: &[(f64, f64)] = match shape {
            PointShape::Circle => {
                let _ = writeln!(
                    self.out,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"
                );
                return;
            }
            PointShape::Cross => {
                let stroke = format!("stroke=\"{colour}\" stroke-width=\"2\"");
                let (l, r, t, b) = (x - 3.5, x + 3.5, y - 3.5, y + 3.5);
                let _ = writeln!(
                    self.out,
                    "<path d=\"M{l:.1} {t:.1}L{r:.1} {b:.1}M{l:.1} {b:.1}L{r:.1} {t:.1}\" {stroke}/>"
                );
                return;
            }
            PointShape::Square => &[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)],
            PointShape::Triangle => &[(0.0, -4.8), (4.6, 3.6), (-4.6, 3.6)],
            PointShape::Diamond => &[(0.0, -5.2), (5.2, 0.0), (0.0, 5.2), (-5.2, 0.0)],
        };
        let corners: Vec<String> = corners.iter().map(|c| pair((x + c.0, y + c.1))).collect();
        let _ = writeln!(
            self.out,
            "<polygon points=\"{}\" fill=\"{colour}\"/>",
            corners.join(" ")
        );
    }

    /// Fills a path, as SVG writes one; what lies below shows through where `opacity` is less than 1.
    pub fn path(&mut self, path: &str, colour: &str, opacity: f64) {
        let _ = writeln!(
            self.out,
            "<path d=\"{path}\" fill=\"{colour}\" fill-opacity=\"{opacity}\"/>"
        );
    }

    /// Text; `at` is its anchor on the base line.
    pub fn text(&mut self, at: (f64, f64), style: TextStyle, text: &str) {
        self.write(at, style, "", text);
    }

    /// Text that reads from below.
    pub fn upright(&mut self, at: (f64, f64), style: TextStyle, text: &str) {
        let turn = format!(" transform=\"rotate(-90 {:.1} {:.1})\"", at.0, at.1);
        self.write(at, style, &turn, text);
    }

    fn write(&mut self, (x, y): (f64, f64), style: TextStyle, more: &str, text: &str) {
        let TextStyle { size, colour, .. } = style;
        let anchor = match style.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let bold = if style.bold {
            " font-weight=\"bold\""
        } else {
            ""
        };
        let text = escape(text);
        let _ = writeln!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{colour}\"{bold}{more}>{text}</text>"
        );
    }
}

/// About how wide a text is in pixels, rather too much than too little.
pub fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.55
}

/// Lines of at most about `wide` pixels.
pub fn wrap(text: &str, size: f64, wide: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line, size) + text_width(word, size) + size < wide => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

fn pair(point: (f64, f64)) -> String {
    format!("{:.1},{:.1}", point.0, point.1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_end_an_element() {
        let mut svg = Svg::new(10.0, 10.0, "a < b");
        let style = TextStyle::new(Anchor::Middle, 9.0).bold();
        svg.text((1.0, 2.0), style, "<b> & \"c\"");
        let svg = svg.finish();
        assert!(svg.contains("<title>a &lt; b</title>"));
        assert!(svg.contains(">&lt;b&gt; &amp; &quot;c&quot;</text>"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn lines_are_cut_between_words() {
        let text = "medians of five runs, bars from the least to the most";
        let lines = wrap(text, 10.0, 120.0);
        assert!(lines.len() > 2 && lines.iter().all(|l| text_width(l, 10.0) < 120.0));
        assert_eq!(lines.join(" "), text);
    }
}
