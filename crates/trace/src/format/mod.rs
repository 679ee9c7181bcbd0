//! Forebay's own trace format: a header, blocks, an end. All numbers little-endian.
//!
//! ```text
//! header  0          8     10    12      20      24     28
//!        | FBTRACE0 | 2   | 0   | begun | ranks | len  | name ... | crc |
//!          magic      u16   u16   u64     u32     u32    len bytes  u32
//!        begun: nanoseconds since 1970, 0 if not known    ranks: number of ranks, 0 if not known in advance
//!        crc: CRC32C of everything before it
//!
//! block   0      1         4       8       12         16         20
//!        | kind | 0, 0, 0 | len   | count | body crc | head crc | body ... |
//!          u8               u32     u32     u32        u32        len bytes
//!        body crc: CRC32C of the body    head crc: CRC32C of the 16 bytes before it
//!
//! kind 1  files        count of: number, inode (0: not known), length, path
//! kind 2  processes    count of: rank, pid, thread, world rank + 1 (0: none), length, host, length, program
//! kind 3  calls        count of: six differences, and the error number of a failed call
//! kind 4  end          count 1: number of all calls (u64); nothing follows
//! ```
//!
//! Numbers in bodies are varints (7 bits a byte, low bits first). The six differences of a call are against the call before
//! in the same block (to zero at its start), with the sign in the lowest bit: rank * 64 + failed * 32 + action, file, offset,
//! length, start, duration. Differences wrap, so that every value fits. Strided and repeated calls need about 10 bytes.
//!
//! A block names files and processes before a later block's calls use them, so that a recorder can write while the program
//! runs. It does not know the number of ranks in advance, and writes calls of different threads as they come: where the
//! header has no number of ranks, the reader counts them, and sorts the calls by their start.
//!
//! Two sums a block tell damage from a cut: a length that is not whole is damage, and reported; a block that ends early under
//! a sound head was cut off. [`recover`] then gives what is whole and says what is missing.
//!
//! Version 1 (reads and writes only, names in the header) is read, and not written any more.

mod body;
#[cfg(test)]
mod tests;
mod v1;
mod writer;

pub(crate) use body::put_difference;
pub use writer::Writer;

use crate::recording::{Recording, TraceFile, TruncatedEnd};
use crate::{Call, Error, Result, Trace, limits};
use std::io::{Read, Write};
use std::path::Path;

const MAGIC: [u8; 8] = *b"FBTRACE0";
const VERSION: u16 = 2;
/// Most calls in a block.
pub(crate) const BLOCK_CALLS: usize = 16 * 1024;
/// No body is longer.
const MAX_BODY: usize = 8 << 20;
/// Names may not need more.
const MAX_TEXT: u32 = 1 << 30;

const FILES: u8 = 1;
const PROCESSES: u8 = 2;
const CALLS: u8 = 3;
const END: u8 = 4;
const BLOCK_HEAD_BYTES: usize = 20;

/// Whether a file that starts with these bytes is in this format.
pub fn is_trace(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
}

/// Writes the trace as [`recover`] reads it.
///
/// # Errors
/// Those of `to`; `InvalidInput` if a name is too long.
pub fn write(to: impl Write, trace: &Trace) -> std::io::Result<()> {
    let mut writer = Writer::new(to, &trace.name, 0, trace.ranks)?;
    let files: Vec<TraceFile> = trace.files.iter().map(TraceFile::named).collect();
    writer.files((0..).zip(&files))?;
    for ops in trace.ops.chunks(BLOCK_CALLS) {
        writer.calls(&ops.iter().map(Call::from).collect::<Vec<_>>())?;
    }
    writer.finish().map(|_| ())
}

/// Writes the recording as [`recover`] reads it.
///
/// # Errors
/// As for [`write`](write()).
pub fn write_recording(to: impl Write, recording: &Recording) -> std::io::Result<()> {
    let mut writer = Writer::new(to, &recording.name, recording.begun, recording.ranks)?;
    writer.files((0..).zip(&recording.files))?;
    writer.processes(recording.processes.iter().map(|(rank, p)| (*rank, p)))?;
    writer.calls(&recording.calls)?;
    writer.finish().map(|_| ())
}

/// Reads all calls of a trace. One that was cut off after its header is read as far as it is whole,
/// and says so in [`Recording::loss`]. `path` is for messages.
///
/// # Errors
/// `Io`, and `Format` for the first thing that is damaged or of another version.
pub fn recover(from: impl Read, path: &Path) -> Result<Recording> {
    let mut input = BlockReader { from, path, at: 0 };
    let start = input.take(12)?;
    if !is_trace(&start) {
        return Err(input.error(0, "this is no Forebay trace"));
    }
    match u16::from_le_bytes([start[8], start[9]]) {
        1 => v1::read(&mut input, start),
        VERSION => read_blocks(&mut input, start),
        version => {
            let reason = format!(
                "version {version}, this program reads 1 to {VERSION}; use the Forebay that wrote it"
            );
            Err(input.error(8, &reason))
        }
    }
}

