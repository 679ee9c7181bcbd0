//! A PNG of an SVG drawing.
use forebay_node::failure::{Context, Failure, Result};
use resvg::{tiny_skia, usvg};

/// Pixels of the picture for one of the drawing.
const SCALE: f32 = 2.0;
/// The font of the drawings.
const FONT: &str = "DejaVu Sans";

/// The picture of a drawing.
///
/// # Errors
/// If this machine has no font at all, for then all text would be missing; if the drawing is too large.
pub fn png(svg: &str) -> Result<Vec<u8>> {
    let mut options = usvg::Options {
        font_family: FONT.into(),
        ..usvg::Options::default()
    };
    options.fontdb_mut().load_system_fonts();
    if options.fontdb.is_empty() {
        return Err(Failure::new(
            "no font is installed, so a PNG would have no text",
            "install the package fonts-dejavu-core, or write an SVG",
        ));
    }
    let next = "write an SVG or a page instead";
    let tree = usvg::Tree::from_str(svg, &options).or_fail("cannot draw the plot", next)?;
    let size = tree.size().to_int_size().scale_by(SCALE);
    let pixels = size.and_then(|size| tiny_skia::Pixmap::new(size.width(), size.height()));
    let mut pixels = pixels.ok_or_else(|| Failure::new("the plot is too large for a PNG", next))?;
    let scale = tiny_skia::Transform::from_scale(SCALE, SCALE);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    pixels.encode_png().or_fail("cannot write the PNG", next)
}
