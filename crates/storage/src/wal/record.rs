//! One record of a log: a header with its own checksum, then the payload.
//!
//! ```text
//!  0        4        8                16               24       28            28+n
//!  +--------+--------+----------------+----------------+--------+-------------+------+
//!  | head   | length | sequence       | synced         | body   | payload     | pad  |
//!  | crc u32| n  u32 | u64            | u64            | crc u32| n bytes     | to 8 |
//!  +--------+--------+----------------+----------------+--------+-------------+------+
//! ```
//! All integers little-endian.
//! - `head crc`: CRC32C of the log's number (u64) and header bytes 4..28. The number makes a record
//!   valid in its own file only. A header checksum of its own lets a reader find the next whole
//!   record after damage without trusting a damaged length.
//! - `sequence`: the number of the batch, which rises by one from record to record, across files: a missing record is noticed.
//! - `synced`: every batch up to this number was on disk when this record was written. It tells
//!   loss that a crash may cause (never synced) from damage (once synced, now gone).
//! - `body crc`: CRC32C of the payload.
//! - A record with an empty payload is a *seal*: it only carries `synced`, and repeats the
//!   `sequence` of the record before it.
//!
//! Records start at multiples of 8. Zeros to the end of the file are its clean end (preallocation).
use crate::bit_correction::{self, FlippedBit};
use crate::encoding::{u32_at, u64_at};

/// Bytes of a record's header.
pub const HEADER: usize = 28;
/// Longest payload.
pub const MAX_PAYLOAD: usize = 1 << 30;
/// Bytes of a seal.
pub const SEAL_BYTES: usize = 32;

/// Appends one record to `out`; `fill` writes the payload.
pub fn write(
    out: &mut Vec<u8>,
    log: u64,
    sequence: u64,
    synced: u64,
    fill: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.resize(start + HEADER, 0);
    fill(out);
    let length = out.len() - start - HEADER;
    debug_assert!(length <= MAX_PAYLOAD);
    let body = forebay_checksum::crc32c(&out[start + HEADER..]);
    let head = &mut out[start..start + HEADER];
    head[4..8].copy_from_slice(&(length as u32).to_le_bytes());
    head[8..16].copy_from_slice(&sequence.to_le_bytes());
    head[16..24].copy_from_slice(&synced.to_le_bytes());
    head[24..28].copy_from_slice(&body.to_le_bytes());
    let sum = head_sum(log, &head[4..]);
    head[..4].copy_from_slice(&sum.to_le_bytes());
    out.resize(start + padded(length), 0);
}

/// Bytes that a record with a payload of `length` takes in the file.
pub fn padded(length: usize) -> usize {
    (HEADER + length).next_multiple_of(8)
}

/// Where the payload of the record at `at` ends, if its header is whole; that may be after the file's end.
pub fn end(bytes: &[u8], log: u64, at: usize) -> Option<usize> {
    let head = bytes.get(at..at + HEADER)?;
    let whole = u32_at(head, 0) == head_sum(log, &head[4..]);
    whole.then(|| at + HEADER + u32_at(head, 4) as usize)
}

/// Puts one flipped bit of the record at `at` right, if that makes it whole; which byte of the file that is, and which bit of it. What
/// the record says is to be checked by the caller.
pub fn correct(bytes: &mut [u8], log: u64, at: usize) -> Option<(usize, u8)> {
    let head = bytes.get(at..)?.get(..HEADER)?;
    let (expected, found) = (u32_at(head, 0), head_sum(log, &head[4..]));
    let (byte, mask) = if expected != found {
        match bit_correction::flipped_bit(HEADER - 4, expected, found)? {
            FlippedBit::InBlock { byte, mask } => (at + 4 + byte, mask),
            FlippedBit::InChecksum { mask } => {
                let byte = mask.trailing_zeros() / 8;
                (at + byte as usize, (mask >> (8 * byte)) as u8)
            }
        }
    } else {
        let payload = bytes.get(at + HEADER..end(bytes, log, at)?)?;
        let (expected, found) = (u32_at(head, 24), forebay_checksum::crc32c(payload));
        match bit_correction::flipped_bit(payload.len(), expected, found)? {
            FlippedBit::InBlock { byte, mask } => (at + HEADER + byte, mask),
            // It is whole, for the header is.
            FlippedBit::InChecksum { .. } => return None,
        }
    };
    bytes[byte] ^= mask;
    let whole = Records::new(bytes, log, at).parse(at).is_ok();
    if !whole {
        bytes[byte] ^= mask;
    }
    whole.then_some((byte, mask))
}

/// A record as found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it starts in the file, in bytes.
    pub offset: usize,
    /// Its number.
    pub sequence: u64,
    /// Records up to here were on disk when it was written.
    pub synced: u64,
    /// What it says; empty for a seal.
    pub payload: &'a [u8],
}

/// What stands at some place of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordStep<'a> {
    /// A whole record.
    Record(Record<'a>),
    /// No record, but bytes: a torn write or damage. The checksums tell which failed.
    Damage {
        /// Where, in bytes.
        offset: usize,
        /// The checksum that the file states.
        expected: u32,
        /// The checksum of the bytes there.
        found: u32,
    },
}

/// Reads the records of one log file in order, stepping over damage to the next whole record.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    bytes: &'a [u8],
    log: u64,
    at: usize,
}

