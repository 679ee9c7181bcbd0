//! The CSV of Darshan DXT exports.
//!
//! ```text
//! rank,op,file_id,offset,length,start,end       the header, always
//! 3,write,0,50331648,16777216,0.004220,0.020995
//! ```
//!
//! `op` is `write` or `read`; offset and length in bytes (offset -1: not known); start and end in seconds, up to nine
//! decimals. File names may come from a second CSV, `file_id,record_id,basename`.

use crate::{Error, Kind, NO_OFFSET, Op, Result, Trace};
use std::io::{BufRead, Write};
use std::path::Path;

const FIELDS: [&str; 7] = ["rank", "op", "file_id", "offset", "length", "start", "end"];
const HEADER: &str = "rank,op,file_id,offset,length,start,end";

/// Reads a trace. `path` is for messages; files are named by their number (see [`read_names`]).
///
/// # Errors
/// `Io`, and `Line` for the first line that is not as it should be.
pub fn read(mut from: impl BufRead, path: &Path) -> Result<Trace> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let mut line = String::new();
    from.read_line(&mut line).map_err(io)?;
    if line.trim_end() != HEADER {
        let place = Place { path, line: 1 };
        return Err(place.error(
            0,
            line.trim_end(),
            "the header rank,op,file_id,offset,length,start,end",
        ));
    }
    let mut trace = Trace::default();
    let mut files = 0;
    for number in 2u64.. {
        line.clear();
        if from.read_line(&mut line).map_err(io)? == 0 {
            break;
        }
        let op = parse(
            line.trim_end_matches(['\n', '\r']),
            &Place { path, line: number },
        )?;
        trace.ranks = trace.ranks.max(op.rank + 1);
        files = files.max(op.file + 1);
        trace.ops.push(op);
    }
    trace.files = (0..files).map(|id| Trace::file_name(id, "")).collect();
    Ok(trace)
}

/// Reads the table of file names, and names the trace's files by it. Files that it does not name keep their number.
///
/// # Errors
/// `Io`, and `Line` as for [`read`].
pub fn read_names(from: impl BufRead, path: &Path, trace: &mut Trace) -> Result<()> {
    for (index, line) in from.lines().enumerate().skip(1) {
        let line = line.map_err(|source| Error::Io {
            path: path.to_owned(),
            source,
        })?;
        let (id, rest) = line.split_once(',').unwrap_or((&line, ""));
        let id: u32 = id.parse().map_err(|_| Error::Line {
            path: path.to_owned(),
            line: index as u64 + 1,
            column: 1,
            field: "file_id",
            found: shorten(id),
            expected: "a file number",
        })?;
        let base = rest.split_once(',').map_or("", |(_, base)| base);
        if let Some(name) = trace.files.get_mut(id as usize) {
            *name = Trace::file_name(id, base);
        }
    }
    Ok(())
}

/// Writes the trace as [`read`] reads it.
///
/// # Errors
/// Those of `to`.
pub fn write(mut to: impl Write, trace: &Trace) -> std::io::Result<()> {
    writeln!(to, "{HEADER}")?;
    for op in &trace.ops {
        let kind = match op.kind {
            Kind::Read => "read",
            Kind::Write => "write",
        };
        write!(to, "{},{kind},{},", op.rank, op.file)?;
        if op.offset == NO_OFFSET {
            write!(to, "-1")?;
        } else {
            write!(to, "{}", op.offset)?;
        }
        writeln!(to, ",{},{},{}", op.len, Seconds(op.start), Seconds(op.end))?;
    }
    to.flush()
}

/// Nanoseconds shown as seconds: six decimals, or nine where six lose something.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if nanos.is_multiple_of(1000) {
            write!(f, "{whole}.{:06}", nanos / 1000)
        } else {
            write!(f, "{whole}.{nanos:09}")
        }
    }
}

struct Place<'a> {
    path: &'a Path,
    line: u64,
}

impl Place<'_> {
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

fn parse(line: &str, place: &Place<'_>) -> Result<Op> {
    let mut fields = line.split(',');
    let mut next = |i: usize| {
        fields
            .next()
            .ok_or_else(|| place.error(i, "the end of the line", "seven fields"))
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
    let kind = match next(1)? {
        "read" => Kind::Read,
        "write" => Kind::Write,
        other => return Err(place.error(1, other, "read or write")),
    };
    let file = small(2, next(2)?, "a file number")?;
    let offset = match next(3)? {
        "-1" => NO_OFFSET,
        text => number(3, text, "an offset in bytes, or -1")?,
    };
    let len_text = next(4)?;
    let len = number(4, len_text, "a length in bytes")?;
    if offset != NO_OFFSET && offset.checked_add(len).is_none() {
        return Err(place.error(4, len_text, "an end of the call below 2^64"));
    }
    let mut time = |i: usize| {
        let text = next(i)?;
        nanos(text).ok_or_else(|| place.error(i, text, "seconds with up to nine decimals"))
    };
    let (start, end) = (time(5)?, time(6)?);
    if let Some(more) = fields.next() {
        return Err(place.error(6, &format!(",{more}"), "nothing after the seventh field"));
    }
    Ok(Op {
        rank,
        kind,
        file,
        offset,
        len,
        start,
        end,
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

    fn read_text(text: &str) -> Result<Trace> {
        read(text.as_bytes(), Path::new("t.csv"))
    }

    #[test]
    fn a_written_trace_reads_back() {
        let text = format!(
            "{HEADER}\n3,write,0,50331648,16777216,0.004220,0.020995\n0,read,1,-1,0,12.000000,12.000000001\n"
        );
        let trace = read_text(&text).unwrap();
        assert_eq!((trace.ranks, trace.files.len(), trace.ops.len()), (4, 2, 2));
        assert_eq!(
            (trace.ops[0].start, trace.ops[1].offset, trace.ops[1].end),
            (4_220_000, NO_OFFSET, 12_000_000_001)
        );
        let mut out = Vec::new();
        write(&mut out, &trace).unwrap();
        assert_eq!(
            read_text(std::str::from_utf8(&out).unwrap()).unwrap(),
            trace
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
    fn names_come_from_the_table_and_are_safe() {
        let mut trace = read_text(&format!("{HEADER}\n0,read,1,0,1,0.1,0.2\n")).unwrap();
        read_names(
            "file_id,record_id,basename\n1,99,a b/../c.h5\n7,1,x\n".as_bytes(),
            Path::new("n"),
            &mut trace,
        )
        .unwrap();
        assert_eq!(trace.files, ["00000", "00001-a_b_.._c.h5"]);
    }
}
