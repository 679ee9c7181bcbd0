//! `forebay trace convert`: a trace of any kind in Forebay's format or as CSV.
use super::trace;
use crate::args::ConvertArgs;
use crate::files::replace;
use crate::output::{name, print_error_line};
use forebay_node::failure::Result;
use forebay_node::units::count;
use forebay_trace::{Recording, csv, format};
use std::path::Path;

/// Runs the subcommand.
///
/// # Errors
/// If the trace cannot be read or written (1).
pub fn run(args: &ConvertArgs) -> Result {
    let recording = trace::open(&args.from)?;
    write(&recording, &args.to)?;
    print_error_line(format!(
        "{}: {} calls of {} ranks",
        name(&args.to),
        count(recording.calls.len() as u64),
        recording.ranks
    ));
    Ok(())
}

/// Writes the recording: as CSV with a table of file names beside it if the name ends in `.csv`, else in Forebay's format.
///
/// # Errors
/// If a file cannot be written (1).
pub fn write(recording: &Recording, to: &Path) -> Result {
    let next = "name a file in a directory of your own";
    if to.extension().is_none_or(|e| e != "csv") {
        return replace(to, next, |file| format::write_recording(file, recording));
    }
    replace(to, next, |file| csv::write_recording(file, recording))?;
    let names = to.with_extension("files.csv");
    replace(&names, next, |file| {
        csv::write_file_names(file, &recording.files)
    })
}
