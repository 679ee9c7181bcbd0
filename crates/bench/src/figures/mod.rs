//! The figures of the papers about index and log-ring, and about patterns and prefetching, and those about floating-point arrays, drawn
//! from the JSON lines of `index`, `ring`, `pattern`, `checkpoint`, `prefetch` and `fields`.
//!
//! A figure has what was measured, and nothing else: a case without a result is named and left out, a figure without any is not
//! drawn. Two runs over the same lines make the same bytes.

mod checkpoint;
mod fields;
mod figure;
mod index;
mod panel;
mod patterns;
mod prefetch;
mod results;
mod ring;
#[cfg(test)]
mod tests;

use crate::fail::{Context, Failure, Result};
use figure::Figure;
use results::Results;
use std::path::PathBuf;

/// What `figures` does.
#[derive(Debug, clap::Args)]
pub struct FiguresArgs {
    /// JSON lines of benchmarks, or directories of `.jsonl` files; the last line about a thing counts
    #[arg(long = "from", required = true, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// The directory that the figures go to
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Cores of the machine that was measured, for the captions [default: those of this one]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    cores: Option<u32>,
    /// No PNGs, only SVGs
    #[arg(long)]
    svg_only: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// If a line is not a result, a file cannot be written, or there is nothing to draw at all.
pub fn run(args: &FiguresArgs) -> Result<()> {
    let results = Results::read(&args.from)?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let cores = args.cores.unwrap_or(cores);
    std::fs::create_dir_all(&args.to).doing(args.to.display())?;
    let mut drawn = 0;
    #[cfg(feature = "png")]
    let renderer = (!args.svg_only).then(png_renderer).transpose()?;
    for (name, mut figure) in all(&results) {
        if figure.panels.is_empty() {
            eprintln!("{name}: not drawn, for there are no results");
            continue;
        }
        finish(&mut figure, cores);
        let svg = figure.svg();
        let path = args.to.join(format!("{name}.svg"));
        std::fs::write(&path, &svg).doing(path.display())?;
        #[cfg(feature = "png")]
        if let Some(renderer) = &renderer {
            let path = args.to.join(format!("{name}.png"));
            let png = renderer.png(&svg).doing("the PNG")?;
            std::fs::write(&path, png).doing(path.display())?;
        }
        println!("{}", path.display());
        if !figure.missing.is_empty() {
            eprintln!("{name}: without {}", figure.missing.join(", "));
        }
        drawn += 1;
    }
    if cfg!(not(feature = "png")) && !args.svg_only {
        eprintln!(
            "forebay-bench: no PNGs, for this program was built without the feature `png`; `make figures` builds it with it"
        );
    }
    match drawn {
        0 => Err(Failure::new(
            "nothing to draw: the files have no results of `index`, `ring`, `pattern`, `checkpoint`, `prefetch` or `fields`",
        )),
        _ => Ok(()),
    }
}

#[cfg(feature = "png")]
fn png_renderer() -> Result<forebay_trace::plot::png::PngRenderer> {
    use forebay_trace::plot::png::{FONT, PngRenderer};
    let renderer = PngRenderer::new().ok().filter(PngRenderer::has_font);
    renderer.ok_or_else(|| {
        Failure::new(format!(
            "the font {FONT} is not installed; install the package fonts-dejavu-core (`make setup` does)"
        ))
    })
}

/// Every figure, in the order of the papers.
fn all(results: &Results) -> Vec<(&'static str, Figure)> {
    let mut figures = Vec::from(index::all(results));
    figures.push(("figure-12", ring::figure(results)));
    figures.extend(patterns::all(results));
    figures.extend(checkpoint::all(results));
    figures.extend(prefetch::all(results));
    figures.extend(fields::all(results));
    figures
}

/// Says in the caption how often was measured, and on what.
fn finish(figure: &mut Figure, cores: u32) {
    let runs = figure.panels.iter().flat_map(|p| p.runs());
    let (least, most) = runs.fold((u32::MAX, 0), |(l, m), r| (l.min(r), m.max(r)));
    let runs = match (least, most) {
        // Nothing was measured.
        (_, 0) => return,
        (1, 1) => "One run".into(),
        (l, m) if l == m => {
            format!("Medians of {m} runs, with thin lines from the least to the most")
        }
        (l, m) => format!("Medians of {l} to {m} runs, with thin lines from the least to the most"),
    };
    let plural = if cores == 1 { "" } else { "s" };
    let more = format!(" {runs}; a machine with {cores} core{plural}.");
    figure.caption = figure.caption.trim().to_string() + &more;
}
