//! The durable records of a file's patterns, byte by byte. Numbers are big-endian, so that records of one file lie together, segments
//! in the order of their commits.
//!
//! ```text
//! key      | fid 8 | kind 1 | seq 8 | number 4 |
//! segment  | 1 | first byte 8 | byte after the last 8 | crc 4 | a frame of forebay_pattern ...
//! hidden   | 1 | bytes 8 | crc 4 |
//! hole     | 1 | first byte 8 | byte after the last 8 | crc 4 |
//! merged   | 1 | segments 8 | crc 4 | frames of forebay_pattern ...
//! ```
//!
//! - *kind* is 0 for a segment, 1 for hidden, 2 for a hole, 3 for merged; *seq* is the commit of a segment, and the newest commit that a hole
//!   takes bytes of; *number* tells records of one commit apart.
//! - The *frame* has a version and a checksum of its own. The bounds before it have another one: so it is known which bytes of
//!   the file a damaged segment may have held.
//! - *hidden* has the key of its segment, and says how many bytes of it newer changes have displaced; none: there is no such record.
//! - *merged* is what readers of a laminated file get: its segments, with their number, joined over logs. It only saves
//!   the work of joining them, so one that is damaged or does not fit is passed over; the next change of the file deletes
//!   it.
//! - *crc*: CRC-32C of all before it in the value.
use crate::{Error, Fid, Result};
use bytes::Bytes;
use forebay_pattern::Segment;

const VERSION: u8 = 1;

pub(super) const SEGMENT: u8 = 0;
pub(super) const HIDDEN: u8 = 1;
pub(super) const HOLE: u8 = 2;
pub(super) const MERGED: u8 = 3;

/// Names a record of a file: the commit, and which of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PatternId {
    pub seq: u64,
    pub number: u32,
}

impl PatternId {
    pub(super) fn key(self, fid: Fid, kind: u8) -> Bytes {
        let mut key = Vec::with_capacity(21);
        key.extend(fid.0.to_be_bytes());
        key.push(kind);
        key.extend(self.seq.to_be_bytes());
        key.extend(self.number.to_be_bytes());
        key.into()
    }

    /// Kind and name from a key.
    pub(super) fn of(key: &[u8]) -> Option<(u8, PatternId)> {
        let (_, rest) = key.split_first_chunk::<8>()?;
        let (kind, rest) = rest.split_first()?;
        let (seq, number) = rest.split_first_chunk::<8>()?;
        let id = PatternId {
            seq: u64::from_be_bytes(*seq),
            number: u32::from_be_bytes(number.try_into().ok()?),
        };
        Some((*kind, id))
    }
}

fn framed(numbers: &[u64]) -> Vec<u8> {
    let mut value = vec![VERSION];
    numbers.iter().for_each(|n| value.extend(n.to_be_bytes()));
    value.extend(forebay_checksum::crc32c(&value).to_be_bytes());
    value
}

