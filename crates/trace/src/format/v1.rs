//! Version 1 of the format, as it is read still. All numbers little-endian.
//!
//! ```text
//! header  0          8      10     12      16      20      24
//!        | FBTRACE0 | 1    | 0    | ranks | files | len   | text ... | crc |
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
//! A call is six varints, each the difference to the call before in the same block (to zero at its start), with the sign in
//! the lowest bit: rank * 2 + kind, file, offset, length, start, duration. A file without its end is refused.

use super::body::take_calls;
use super::{BlockReader, MAX_TEXT, u32_at, u64_at};
use crate::recording::TraceFile;
use crate::{Call, Recording, Result};
use std::io::Read;

const BLOCK_OPS: usize = 16 * 1024;
/// No call needs more: six varints.
const MAX_OP_BYTES: usize = 60;

/// Reads what follows the first 12 bytes.
pub(super) fn read(input: &mut BlockReader<'_, impl Read>, start: Vec<u8>) -> Result<Recording> {
    let mut trace = read_header(input, start)?;
    loop {
        let start = input.at;
        let head = input.take(8)?;
        let (len, count) = (u32_at(&head, 0) as usize, u32_at(&head, 4) as usize);
        if count == 0 {
            let rest = input.take(12)?;
            let crc = forebay_checksum::crc32c_append(forebay_checksum::crc32c(&head), &rest[..8]);
            if crc != u32_at(&rest, 8) {
                return Err(input.damaged(start, "the end is damaged"));
            }
            if u64_at(&rest, 0) != trace.calls.len() as u64 {
                return Err(input.damaged(start, "blocks are missing"));
            }
            return Ok(trace);
        }
        if count > BLOCK_OPS || len > BLOCK_OPS * MAX_OP_BYTES {
            return Err(input.damaged(start, "a block's length is damaged"));
        }
        let crc = input.take(4)?;
        let body = input.take(len)?;
        if forebay_checksum::crc32c(&body) != u32_at(&crc, 0) {
            return Err(input.damaged(start, "a block is damaged"));
        }
        // A read or a write has the same number as in version 2, and none failed.
        let split_head = |column| (column >> 1, column & 1, false);
        let before = trace.calls.len();
        let sound = take_calls(&body, count, split_head, &mut trace.calls);
        let sensible =
            |call: &Call| call.rank < trace.ranks && (call.file as usize) < trace.files.len();
        if sound.is_none() || !trace.calls[before..].iter().all(sensible) {
            return Err(input.senseless(start));
        }
    }
}

fn read_header(input: &mut BlockReader<'_, impl Read>, mut header: Vec<u8>) -> Result<Recording> {
    header.extend(input.take(12)?);
    let (ranks, files, len) = (
        u32_at(&header, 12),
        u32_at(&header, 16),
        u32_at(&header, 20),
    );
    if len > MAX_TEXT {
        return Err(input.damaged(20, "the header is damaged"));
    }
    header.extend(input.take(len as usize)?);
    let crc = input.take(4)?;
    let text = std::str::from_utf8(&header[24..]).ok();
    let names = text
        .and_then(|t| t.strip_suffix('\n'))
        .map(|t| t.split('\n').map(str::to_owned));
    let names: Vec<String> = names.into_iter().flatten().collect();
    if forebay_checksum::crc32c(&header) != u32_at(&crc, 0) || names.len() != files as usize + 1 {
        return Err(input.damaged(0, "the header is damaged"));
    }
    let mut names = names.into_iter();
    Ok(Recording {
        name: names.next().unwrap_or_default(),
        ranks,
        files: names.map(TraceFile::named).collect(),
        ..Recording::default()
    })
}
