//! CSV: the exports of Darshan DXT, and Forebay's own recordings, which have one field more.
//!
//! ```text
//! rank,op,file_id,offset,length,start,end            the header, always
//! 3,write,0,50331648,16777216,0.004220,0.020995
//!
//! rank,op,file_id,offset,length,start,end,error      of a recording
//! 3,open,0,32769,0,0.004100,0.004219,0
//! ```
//!
//! `op` is `write` or `read`, in a recording any name of [`Action`]; offset and length in bytes (offset -1: not known), or what
//! [`Action`] says of them (here, the flags of an `open`); start and end in seconds, up to nine decimals; error is 0 or an
//! error number. File names may come from a second CSV, `file_id,record_id,basename`.

use crate::{Action, Call, Error, NO_OFFSET, Recording, Result, TraceFile, limits};
use std::io::{BufRead, Read, Write};
use std::path::Path;

const FIELDS: [&str; 8] = [
    "rank", "op", "file_id", "offset", "length", "start", "end", "error",
];
const HEADER: &str = "rank,op,file_id,offset,length,start,end";
/// What a recording has after that.
const ERROR_FIELD: &str = ",error";
/// Longest line, bytes: a name of 4096 bytes and the numbers before it are far shorter.
const LONGEST_LINE: usize = 65_536;
const NAMES: &str = "file_id,record_id,basename";

/// Reads all calls of a trace; its files have no names (see [`read_file_names`]). `path` is for messages.
///
/// # Errors
/// `Io`, and `Line` for the first line that is not as it should be.
pub fn read_recording(mut from: impl BufRead, path: &Path) -> Result<Recording> {
    let mut line = String::new();
    read_line(&mut from, &mut line, &FieldPlace { path, line: 1 })?;
    let header = line.trim_end();
    let all = header.strip_suffix(ERROR_FIELD) == Some(HEADER);
    if header != HEADER && !all {
        let place = FieldPlace { path, line: 1 };
        return Err(place.error(
            0,
            header,
            "the header rank,op,file_id,offset,length,start,end (and ,error of a recording)",
        ));
    }
    let mut recording = Recording::default();
    let mut files = 0;
    for number in 2u64.. {
        let place = FieldPlace { path, line: number };
        if !read_line(&mut from, &mut line, &place)? {
            break;
        }
        limits::more_calls(recording.calls.len(), 1, path)?;
        let call = parse(line.trim_end_matches(['\n', '\r']), all, &place)?;
        recording.ranks = recording.ranks.max(call.rank + 1);
        files = files.max(call.file + 1);
        recording.calls.push(call);
    }
    limits::numbered("ranks", recording.ranks, recording.calls.len(), path)?;
    limits::numbered("files", files, recording.calls.len(), path)?;
    recording.files = vec![TraceFile::default(); files as usize];
    Ok(recording)
}

/// The next line in place of the last one, with its end; false if there is none.
fn read_line(from: &mut impl BufRead, line: &mut String, place: &FieldPlace<'_>) -> Result<bool> {
    line.clear();
    let read = from.by_ref().take(LONGEST_LINE as u64 + 1).read_line(line);
    let read = read.map_err(Error::io(place.path))?;
    match read > LONGEST_LINE {
        false => Ok(read > 0),
        true => {
            let what = format!("line {} is longer than 65,536 bytes", place.line);
            Err(Error::limit(place.path, what))
        }
    }
}

/// Reads the table of file names as they are. Files that it does not name stay as they are; others that it names do not matter.
///
/// # Errors
/// As for [`read_recording`].
pub fn read_file_names(mut from: impl BufRead, path: &Path, files: &mut [TraceFile]) -> Result<()> {
    let mut text = String::new();
    for number in 1u64.. {
        let place = FieldPlace { path, line: number };
        if !read_line(&mut from, &mut text, &place)? {
            break;
        }
        if number == 1 {
            continue;
        }
        let line = text.trim_end_matches('\n');
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (id, rest) = line.split_once(',').unwrap_or((line, ""));
        let id: u32 = id.parse().map_err(|_| Error::Line {
            path: path.to_owned(),
            line: number,
            column: 1,
            field: "file_id",
            found: shorten(id),
            expected: "a file number",
        })?;
        if let Some(file) = files.get_mut(id as usize) {
            file.path = rest.split_once(',').map_or("", |(_, base)| base).to_owned();
        }
    }
    Ok(())
}

