//! Forebay's own trace format: a header, blocks of calls, an end. All numbers little-endian.
//!
//! ```text
//! header  0          8      10     12      16      20      24
//!        | FBTRACE0 | v    | 0    | ranks | files | len   | text ... | crc |
//!          magic      u16    u16    u32     u32     u32     len bytes  u32
//!        text: the trace's name, then the files' names, each ended by a line feed
//!        crc:  CRC32C of everything before it
//!
//! block   0       4       8     12
//!        | len   | count | crc | calls ... |      count > 0; crc: CRC32C of the calls
//!          u32     u32     u32   len bytes
//!
//! end     0       4       8       16
//!        | 0     | 0     | total | crc |          a block of no calls: number of all calls, CRC32C of these 16 bytes
//!          u32     u32     u64     u32
//! ```
//!
//! A call is six varints (7 bits a byte, low bits first), each the difference to the call before in the same block
//! (to zero at its start), with the sign in the lowest bit: rank * 2 + kind, file, offset, length, start, duration.
//! Differences wrap, so that every value fits. Strided and repeated calls need about 10 bytes. A file without its end
//! was cut off, and is refused.

use crate::{Error, Kind, Op, Result, Trace};
use std::io::{Read, Write};
use std::path::Path;

const MAGIC: [u8; 8] = *b"FBTRACE0";
const VERSION: u16 = 1;
const BLOCK_OPS: usize = 16 * 1024;
/// No call needs more: six varints.
const MAX_OP_BYTES: usize = 60;
/// Names may not need more.
const MAX_TEXT: u32 = 1 << 30;

/// Whether a file that starts with these bytes is in this format.
pub fn is_trace(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
}

/// Writes the trace as [`read`] reads it.
///
/// # Errors
/// Those of `to`; `InvalidInput` if a name has a line feed.
pub fn write(mut to: impl Write, trace: &Trace) -> std::io::Result<()> {
    let invalid = |why: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
    let mut text = String::new();
    for name in std::iter::once(&trace.name).chain(&trace.files) {
        if name.contains('\n') {
            return Err(invalid("a name in the trace has a line feed"));
        }
        text.push_str(name);
        text.push('\n');
    }
    let len = u32::try_from(text.len()).ok().filter(|l| *l <= MAX_TEXT);
    let len = len.ok_or_else(|| invalid("the names in the trace are too long"))?;
    let mut header = Vec::from(MAGIC);
    header.extend(VERSION.to_le_bytes());
    header.extend([0; 2]);
    header.extend(trace.ranks.to_le_bytes());
    header.extend((trace.files.len() as u32).to_le_bytes());
    header.extend(len.to_le_bytes());
    header.extend(text.as_bytes());
    header.extend(crc32c::crc32c(&header).to_le_bytes());
    to.write_all(&header)?;
    for ops in trace.ops.chunks(BLOCK_OPS) {
        let body = encode(ops);
        to.write_all(&(body.len() as u32).to_le_bytes())?;
        to.write_all(&(ops.len() as u32).to_le_bytes())?;
        to.write_all(&crc32c::crc32c(&body).to_le_bytes())?;
        to.write_all(&body)?;
    }
    let mut end = vec![0; 8];
    end.extend((trace.ops.len() as u64).to_le_bytes());
    end.extend(crc32c::crc32c(&end).to_le_bytes());
    to.write_all(&end)?;
    to.flush()
}

