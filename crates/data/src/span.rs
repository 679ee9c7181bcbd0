//! A span: where bytes of a log lie, and their checksums. One record of `keyspaces::SPANS` each.
//!
//! The bytes of a span were written by one call to one segment file. They are cut into **pieces** at multiples of
//! 4 KiB *of the log address* (and at the start of the span), and each piece has a CRC32C. Checksums are
//! stored in the span record, not beside the segment. A span may be freed in parts. What is left keeps whole pieces, because only a whole piece can
//! be verified, and says exactly which addresses are live.
//!
//! ```text
//! key    0  8  log                                  u64 big-endian
//!        8  8  live end: address after the last live byte, big-endian; so the first key above
//!              (log, addr) is the only span that can hold addr
//!
//! value  0  1  version = 1
//!        1  3  zero
//!        4  4  segment file                         u32 little-endian, as all below
//!        8  4  offset of the first stored byte in the segment
//!       12  4  n, number of pieces
//!       16  8  live start: address of the first live byte
//!       24  8  stored start: address of the first stored byte
//!       32  8  stored end: address after the last stored byte
//!       40 4n  CRC32C of every piece
//! ```
//! The store's own checksums cover keys and values.
//!
//! Invariants: `stored.start <= live.start < live.end <= stored.end`; the first and the last piece hold a live byte;
//! spans of one log never overlap.
use crate::keyspaces::SPANS;
use crate::segment::SegmentRange;
use bytes::Bytes;
use forebay_proto::{Error, LogId, Result};
use forebay_storage::{Batch, Store};
use std::ops::{Bound, Range};

/// Pieces are cut at multiples of this many bytes of log address.
pub const PIECE_BYTES: u64 = 4096;
const VERSION: u8 = 1;
/// Bytes of a value before the checksums.
const VALUE_HEAD: usize = 40;

/// One span, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The log it is a part of.
    pub log: LogId,
    /// Addresses that may be read.
    pub live: Range<u64>,
    /// Addresses whose bytes the segment holds: whole pieces.
    pub stored: Range<u64>,
    /// The segment file.
    pub segment: u32,
    /// Where `stored.start` lies in the segment, bytes.
    pub offset: u32,
    /// CRC32C of every piece.
    pub crcs: Box<[u32]>,
}

impl Span {
    /// The span of `bytes` at `addr`, all live; computes the checksums. `bytes` is not empty.
    pub fn of(log: LogId, addr: u64, bytes: &[u8], segment: u32, offset: u32) -> Span {
        let range = addr..addr + bytes.len() as u64;
        Span {
            log,
            live: range.clone(),
            stored: range,
            segment,
            offset,
            crcs: checksums(addr, bytes),
        }
    }

    /// Number of the piece that holds `addr`.
    pub fn piece_of(&self, addr: u64) -> usize {
        (addr / PIECE_BYTES - self.stored.start / PIECE_BYTES) as usize
    }

    /// Addresses of piece `i`.
    pub fn piece(&self, i: usize) -> Range<u64> {
        let first = (self.stored.start / PIECE_BYTES + i as u64) * PIECE_BYTES;
        first.max(self.stored.start)..(first + PIECE_BYTES).min(self.stored.end)
    }

    /// Where the byte of `addr` lies in the segment.
    pub fn segment_offset(&self, addr: u64) -> u64 {
        u64::from(self.offset) + (addr - self.stored.start)
    }

    /// Stored bytes.
    pub fn stored_len(&self) -> u64 {
        self.stored.end - self.stored.start
    }

    /// Live bytes.
    pub fn live_len(&self) -> u64 {
        self.live.end - self.live.start
    }

    /// The span that is left if only `live` stays (not empty, inside `self.live`): the pieces that hold it.
    pub fn part(&self, live: Range<u64>) -> Span {
        let (first, last) = (self.piece_of(live.start), self.piece_of(live.end - 1));
        let stored = self.piece(first).start..self.piece(last).end;
        Span {
            log: self.log,
            offset: self.segment_offset(stored.start) as u32,
            segment: self.segment,
            crcs: self.crcs[first..=last].into(),
            live,
            stored,
        }
    }

    /// The stored bytes in their segment.
    pub(crate) fn segment_range(&self) -> SegmentRange {
        let start = u64::from(self.offset);
        SegmentRange {
            segment: self.segment,
            start,
            end: start + self.stored_len(),
        }
    }

    /// What a decoded span costs in memory, bytes.
    pub fn memory(&self) -> usize {
        160 + 4 * self.crcs.len()
    }

    /// Its key in the store.
    pub fn key(&self) -> [u8; 16] {
        key(self.log, self.live.end)
    }

    /// Its value in the store.
    pub fn value(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(VALUE_HEAD + 4 * self.crcs.len());
        v.extend_from_slice(&[VERSION, 0, 0, 0]);
        v.extend_from_slice(&self.segment.to_le_bytes());
        v.extend_from_slice(&self.offset.to_le_bytes());
        v.extend_from_slice(&(self.crcs.len() as u32).to_le_bytes());
        for addr in [self.live.start, self.stored.start, self.stored.end] {
            v.extend_from_slice(&addr.to_le_bytes());
        }
        for crc in &self.crcs {
            v.extend_from_slice(&crc.to_le_bytes());
        }
        v
    }

    /// Adds the record to a batch.
    pub fn put(&self, batch: &mut Batch) {
        batch.put(SPANS, self.key().to_vec(), self.value());
    }