/// Writes the table of file names as [`read_file_names`] reads it. A line end in a name becomes a question mark.
///
/// # Errors
/// Those of `to`.
pub fn write_file_names(mut to: impl Write, files: &[TraceFile]) -> std::io::Result<()> {
    writeln!(to, "{NAMES}")?;
    for (id, TraceFile { inode, path }) in files.iter().enumerate() {
        writeln!(to, "{id},{inode},{}", path.replace(['\n', '\r'], "?"))?;
    }
    to.flush()
}

/// Writes the recording as [`read_recording`] reads it.
///
/// # Errors
/// Those of `to`.
pub fn write_recording(mut to: impl Write, recording: &Recording) -> std::io::Result<()> {
    writeln!(to, "{HEADER}{ERROR_FIELD}")?;
    for call in &recording.calls {
        write!(to, "{},{},{},", call.rank, call.action.name(), call.file)?;
        match call.offset {
            NO_OFFSET => write!(to, "-1")?,
            offset => write!(to, "{offset}")?,
        }
        let (start, end) = (ShownSeconds(call.start), ShownSeconds(call.end));
        writeln!(to, ",{},{start},{end},{}", call.len, call.error)?;
    }
    to.flush()
}

/// Nanoseconds shown as seconds: six decimals, or nine where six lose something.
struct ShownSeconds(u64);

impl std::fmt::Display for ShownSeconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if nanos.is_multiple_of(1000) {
            write!(f, "{whole}.{:06}", nanos / 1000)
        } else {
            write!(f, "{whole}.{nanos:09}")
        }
    }
}

struct FieldPlace<'a> {
    path: &'a Path,
    line: u64,
}

impl FieldPlace<'_> {
    fn error(&self, field: usize, found: &str, expected: &'static str) -> Error {
        Error::Line {
            path: self.path.to_owned(),
            line: self.line,
            column: field + 1,
            field: FIELDS[field],
            found: shorten(found),
            expected,
        }
    }
}

fn shorten(found: &str) -> String {
    found.chars().take(40).collect()
}

/// One line; `all` if it may be any action, with an error after it.
fn parse(line: &str, all: bool, place: &FieldPlace<'_>) -> Result<Call> {
    let count = if all { "eight fields" } else { "seven fields" };
    let mut fields = line.split(',');
    let mut next = |i: usize| {
        fields
            .next()
            .ok_or_else(|| place.error(i, "the end of the line", count))
    };
    let number = |i: usize, text: &str, expected| {
        text.parse::<u64>()
            .map_err(|_| place.error(i, text, expected))
    };
    let small = |i: usize, text: &str, expected| match text.parse::<u32>() {
        // One less than the limit, so that counts fit as well.
        Ok(n) if n < u32::MAX => Ok(n),
        _ => Err(place.error(i, text, expected)),
    };
    let rank = small(0, next(0)?, "a rank number")?;
    let action = match (next(1)?, all) {
        ("read", _) => Action::Read,
        ("write", _) => Action::Write,
        (other, true) => Action::from_name(other)
            .ok_or_else(|| place.error(1, other, "read, write, open or another operation"))?,
        (other, false) => return Err(place.error(1, other, "read or write")),
    };
    let file = small(2, next(2)?, "a file number")?;
    let offset = match next(3)? {
        "-1" => NO_OFFSET,
        text => number(3, text, "an offset in bytes, or -1")?,
    };
    let len_text = next(4)?;
    let len = number(4, len_text, "a length in bytes")?;
    let data = matches!(
        action,
        Action::Read | Action::Write | Action::Copy | Action::CopyTo
    );
    if data && offset != NO_OFFSET && offset.checked_add(len).is_none() {
        return Err(place.error(4, len_text, "an end of the call below 2^64"));
    }
    let mut time = |i: usize| {
        let text = next(i)?;
        nanos(text).ok_or_else(|| place.error(i, text, "seconds with up to nine decimals"))
    };
    let (start, end) = (time(5)?, time(6)?);
    let error = match all {
        true => small(7, next(7)?, "0 or an error number")?,
        false => 0,
    };
    if let Some(more) = fields.next() {
        let (last, expected) = match all {
            true => (7, "nothing after the eighth field"),
            false => (6, "nothing after the seventh field"),
        };
        return Err(place.error(last, &format!(",{more}"), expected));
    }
    Ok(Call {
        rank,
        action,
        file,
        offset,
        len,
        start,
        end,
        error,
    })
}