/// Reads a trace. `path` is for messages.
///
/// # Errors
/// `Io`, and `Format` for the first thing that is damaged, missing, or of another version.
pub fn read(from: impl Read, path: &Path) -> Result<Trace> {
    let mut input = Input { from, path, at: 0 };
    let mut trace = read_header(&mut input)?;
    loop {
        let start = input.at;
        let head = input.take(8)?;
        let (len, count) = (u32_at(&head, 0) as usize, u32_at(&head, 4) as usize);
        if count == 0 {
            let rest = input.take(12)?;
            let crc = crc32c::crc32c_append(crc32c::crc32c(&head), &rest[..8]);
            if crc != u32_at(&rest, 8) {
                return Err(input.error(start, "the end is damaged; take another copy of the file"));
            }
            let total = u64::from(u32_at(&rest, 0)) | u64::from(u32_at(&rest, 4)) << 32;
            if total != trace.ops.len() as u64 {
                return Err(input.error(start, "blocks are missing; take another copy of the file"));
            }
            return Ok(trace);
        }
        if count > BLOCK_OPS || len > BLOCK_OPS * MAX_OP_BYTES {
            return Err(input.error(
                start,
                "a block's length is damaged; take another copy of the file",
            ));
        }
        let crc = input.take(4)?;
        let body = input.take(len)?;
        if crc32c::crc32c(&body) != u32_at(&crc, 0) {
            return Err(input.error(start, "a block is damaged; take another copy of the file"));
        }
        let ops = decode(&body, count).filter(|ops| {
            ops.iter()
                .all(|op| op.rank < trace.ranks && (op.file as usize) < trace.files.len())
        });
        let Some(ops) = ops else {
            return Err(input.error(
                start,
                "a block makes no sense although its checksum is right; write it again",
            ));
        };
        trace.ops.extend(ops);
    }
}

fn read_header(input: &mut Input<'_, impl Read>) -> Result<Trace> {
    let mut header = input.take(24)?;
    if !is_trace(&header) {
        return Err(input.error(0, "this is no Forebay trace"));
    }
    let version = u32_at(&header, 8) & 0xffff;
    if version != u32::from(VERSION) {
        let reason = format!(
            "version {version}, this program reads {VERSION}; use the Forebay that wrote it"
        );
        return Err(input.error(8, &reason));
    }
    let (ranks, files, len) = (
        u32_at(&header, 12),
        u32_at(&header, 16),
        u32_at(&header, 20),
    );
    if len > MAX_TEXT {
        return Err(input.error(20, "the header is damaged; take another copy of the file"));
    }
    header.extend(input.take(len as usize)?);
    let crc = input.take(4)?;
    let text = std::str::from_utf8(&header[24..]).ok();
    let names = text
        .and_then(|t| t.strip_suffix('\n'))
        .map(|t| t.split('\n').map(str::to_owned));
    let names: Vec<String> = names.into_iter().flatten().collect();
    if crc32c::crc32c(&header) != u32_at(&crc, 0) || names.len() != files as usize + 1 {
        return Err(input.error(0, "the header is damaged; take another copy of the file"));
    }
    let mut names = names.into_iter();
    Ok(Trace {
        name: names.next().unwrap_or_default(),
        ranks,
        files: names.collect(),
        ops: Vec::new(),
    })
}

struct Input<'a, R> {
    from: R,
    path: &'a Path,
    at: u64,
}

impl<R: Read> Input<'_, R> {
    fn take(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let got = (&mut self.from).take(len as u64).read_to_end(&mut bytes);
        let got = got.map_err(|source| Error::Io {
            path: self.path.to_owned(),
            source,
        })?;
        self.at += got as u64;
        if got < len {
            return Err(self.error(self.at, "the file is cut short; take another copy of it"));
        }
        Ok(bytes)
    }

    fn error(&self, offset: u64, reason: &str) -> Error {
        Error::Format {
            path: self.path.to_owned(),
            offset,
            reason: reason.to_owned(),
        }
    }
}

/// The four bytes at `at`, which are there by construction.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4]
        .iter()
        .rev()
        .fold(0, |n, b| n << 8 | u32::from(*b))
}

fn columns(op: &Op) -> [u64; 6] {
    let kind = u64::from(op.kind == Kind::Write);
    let rank = u64::from(op.rank) * 2 + kind;
    [
        rank,
        u64::from(op.file),
        op.offset,
        op.len,
        op.start,
        op.end.wrapping_sub(op.start),
    ]
}

fn encode(ops: &[Op]) -> Vec<u8> {
    let mut out = Vec::with_capacity(ops.len() * 12);
    let mut before = [0u64; 6];
    for op in ops {
        let now = columns(op);
        for (now, before) in now.iter().zip(&before) {
            let difference = now.wrapping_sub(*before) as i64;
            let mut n = (difference << 1 ^ difference >> 63) as u64;
            while n >= 0x80 {
                out.push(n as u8 | 0x80);
                n >>= 7;
            }
            out.push(n as u8);
        }
        before = now;
    }
    out
}