fn read_blocks(input: &mut BlockReader<'_, impl Read>, start: Vec<u8>) -> Result<Recording> {
    let mut recording = read_header(input, start)?;
    let known_ranks = recording.ranks;
    loop {
        let at = input.at;
        let (head, body) = match read_block(input)? {
            Some(block) => block,
            None => {
                recording.loss = Some(TruncatedEnd {
                    at,
                    bytes: input.at - at,
                    calls: recording.calls.len() as u64,
                });
                break;
            }
        };
        let count = u32_at(&head, 8) as usize;
        let before = recording.calls.len();
        let sound = match head[0] {
            FILES => body::take_files(&body, count, &mut recording.files),
            PROCESSES => body::take_processes(&body, count, &mut recording.processes),
            CALLS => {
                limits::more_calls(before, count, input.path)?;
                body::take_calls(&body, count, body::split_head, &mut recording.calls)
            }
            END => {
                let total = (body.len() == 8).then(|| u64_at(&body, 0));
                if total != Some(recording.calls.len() as u64) {
                    return Err(input.damaged(at, "blocks are missing"));
                }
                if input.take_some(1)?.len() == 1 {
                    return Err(input.damaged(input.at - 1, "something follows the end"));
                }
                break;
            }
            _ => None,
        };
        let sensible = |call: &Call| {
            (call.file as usize) < recording.files.len()
                && (known_ranks == 0 || call.rank < known_ranks)
        };
        if sound.is_none() || !recording.calls[before..].iter().all(sensible) {
            return Err(input.senseless(at));
        }
    }
    if known_ranks == 0 {
        let ranks = recording.calls.iter().map(|call| call.rank + 1);
        recording.ranks = ranks.max().unwrap_or(0);
        // Stable: calls of one rank that start together stay as they are.
        recording.calls.sort_by_key(|call| call.start);
    }
    Ok(recording)
}

fn read_header(input: &mut BlockReader<'_, impl Read>, mut header: Vec<u8>) -> Result<Recording> {
    header.extend(input.take(16)?);
    let len = u32_at(&header, 24);
    if len > MAX_TEXT {
        return Err(input.damaged(24, "the header is damaged"));
    }
    header.extend(input.take(len as usize)?);
    let crc = input.take(4)?;
    let name = std::str::from_utf8(&header[28..]).ok();
    match name {
        Some(name) if forebay_checksum::crc32c(&header) == u32_at(&crc, 0) => Ok(Recording {
            name: name.to_owned(),
            begun: u64_at(&header, 12),
            ranks: u32_at(&header, 20),
            ..Recording::default()
        }),
        _ => Err(input.damaged(0, "the header is damaged")),
    }
}

/// A block's head and body; `None` if the file ends before it does.
fn read_block(input: &mut BlockReader<'_, impl Read>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let at = input.at;
    let head = input.take_some(BLOCK_HEAD_BYTES)?;
    if head.len() < BLOCK_HEAD_BYTES {
        return Ok(None);
    }
    let len = u32_at(&head, 4) as usize;
    if forebay_checksum::crc32c(&head[..16]) != u32_at(&head, 16) || len > MAX_BODY {
        return Err(input.damaged(at, "the head of a block is damaged"));
    }
    let body = input.take_some(len)?;
    if body.len() < len {
        return Ok(None);
    }
    if forebay_checksum::crc32c(&body) != u32_at(&head, 12) {
        return Err(input.damaged(at, "a block is damaged"));
    }
    Ok(Some((head, body)))
}

struct BlockReader<'a, R> {
    from: R,
    path: &'a Path,
    at: u64,
}

impl<R: Read> BlockReader<'_, R> {
    /// Exactly `len` bytes.
    fn take(&mut self, len: usize) -> Result<Vec<u8>> {
        let bytes = self.take_some(len)?;
        if bytes.len() < len {
            return Err(self.damaged(self.at, "the file is cut short"));
        }
        Ok(bytes)
    }

    /// `len` bytes, or fewer at the file's end.
    fn take_some(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let got = (&mut self.from).take(len as u64).read_to_end(&mut bytes);
        let got = got.map_err(Error::io(self.path))?;
        self.at += got as u64;
        Ok(bytes)
    }

    /// The file is not as it was written.
    fn damaged(&self, offset: u64, what: &str) -> Error {
        self.error(offset, &format!("{what}; take another copy of the file"))
    }

    /// A block's checksum is right, but not what it says.
    fn senseless(&self, offset: u64) -> Error {
        let reason = "a block makes no sense although its checksum is right; write it again";
        self.error(offset, reason)
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

/// The eight bytes at `at`, likewise.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
