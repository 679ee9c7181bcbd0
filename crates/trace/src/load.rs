//! Opening a trace file of any kind that this crate reads.

use crate::{Error, Recording, Result, Trace, csv, format, limits};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Reads the reads and writes of a trace that is whole; else as [`open`].
///
/// # Errors
/// `Io`, `Line` and `Format`, as the readers say; `Format` also for a trace that was cut off.
pub fn load(path: &Path) -> Result<Trace> {
    let recording = open(path)?;
    match recording.loss {
        None => Ok(recording.trace()),
        Some(loss) => Err(Error::Format {
            path: path.to_owned(),
            offset: loss.at,
            reason: format!("{loss}; `forebay trace convert` keeps what is whole"),
        }),
    }
}

/// Reads a trace with all its calls: `.csv`, `.csv.zst`, or Forebay's own format (known by its first bytes). One in
/// Forebay's format that was cut off is read as far as it is whole: see [`Recording::loss`].
///
/// A CSV's file names come from the table beside it, `NAME.files.csv` for `NAME.posix.csv` or `NAME.csv`, if there is one.
///
/// # Errors
/// `Io`, `Line`, `Format` and `Limit`, as the readers say.
pub fn open(path: &Path) -> Result<Recording> {
    let io = Error::io(path);
    let mut file = BufReader::new(File::open(path).map_err(&io)?);
    let name = path
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    if format::is_trace(file.fill_buf().map_err(&io)?) {
        let recording = format::recover(file, path)?;
        limits::numbered("ranks", recording.ranks, recording.calls.len(), path)?;
        return Ok(recording);
    }
    let plain = name.strip_suffix(".zst");
    let mut trace = if plain.is_some() {
        let decoder = ruzstd::decoding::StreamingDecoder::new(file)
            .map_err(|e| io(std::io::Error::other(e)))?;
        csv::read_recording(BufReader::new(decoder), path)?
    } else {
        csv::read_recording(file, path)?
    };
    let stem = plain.unwrap_or(&name);
    trace.name = stem.strip_suffix(".csv").unwrap_or(stem).to_owned();
    let slug = trace
        .name
        .rsplit_once('.')
        .map_or(trace.name.as_str(), |(slug, _layer)| slug);
    for stem in [trace.name.clone(), slug.to_owned()] {
        let names = path.with_file_name(format!("{stem}.files.csv"));
        match File::open(&names) {
            Ok(file) => {
                csv::read_file_names(BufReader::new(file), &names, &mut trace.files)?;
                break;
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io(&names)(e)),
        }
    }
    Ok(trace)
}
