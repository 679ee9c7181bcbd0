//! Opening a trace file of any kind that this crate reads.

use crate::{Error, Result, Trace, csv, format};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Reads a trace: `.csv`, `.csv.zst`, or Forebay's own format (known by its first bytes).
///
/// A CSV's file names come from the table beside it, `NAME.files.csv` for `NAME.posix.csv`, if there is one.
///
/// # Errors
/// `Io`, `Line` and `Format`, as the readers say.
pub fn load(path: &Path) -> Result<Trace> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let mut file = BufReader::new(File::open(path).map_err(io)?);
    let name = path
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    if format::is_trace(file.fill_buf().map_err(io)?) {
        return format::read(file, path);
    }
    let plain = name.strip_suffix(".zst");
    let mut trace = if plain.is_some() {
        let decoder = ruzstd::decoding::StreamingDecoder::new(file)
            .map_err(|e| io(std::io::Error::other(e)))?;
        csv::read(BufReader::new(decoder), path)?
    } else {
        csv::read(file, path)?
    };
    let stem = plain.unwrap_or(&name);
    trace.name = stem.strip_suffix(".csv").unwrap_or(stem).to_owned();
    let slug = trace
        .name
        .rsplit_once('.')
        .map_or(trace.name.as_str(), |(slug, _layer)| slug);
    let names = path.with_file_name(format!("{slug}.files.csv"));
    match File::open(&names) {
        Ok(file) => csv::read_names(BufReader::new(file), &names, &mut trace)?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(source) => {
            return Err(Error::Io {
                path: names,
                source,
            });
        }
    }
    Ok(trace)
}
