//! A PNG of an SVG, for where an SVG cannot be shown.

use crate::fail::{Context, Failure, Result};
use resvg::{tiny_skia, usvg};

/// Pixels of the PNG for one of the SVG.
const SCALE: f32 = 2.0;

/// The font of the drawings; text in another would not fit.
const FONT: &str = "DejaVu Sans";

/// Makes PNGs.
pub struct Maker {
    options: usvg::Options<'static>,
}

impl Maker {
    /// With the fonts of this machine.
    ///
    /// # Errors
    /// If the one that is needed is not among them: all text would be left out without a word.
    pub fn new() -> Result<Maker> {
        let mut options = usvg::Options {
            font_family: FONT.into(),
            ..usvg::Options::default()
        };
        options.fontdb_mut().load_system_fonts();
        let wanted = usvg::fontdb::Query {
            families: &[usvg::fontdb::Family::Name(FONT)],
            ..usvg::fontdb::Query::default()
        };
        if options.fontdb.query(&wanted).is_none() {
            return Err(Failure::new(format!(
                "the font {FONT} is not installed; install the package fonts-dejavu-core (`make setup` does)"
            )));
        }
        Ok(Maker { options })
    }

    /// The file.
    ///
    /// # Errors
    /// If the SVG is not one.
    pub fn png(&self, svg: &str) -> Result<Vec<u8>> {
        let tree = usvg::Tree::from_str(svg, &self.options).doing("the SVG")?;
        let size = tree.size().to_int_size();
        let large = size.scale_by(SCALE);
        let large = large.ok_or_else(|| Failure::new("the figure has no size"))?;
        let mut pixels = tiny_skia::Pixmap::new(large.width(), large.height())
            .ok_or_else(|| Failure::new("the figure has no size"))?;
        let scale = tiny_skia::Transform::from_scale(SCALE, SCALE);
        resvg::render(&tree, scale, &mut pixels.as_mut());
        pixels.encode_png().doing("the PNG")
    }
}
