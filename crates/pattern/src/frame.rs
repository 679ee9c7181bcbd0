//! The frame of everything that is encoded here.
//!
//! ```text
//!  | kind * 16 + version | length | ...  | checksum |
//!  | 1 byte              | varint |      | 4 bytes  |
//! ```
//!
//! - *kind* 0 is a [segment](crate::segment), 1 a [global pattern](crate::global_codec); *version* is 1.
//! - *length* counts the bytes after it. Frames of every version begin so: a reader steps over what it does not know.
//! - *checksum*: CRC-32C of all before it, little-endian.

use crate::{Error, Result};
use forebay_codec::varint;

const VERSION: u8 = 1;

pub(crate) const SEGMENT: u8 = 0;
pub(crate) const GLOBAL: u8 = 1;

/// Appends a frame around `inside`.
pub(crate) fn put(out: &mut Vec<u8>, kind: u8, inside: &[u8]) {
    let start = out.len();
    out.push(kind << 4 | VERSION);
    varint::put(out, inside.len() as u64 + 4);
    out.extend_from_slice(inside);
    let sum = forebay_checksum::crc32c(&out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Takes a frame off the start of `bytes`, which is `at` bytes after the start of all: its kind, and what is inside.
///
/// After an error `bytes` stands after the frame if its length could be read, else at its end.
pub(crate) fn take<'a>(bytes: &mut &'a [u8], at: usize) -> Result<(u8, &'a [u8])> {
    let whole = *bytes;
    *bytes = &[];
    let short = |need: usize| Error::Short {
        at,
        have: whole.len(),
        need,
    };
    let Some((&first, mut rest)) = whole.split_first() else {
        return Err(short(1));
    };
    let length = varint::take(&mut rest).ok_or_else(|| short(whole.len() + 1))?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let head = whole.len() - rest.len();
    let Some((framed, after)) = rest.split_at_checked(length) else {
        return Err(short(head.saturating_add(length)));
    };
    *bytes = after;
    let (kind, version) = (first >> 4, first & 15);
    if version > VERSION || kind > GLOBAL {
        let known = GLOBAL << 4 | VERSION;
        return Err(Error::Newer {
            at,
            version: first,
            known,
        });
    }
    let Some((inside, sum)) = framed.split_last_chunk::<4>() else {
        return Err(short(head + 4));
    };
    let expected = u32::from_le_bytes(*sum);
    let found = forebay_checksum::crc32c(&whole[..head + inside.len()]);
    if expected != found {
        return Err(Error::Checksum {
            at,
            expected,
            found,
        });
    }
    if version != VERSION {
        let what = "there is no such version";
        return Err(Error::Malformed { at, what });
    }
    Ok((kind, inside))
}