    /// Reads one record.
    ///
    /// # Errors
    /// `Corrupt` if the record breaks an invariant of this module, or is of another version.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Span> {
        let bad = |what: &str| {
            Error::Corrupt(format!(
                "span record {key:02x?}: {what}; run `forebay fsck`"
            ))
        };
        let u32_at = |at: usize| Some(u32::from_le_bytes(*value.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*value.get(at..)?.first_chunk()?));
        let (log, end) = split_key(key).ok_or_else(|| bad("key of a wrong length"))?;
        if value.first() != Some(&VERSION) {
            return Err(bad("unknown version"));
        }
        let (Some(segment), Some(offset), Some(n), Some(live), Some(start), Some(stored_end)) = (
            u32_at(4),
            u32_at(8),
            u32_at(12),
            u64_at(16),
            u64_at(24),
            u64_at(32),
        ) else {
            return Err(bad("cut short"));
        };
        if !(start <= live && live < end && end <= stored_end) {
            return Err(bad("addresses out of order"));
        }
        let pieces = (stored_end - 1) / PIECE_BYTES - start / PIECE_BYTES + 1;
        if u64::from(n) != pieces || value.len() != VALUE_HEAD + 4 * n as usize {
            return Err(bad("wrong number of pieces"));
        }
        let crcs = value[VALUE_HEAD..]
            .chunks_exact(4)
            .map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]))
            .collect();
        Ok(Span {
            log,
            live: live..end,
            stored: start..stored_end,
            segment,
            offset,
            crcs,
        })
    }
}

/// CRC32C of every piece of `bytes`, which lie at `addr`.
pub fn checksums(addr: u64, bytes: &[u8]) -> Box<[u32]> {
    let first = ((PIECE_BYTES - addr % PIECE_BYTES) as usize).min(bytes.len());
    let rest = bytes[first..].chunks(PIECE_BYTES as usize);
    std::iter::once(&bytes[..first])
        .filter(|b| !b.is_empty())
        .chain(rest)
        .map(crc32c::crc32c)
        .collect()
}

/// The key of the span of `log` whose live part ends at `end`.
pub fn key(log: LogId, end: u64) -> [u8; 16] {
    let mut k = [0; 16];
    k[..8].copy_from_slice(&log.to_be_bytes());
    k[8..].copy_from_slice(&end.to_be_bytes());
    k
}

/// Log and live end of the span whose record has this key. `None`: too short for one.
pub fn split_key(key: &[u8]) -> Option<(LogId, u64)> {
    let (log, end) = (
        key.get(..8)?.try_into().ok()?,
        key.get(8..)?.try_into().ok()?,
    );
    Some((u64::from_be_bytes(log), u64::from_be_bytes(end)))
}

/// The span that holds `addr`, if it is live.
///
/// # Errors
/// As the store, and `Corrupt` for a broken record.
pub fn find(store: &Store, log: LogId, addr: u64) -> Result<Option<Span>> {
    overlapping(store, log, addr..addr.saturating_add(1))
        .next()
        .transpose()
}

/// Spans with live bytes in `range`, in address order.
pub fn overlapping(
    store: &Store,
    log: LogId,
    range: Range<u64>,
) -> impl Iterator<Item = Result<Span>> {
    let (from, to) = (key(log, range.start), key(log, u64::MAX));
    store
        .scan(SPANS, Bound::Excluded(&from), Bound::Included(&to))
        .map(of_entry)
        .take_while(move |s| s.as_ref().map_or(true, |s| s.live.start < range.end))
}

/// Every span of the store.
pub fn all(store: &Store) -> impl Iterator<Item = Result<Span>> {
    store
        .scan(SPANS, Bound::Unbounded, Bound::Unbounded)
        .map(of_entry)
}

fn of_entry(entry: forebay_storage::Result<(Bytes, Bytes)>) -> Result<Span> {
    let (key, value) = entry?;
    Span::decode(&key, &value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_span_reads_back_and_its_parts_keep_their_pieces(
            addr in 0u64..20_000, len in 1usize..20_000, a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>(),
        ) {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
            let span = Span::of(7, addr, &bytes, 3, 4096);
            prop_assert_eq!(&Span::decode(&span.key(), &span.value()).unwrap(), &span);
            let (a, b) = (a.index(len) as u64, b.index(len) as u64);
            let live = addr + a.min(b)..addr + a.max(b) + 1;
            let part = span.part(live.clone());
            prop_assert_eq!(&part.live, &live);
            prop_assert_eq!(&Span::decode(&part.key(), &part.value()).unwrap(), &part);
            for i in 0..part.crcs.len() {
                let p = part.piece(i);
                let bytes = &bytes[(p.start - addr) as usize..(p.end - addr) as usize];
                prop_assert_eq!(crc32c::crc32c(bytes), part.crcs[i]);
                prop_assert_eq!(part.segment_offset(p.start), span.segment_offset(p.start));
            }
        }

        #[test]
        fn a_damaged_record_is_refused_or_whole(at in 0usize..64, bit in 0u8..8, cut in 0usize..64) {
            let span = Span::of(7, 100, &[1; 9000], 3, 4096);
            let mut value = span.value();
            value.truncate(cut.max(1));
            prop_assert!(cut >= span.value().len() || Span::decode(&span.key(), &value).is_err());
            let mut value = span.value();
            let at = at % value.len();
            value[at] ^= 1 << bit;
            if let Ok(s) = Span::decode(&span.key(), &value) {
                prop_assert!(s.stored.start <= s.live.start && s.live.end <= s.stored.end);
                let _ = s.piece(s.piece_of(s.live.end - 1));
            }
        }
    }
}