/// The numbers, and what is after them.
fn take<const N: usize>(value: &[u8]) -> Result<([u64; N], &[u8]), String> {
    let head = 1 + 8 * N;
    let short = || format!("{} bytes, at least {} expected", value.len(), head + 4);
    match value.first() {
        Some(&VERSION) => {}
        Some(version) => {
            return Err(format!(
                "version {version}, this program knows {VERSION}; use the newer Forebay that wrote it"
            ));
        }
        None => return Err(short()),
    }
    let (numbers, rest) = value.split_at_checked(head).ok_or_else(short)?;
    let (crc, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (expected, found) = (u32::from_be_bytes(*crc), forebay_checksum::crc32c(numbers));
    if expected != found {
        return Err(format!("checksum {found:08x}, expected {expected:08x}"));
    }
    let mut out = [0; N];
    for (n, bytes) in out.iter_mut().zip(numbers[1..].as_chunks::<8>().0) {
        *n = u64::from_be_bytes(*bytes);
    }
    Ok((out, rest))
}

/// Of an encoded segment that holds bytes from `lo` to before `hi`.
pub(super) fn segment_value((lo, hi): (u64, u64), frame: &[u8]) -> Bytes {
    let mut value = framed(&[lo, hi]);
    value.extend_from_slice(frame);
    value.into()
}

/// Bounds, and the frame.
pub(super) fn segment_of(value: &[u8]) -> Result<((u64, u64), &[u8]), String> {
    let ([lo, hi], frame) = take(value)?;
    Ok(((lo, hi), frame))
}

pub(super) fn hidden_value(bytes: u64) -> Bytes {
    framed(&[bytes]).into()
}

pub(super) fn hidden_of(value: &[u8]) -> Result<u64, String> {
    let ([bytes], rest) = take(value)?;
    ended(rest).map(|()| bytes)
}

pub(super) fn hole_value(start: u64, end: u64) -> Bytes {
    framed(&[start, end]).into()
}

pub(super) fn hole_of(value: &[u8]) -> Result<(u64, u64), String> {
    let ([start, end], rest) = take(value)?;
    ended(rest).map(|()| (start, end))
}

pub(super) fn merged_value(segments: u64, frames: &[u8]) -> Bytes {
    let mut value = framed(&[segments]);
    value.extend_from_slice(frames);
    value.into()
}

/// How many segments, and the frames.
pub(super) fn merged_of(value: &[u8]) -> Result<(u64, &[u8]), String> {
    let ([segments], frames) = take(value)?;
    Ok((segments, frames))
}

fn ended(rest: &[u8]) -> Result<(), String> {
    match rest.len() {
        0 => Ok(()),
        more => Err(format!("{more} bytes too long")),
    }
}

/// How many extents a record of `keys::PATTERNS` stands for. `None`: it is no segment, or cannot be read.
pub(crate) fn extents_of(key: &[u8], value: &[u8]) -> Option<u64> {
    let (kind, _) = PatternId::of(key)?;
    if kind != SEGMENT {
        return None;
    }
    let (_, mut frame) = segment_of(value).ok()?;
    let segment = Segment::decode(&mut frame, 0).ok()?;
    Some(segment.pattern.elements())
}

/// What a record that cannot be read is called in errors and in the log.
pub(in super::super) fn lost(fid: Fid, key: &[u8], why: &str) -> Error {
    let name = match PatternId::of(key) {
        Some((kind, id)) => {
            let kind = match kind {
                SEGMENT => "pattern",
                HIDDEN => "count of displaced bytes",
                HOLE => "hole",
                MERGED => "merged patterns",
                _ => "record of an unknown kind",
            };
            format!("{kind} {} of commit {}", id.number, id.seq)
        }
        None => "pattern record with a wrong key".into(),
    };
    Error::Corrupt(format!("file {:#x}: {name}: {why}", fid.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_back(fid: u64, kind: u8, seq: u64, number: u32, a: u64, b: u64, frame: Vec<u8>) {
            let id = PatternId { seq, number };
            let key = id.key(Fid(fid), kind);
            prop_assert_eq!((PatternId::of(&key), keys::fid_of(&key)), (Some((kind, id)), Some(Fid(fid))));
            let segment = segment_value((a, b), &frame);
            prop_assert_eq!(segment_of(&segment), Ok(((a, b), &frame[..])));
            prop_assert_eq!(hidden_of(&hidden_value(a)), Ok(a));
            prop_assert_eq!(hole_of(&hole_value(a, b)), Ok((a, b)));
            let merged = merged_value(a, &frame);
            prop_assert_eq!(merged_of(&merged), Ok((a, &frame[..])));
        }

        #[test]
        fn damage_is_seen(a: u64, b: u64, at in 0usize..21, bit in 0u8..8) {
            let mut value = hole_value(a, b).to_vec();
            value[at] ^= 1 << bit;
            prop_assert!(hole_of(&value).is_err());
            prop_assert!(segment_of(&value).is_err());
        }

        #[test]
        fn no_bytes_make_a_reader_panic(bytes: Vec<u8>) {
            let _ = (PatternId::of(&bytes), segment_of(&bytes), hidden_of(&bytes), hole_of(&bytes), merged_of(&bytes));
            let _ = lost(Fid(1), &bytes, "");
        }
    }
}
