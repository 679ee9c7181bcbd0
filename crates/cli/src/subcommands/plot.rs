//! `forebay trace plot`: a trace as SVG, PNG or a page.
use super::trace;
use crate::args::{KindArg, PlotArgs, XArg};
use crate::files::replace;
use crate::output::{name, print_error_line};
use forebay_node::failure::{Failure, Result};
use forebay_node::units::count;
use forebay_trace::Kind;
use forebay_trace::plot::{Chart, Horizontal, Selection};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What a file's ending asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Svg,
    Png,
    Page,
}

/// Runs the subcommand.
///
/// # Errors
/// An ending that is none of the three (2); a trace that cannot be read, a selection without calls, a file that cannot be
/// written (1).
pub fn run(args: &PlotArgs) -> Result {
    let outputs = match args.output.as_slice() {
        [] => vec![(args.trace.with_extension("html"), Form::Page)],
        named => {
            let form = |path: &PathBuf| Ok((path.clone(), form(path)?));
            named.iter().map(form).collect::<Result<_>>()?
        }
    };
    let recording = trace::open(&args.trace)?;
    let selection = Selection {
        file: args.file.clone(),
        kind: args.kind.map(|kind| match kind {
            KindArg::Read => Kind::Read,
            KindArg::Write => Kind::Write,
        }),
        ranks: args.ranks.clone(),
        horizontal: match args.x {
            XArg::Time => Horizontal::Time,
            XArg::Calls => Horizontal::Calls,
        },
    };
    let chart = Chart::of(&recording, &selection);
    let calls: usize = chart.panels.iter().map(|panel| panel.marks.len()).sum();
    if calls == 0 {
        return Err(Failure::new(
            "nothing to draw: no read or write with a known offset is selected",
            "`forebay trace stats` shows what there is",
        ));
    }
    for (path, form) in outputs {
        let bytes = match form {
            Form::Svg => chart.svg().into_bytes(),
            Form::Page => chart.page().into_bytes(),
            Form::Png => png(&chart.svg())?,
        };
        let shown = name(&path);
        let next = "name a file in a directory of your own with -o";
        replace(&path, next, |file| file.write_all(&bytes))?;
        print_error_line(format!(
            "{shown}: {} calls of {} ranks",
            count(calls as u64),
            count(chart.ranks.len() as u64)
        ));
    }
    Ok(())
}

fn form(path: &Path) -> Result<Form> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => Ok(Form::Svg),
        Some("png") if cfg!(feature = "png") => Ok(Form::Png),
        Some("png") => Err(Failure::usage(
            "this forebay was built without PNG",
            "write an SVG, or build with the feature png",
        )),
        Some("html" | "htm") => Ok(Form::Page),
        _ => Err(Failure::usage(
            format!("{} ends in neither .svg nor .png nor .html", path.display()),
            "end its name in the form you want",
        )),
    }
}

#[cfg(feature = "png")]
fn png(svg: &str) -> Result<Vec<u8>> {
    use forebay_trace::plot::png::{PngError, PngRenderer};
    let next = "write an SVG or a page instead";
    let made = PngRenderer::new().and_then(|renderer| renderer.png(svg));
    made.map_err(|e| match e {
        PngError::NoFont => Failure::new(
            "no font is installed, so a PNG would have no text",
            "install the package fonts-dejavu-core, or write an SVG",
        ),
        PngError::Size => Failure::new("the plot is too large for a PNG", next),
        e => Failure::new(format!("cannot draw the plot: {e}"), next),
    })
}

#[cfg(not(feature = "png"))]
fn png(_: &str) -> Result<Vec<u8>> {
    Err(Failure::usage(
        "this forebay was built without PNG",
        "write an SVG",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_say_what_is_written() {
        assert_eq!(form(Path::new("a/b.svg")).unwrap(), Form::Svg);
        assert_eq!(form(Path::new("x.html")).unwrap(), Form::Page);
        let failure = form(Path::new("x.pdf")).unwrap_err();
        assert!(failure.text.contains(".png"), "{failure}");
        assert_eq!(failure.code, forebay_node::failure::USAGE);
    }
}
