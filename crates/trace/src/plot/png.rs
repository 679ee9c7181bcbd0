//! A PNG of an SVG, for where an SVG cannot be shown.

use resvg::{tiny_skia, usvg};

/// Pixels of the PNG for one of the SVG.
const SCALE: f32 = 2.0;
/// The font that the drawings are made for; in another one a text may not fit.
pub const FONT: &str = "DejaVu Sans";

/// Why there is no PNG.
#[derive(Debug, thiserror::Error)]
pub enum PngError {
    /// All text would be left out without a word.
    #[error("no font is installed")]
    NoFont,
    /// It is no SVG.
    #[error(transparent)]
    Svg(#[from] usvg::Error),
    /// It has no size, or a PNG of it is too large to be made.
    #[error("it has no size, or is too large")]
    Size,
    /// It cannot be encoded.
    #[error("{0}")]
    Encode(String),
}

/// Makes PNGs with the fonts of this machine.
pub struct PngRenderer {
    options: usvg::Options<'static>,
}

impl PngRenderer {
    /// Loads the fonts.
    ///
    /// # Errors
    /// If there is none at all.
    pub fn new() -> Result<PngRenderer, PngError> {
        let mut options = usvg::Options {
            font_family: FONT.into(),
            ..usvg::Options::default()
        };
        options.fontdb_mut().load_system_fonts();
        match options.fontdb.is_empty() {
            true => Err(PngError::NoFont),
            false => Ok(PngRenderer { options }),
        }
    }

    /// Whether [`FONT`] is among them.
    pub fn has_font(&self) -> bool {
        let query = usvg::fontdb::Query {
            families: &[usvg::fontdb::Family::Name(FONT)],
            ..usvg::fontdb::Query::default()
        };
        self.options.fontdb.query(&query).is_some()
    }

    /// The PNG of an SVG file, twice as large.
    ///
    /// # Errors
    /// Of [`PngError`] all but `NoFont`.
    pub fn png(&self, svg: &str) -> Result<Vec<u8>, PngError> {
        let tree = usvg::Tree::from_str(svg, &self.options)?;
        let size = tree.size().to_int_size().scale_by(SCALE);
        let pixels = size.and_then(|size| tiny_skia::Pixmap::new(size.width(), size.height()));
        let mut pixels = pixels.ok_or(PngError::Size)?;
        let scale = tiny_skia::Transform::from_scale(SCALE, SCALE);
        resvg::render(&tree, scale, &mut pixels.as_mut());
        let encoded = pixels.encode_png();
        encoded.map_err(|e| PngError::Encode(e.to_string()))
    }
}