/// `None` if the bytes are not exactly `count` calls.
fn decode(mut bytes: &[u8], count: usize) -> Option<Vec<Op>> {
    let mut ops = Vec::with_capacity(count);
    let mut now = [0u64; 6];
    for _ in 0..count {
        for column in &mut now {
            let n = take_varint(&mut bytes)?;
            let difference = (n >> 1) as i64 ^ -((n & 1) as i64);
            *column = column.wrapping_add(difference as u64);
        }
        let kind = if now[0] & 1 == 1 {
            Kind::Write
        } else {
            Kind::Read
        };
        ops.push(Op {
            rank: u32::try_from(now[0] >> 1).ok()?,
            kind,
            file: u32::try_from(now[1]).ok()?,
            offset: now[2],
            len: now[3],
            start: now[4],
            end: now[4].wrapping_add(now[5]),
        });
    }
    bytes.is_empty().then_some(ops)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn op() -> impl Strategy<Value = Op> {
        let kind = prop_oneof![Just(Kind::Read), Just(Kind::Write)];
        (
            0..9u32,
            kind,
            0..3u32,
            any::<u64>(),
            any::<u64>(),
            any::<u64>(),
            any::<u64>(),
        )
            .prop_map(|(rank, kind, file, offset, len, start, end)| Op {
                rank,
                kind,
                file,
                offset,
                len,
                start,
                end,
            })
    }

    fn bytes_of(trace: &Trace) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, trace).unwrap();
        out
    }

    fn trace_of(ops: Vec<Op>) -> Trace {
        Trace {
            name: "näme".into(),
            ranks: 9,
            files: vec!["a".into(), String::new(), "c".into()],
            ops,
        }
    }

    proptest! {
        #[test]
        fn a_trace_survives(ops in prop::collection::vec(op(), 0..50)) {
            let trace = trace_of(ops);
            prop_assert_eq!(read(&bytes_of(&trace)[..], Path::new("t")).unwrap(), trace);
        }

        #[test]
        fn damage_is_noticed(ops in prop::collection::vec(op(), 1..20), at: prop::sample::Index, flip in 1..=255u8) {
            let whole = bytes_of(&trace_of(ops));
            let mut bad = whole.clone();
            let at = at.index(bad.len());
            bad[at] ^= flip;
            prop_assert!(read(&bad[..], Path::new("t")).is_err(), "byte {}", at);
            prop_assert!(read(&whole[..at], Path::new("t")).is_err(), "cut at {}", at);
        }
    }

    /// These bytes are in users' files: if this fails, the version must go up and the old one stay readable.
    #[test]
    fn the_layout_is_that_of_version_1() {
        let op = Op {
            rank: 2,
            kind: Kind::Write,
            file: 1,
            offset: 300,
            len: 64,
            start: 1,
            end: 3,
        };
        let trace = Trace {
            name: "t".into(),
            ranks: 3,
            files: vec!["a".into(), "b".into()],
            ops: vec![op],
        };
        let mut expected = b"FBTRACE0\x01\0\0\0\x03\0\0\0\x02\0\0\0\x06\0\0\0t\na\nb\n".to_vec();
        expected.extend(crc32c::crc32c(&expected).to_le_bytes());
        let calls = [10, 2, 0xd8, 4, 0x80, 1, 2, 4];
        expected.extend([calls.len() as u8, 0, 0, 0, 1, 0, 0, 0]);
        expected.extend(crc32c::crc32c(&calls).to_le_bytes());
        expected.extend(calls);
        let end = [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        expected.extend(end);
        expected.extend(crc32c::crc32c(&end).to_le_bytes());
        assert_eq!(bytes_of(&trace), expected);
    }

    #[test]
    fn many_blocks_and_few_bytes() {
        let op = |i: u64| Op {
            rank: (i % 8) as u32,
            kind: Kind::Write,
            file: 0,
            offset: i * 4096,
            len: 4096,
            start: i * 1000,
            end: i * 1000 + 500,
        };
        let trace = trace_of((0..40_000).map(op).collect());
        let bytes = bytes_of(&trace);
        assert!(bytes.len() < 40_000 * 10, "{}", bytes.len());
        assert_eq!(read(&bytes[..], Path::new("t")).unwrap(), trace);
    }
}