fn nanos(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(9 - part.len() as u32);
    let nanos = part.parse::<u64>().ok()? * scale;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trace;

    fn read_text(text: &str) -> Result<Recording> {
        read_recording(text.as_bytes(), Path::new("t.csv"))
    }

    #[test]
    fn a_written_trace_reads_back() {
        let text = format!(
            "{HEADER}\n3,write,0,50331648,16777216,0.004220,0.020995\n0,read,1,-1,0,12.000000,12.000000001\n"
        );
        let recording = read_text(&text).unwrap();
        let trace = recording.trace();
        assert_eq!((trace.ranks, trace.files.len(), trace.ops.len()), (4, 2, 2));
        assert_eq!(
            (trace.ops[0].start, trace.ops[1].offset, trace.ops[1].end),
            (4_220_000, NO_OFFSET, 12_000_000_001)
        );
        let mut out = Vec::new();
        write_recording(&mut out, &recording).unwrap();
        assert_eq!(
            read_text(std::str::from_utf8(&out).unwrap()).unwrap(),
            recording
        );
    }

    #[test]
    fn a_malformed_line_is_named_with_field_and_expectation() {
        let cases = [
            ("x,write,0,0,1,0.1,0.2", "field 1 (rank)", "a rank number"),
            ("0,append,0,0,1,0.1,0.2", "field 2 (op)", "read or write"),
            (
                "0,write,-3,0,1,0.1,0.2",
                "field 3 (file_id)",
                "a file number",
            ),
            ("0,write,0,1e3,1,0.1,0.2", "field 4 (offset)", "an offset"),
            ("0,write,0,0,,0.1,0.2", "field 5 (length)", "a length"),
            (
                "0,write,0,18446744073709551000,9999,0.1,0.2",
                "field 5 (length)",
                "below 2^64",
            ),
            ("0,write,0,0,1,soon,0.2", "field 6 (start)", "seconds"),
            ("0,write,0,0,1,0.1", "field 7 (end)", "seven fields"),
            ("0,write,0,0,1,0.1,0.2,9", "field 7 (end)", "nothing after"),
            ("", "field 1 (rank)", "a rank number"),
        ];
        for (line, field, expected) in cases {
            let text = format!("{HEADER}\n0,read,0,0,1,0.1,0.2\n{line}\n");
            let error = read_text(&text).unwrap_err().to_string();
            assert!(error.starts_with("t.csv: line 3, "), "{error}");
            assert!(error.contains(field) && error.contains(expected), "{error}");
        }
        let error = read_text("rank;op\n").unwrap_err().to_string();
        assert!(
            error.contains("line 1") && error.contains("the header"),
            "{error}"
        );
    }

    #[test]
    fn a_recording_reads_back_with_every_operation_and_error() {
        let text = format!(
            "{HEADER}{ERROR_FIELD}\n2,open,1,32769,0,0.000001,0.000002,0\n2,unlink,0,0,0,0.5,0.6,2\n2,read,1,7,9,0.700000,0.800000001,0\n"
        );
        let recording = read_recording(text.as_bytes(), Path::new("t.csv")).unwrap();
        let seen: Vec<_> = recording
            .calls
            .iter()
            .map(|c| (c.action, c.error))
            .collect();
        assert_eq!(
            seen,
            [(Action::Open, 0), (Action::Unlink, 2), (Action::Read, 0)]
        );
        let mut out = Vec::new();
        write_recording(&mut out, &recording).unwrap();
        assert_eq!(
            read_recording(&out[..], Path::new("t.csv")).unwrap(),
            recording
        );
        for (line, word) in [
            ("0,chop,0,0,0,0,0,0", "another operation"),
            ("0,open,0,0,0,0,0", "eight fields"),
            ("0,open,0,0,0,0,0,x", "error number"),
            ("0,open,0,0,0,0,0,0,0", "eighth field"),
        ] {
            let text = format!("{HEADER}{ERROR_FIELD}\n{line}\n");
            let error = read_text(&text).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("line 2"), "{error}");
        }
        let mut names = Vec::new();
        write_file_names(&mut names, &["a,b/c", "d\ne"].map(TraceFile::named)).unwrap();
        let mut files = vec![TraceFile::default(); 2];
        read_file_names(&names[..], Path::new("n"), &mut files).unwrap();
        assert_eq!(files, ["a,b/c", "d?e"].map(TraceFile::named));
    }

    #[test]
    fn names_come_from_the_table_and_are_safe() {
        let mut files = vec![TraceFile::default(); 2];
        let table = "file_id,record_id,basename\n1,99,a b/../c.h5\n7,1,x\n";
        read_file_names(table.as_bytes(), Path::new("n"), &mut files).unwrap();
        let names = (0..)
            .zip(&files)
            .map(|(id, f)| Trace::file_name(id, &f.path));
        assert_eq!(names.collect::<Vec<_>>(), ["00000", "00001-a_b_.._c.h5"]);
    }
}