impl<'a> Records<'a> {
    /// Starts at byte `from`, a multiple of 8 (after the file's header).
    pub fn new(bytes: &'a [u8], log: u64, from: usize) -> Records<'a> {
        Records {
            bytes,
            log,
            at: from,
        }
    }

    /// Where the next record would start.
    pub fn offset(&self) -> usize {
        self.at
    }

    fn parse(&self, at: usize) -> Result<(Record<'a>, usize), (u32, u32)> {
        let rest = &self.bytes[at..];
        if rest.len() < HEADER {
            return Err((0, forebay_checksum::crc32c(rest)));
        }
        let (expected, found) = (u32_at(rest, 0), head_sum(self.log, &rest[4..HEADER]));
        if expected != found {
            return Err((expected, found));
        }
        let length = u32_at(rest, 4) as usize;
        let expected = u32_at(rest, 24);
        let Some(payload) = rest.get(HEADER..HEADER + length) else {
            return Err((expected, 0));
        };
        let found = forebay_checksum::crc32c(payload);
        if expected != found {
            return Err((expected, found));
        }
        let record = Record {
            offset: at,
            sequence: u64_at(rest, 8),
            synced: u64_at(rest, 16),
            payload,
        };
        Ok((record, at + padded(length)))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordStep<'a>;

    fn next(&mut self) -> Option<RecordStep<'a>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let offset = self.at;
        match self.parse(offset) {
            Ok((record, next)) => {
                self.at = next;
                Some(RecordStep::Record(record))
            }
            Err((expected, found)) => {
                if self.bytes[offset..].iter().all(|b| *b == 0) {
                    self.at = self.bytes.len();
                    return None;
                }
                let next = (offset + 8..self.bytes.len())
                    .step_by(8)
                    .find(|at| self.parse(*at).is_ok());
                self.at = next.unwrap_or(self.bytes.len());
                Some(RecordStep::Damage {
                    offset,
                    expected,
                    found,
                })
            }
        }
    }
}

fn head_sum(log: u64, rest: &[u8]) -> u32 {
    forebay_checksum::crc32c_append(forebay_checksum::crc32c(&log.to_le_bytes()), rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn log_of(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let (mut out, mut starts) = (Vec::new(), Vec::new());
        for (i, p) in payloads.iter().enumerate() {
            starts.push(out.len());
            write(&mut out, 9, i as u64 + 1, i as u64, |o| {
                o.extend_from_slice(p)
            });
        }
        (out, starts)
    }

    proptest! {
        #[test]
        fn records_come_back(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 0..8),
            zeros in 0usize..100,
        ) {
            let (mut bytes, starts) = log_of(&payloads);
            bytes.resize(bytes.len() + zeros, 0);
            let found: Vec<_> = Records::new(&bytes, 9, 0).collect();
            prop_assert_eq!(found.len(), payloads.len());
            for (i, step) in found.iter().enumerate() {
                let want = Record { offset: starts[i], sequence: i as u64 + 1, synced: i as u64, payload: &payloads[i] };
                prop_assert_eq!(step, &RecordStep::Record(want));
            }
            let strange = Records::new(&bytes, 8, 0).any(|s| matches!(s, RecordStep::Record(_)));
            prop_assert!(!strange, "records are valid in their own file only");
        }

        #[test]
        fn one_flipped_bit_costs_exactly_its_record(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 1..8),
            at in any::<proptest::sample::Index>(), bit in 0u8..8,
        ) {
            let (mut bytes, starts) = log_of(&payloads);
            let at = at.index(bytes.len());
            let hit = starts.iter().rposition(|s| *s <= at).unwrap();
            let in_padding = at >= starts[hit] + HEADER + payloads[hit].len();
            bytes[at] ^= 1 << bit;
            let whole: Vec<u64> = Records::new(&bytes, 9, 0)
                .filter_map(|s| match s { RecordStep::Record(r) => Some(r.sequence), RecordStep::Damage { .. } => None })
                .collect();
            let want: Vec<u64> = (0..payloads.len()).filter(|i| in_padding || *i != hit).map(|i| i as u64 + 1).collect();
            prop_assert_eq!(whole, want);
        }

        #[test]
        fn one_flipped_bit_is_put_right(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..600), 1..8),
            at in any::<proptest::sample::Index>(), bit in 0u8..8,
        ) {
            let (whole, starts) = log_of(&payloads);
            let at = at.index(whole.len());
            let hit = starts.iter().rposition(|s| *s <= at).unwrap();
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let in_padding = at >= starts[hit] + HEADER + payloads[hit].len();
            prop_assert_eq!(correct(&mut bytes, 9, starts[hit]), (!in_padding).then_some((at, 1 << bit)));
            prop_assert!(in_padding || bytes == whole);
        }

        #[test]
        fn a_record_that_was_cut_is_left_alone(payload in proptest::collection::vec(any::<u8>(), 1..600), cut in any::<proptest::sample::Index>()) {
            let (whole, _) = log_of(&[payload]);
            let cut = cut.index(whole.len());
            let mut bytes = whole.clone();
            bytes[cut..].fill(0);
            let flips: u32 = bytes.iter().zip(&whole).map(|(a, b)| (a ^ b).count_ones()).sum();
            prop_assume!(flips > 1);
            let before = bytes.clone();
            prop_assert_eq!(correct(&mut bytes, 9, 0), None);
            prop_assert_eq!(bytes, before);
        }

        #[test]
        fn a_cut_file_keeps_its_whole_records(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 1..8),
            cut in any::<proptest::sample::Index>(),
        ) {
            let (bytes, starts) = log_of(&payloads);
            let cut = cut.index(bytes.len());
            let whole = Records::new(&bytes[..cut], 9, 0).filter(|s| matches!(s, RecordStep::Record(_))).count();
            let want = (0..payloads.len()).filter(|i| starts[*i] + HEADER + payloads[*i].len() <= cut).count();
            prop_assert_eq!(whole, want);
        }
    }
}
