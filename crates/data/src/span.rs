//! A span: where bytes of a log lie. One record of `keyspaces::SPANS` each.
//!
//! A span is **raw** when it is written: its bytes are as they were appended, in one segment ([`RawBytes`]). Settling makes it
//! **mapped**: its bytes are parts of containers, which other spans may name too, or zeros ([`SpanRuns`]). A span may be freed in
//! parts. What is left of a raw one keeps whole pieces, because only a whole piece can be verified, and says exactly which
//! addresses are live; what is left of a mapped one names exactly these.
//!
//! ```text
//! key    0  8  log                                  u64 big-endian
//!        8  8  live end: address after the last live byte, big-endian; so the first key above
//!              (log, addr) is the only span that can hold addr
//!
//! value  0  1  version = 2
//!        1  1  kind: 0 raw, 1 mapped
//!        2  2  of a raw span its hint (`hint`), u16 little-endian; else zero
//!        4  8  live start: address of the first live byte, u64 little-endian
//!       12     raw bytes (`raw`), or runs (`runs`)
//! ```
//! The store's own checksums cover keys and values. Version 1 knew raw bytes only.
//!
//! Invariants: `live` is not empty; of raw bytes it is inside what is stored, and the first and the last piece hold a live byte;
//! runs are as long as it; spans of one log never overlap.
pub mod hint;
pub mod raw;
pub mod runs;

pub use hint::StoredHint;
pub use raw::{PIECE_BYTES, RawBytes, checksums};
pub use runs::{Run, RunSource, SpanRuns};

use crate::keyspaces::SPANS;
use crate::record_cache::CachedRecord;
use bytes::Bytes;
use forebay_proto::{Error, LogId, Result};
use forebay_storage::{Batch, Store};
use std::ops::{Bound, Range};

const VERSION: u8 = 2;
const RAW: u8 = 0;
const MAPPED: u8 = 1;
/// Bytes of a value before what its kind has.
const VALUE_HEAD: usize = 12;

/// Where a span has its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanBytes {
    /// As they were appended.
    Raw(RawBytes),
    /// In containers.
    Mapped(SpanRuns),
}

/// One span, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The log it is a part of.
    pub log: LogId,
    /// Addresses that may be read.
    pub live: Range<u64>,
    /// Where their bytes are.
    pub bytes: SpanBytes,
}

impl Span {
    /// The raw span of `bytes` at `addr`, all live; computes the checksums. `bytes` is not empty.
    pub fn of(log: LogId, addr: u64, bytes: &[u8], segment: u32, offset: u32) -> Span {
        let range = addr..addr + bytes.len() as u64;
        Span {
            log,
            live: range.clone(),
            bytes: SpanBytes::Raw(RawBytes {
                log,
                stored: range,
                segment,
                offset,
                crcs: checksums(addr, bytes),
                hint: StoredHint::default(),
            }),
        }
    }

    /// The same with this hint, if it is raw.
    pub fn with_hint(mut self, hint: StoredHint) -> Span {
        if let SpanBytes::Raw(raw) = &mut self.bytes {
            raw.hint = hint;
        }
        self
    }

    /// A span whose bytes are in containers, from `addr` on.
    pub fn mapped(log: LogId, addr: u64, runs: SpanRuns) -> Span {
        Span {
            log,
            live: addr..addr + runs.bytes(),
            bytes: SpanBytes::Mapped(runs),
        }
    }

    /// The raw bytes, unless it is mapped.
    pub fn raw(&self) -> Option<&RawBytes> {
        match &self.bytes {
            SpanBytes::Raw(raw) => Some(raw),
            SpanBytes::Mapped(_) => None,
        }
    }

    /// The runs, unless it is raw.
    pub fn runs(&self) -> Option<&SpanRuns> {
        match &self.bytes {
            SpanBytes::Raw(_) => None,
            SpanBytes::Mapped(runs) => Some(runs),
        }
    }

    /// Bytes that count for it alone in a segment; those in containers count there.
    pub fn stored_len(&self) -> u64 {
        self.raw().map_or(0, RawBytes::stored_len)
    }

    /// Live bytes.
    pub fn live_len(&self) -> u64 {
        self.live.end - self.live.start
    }

    /// The span that is left if only `live` stays (not empty, inside `self.live`).
    pub fn part(&self, live: Range<u64>) -> Span {
        let bytes = match &self.bytes {
            SpanBytes::Raw(raw) => SpanBytes::Raw(raw.part(&live)),
            SpanBytes::Mapped(runs) => {
                let start = self.live.start;
                let within = runs.within(live.start - start..live.end - start);
                SpanBytes::Mapped(within.collect())
            }
        };
        Span {
            log: self.log,
            live,
            bytes,
        }
    }

    /// Its key in the store.
    pub fn key(&self) -> [u8; 16] {
        key(self.log, self.live.end)
    }

    /// Its value in the store.
    pub fn value(&self) -> Vec<u8> {
        let kind = match &self.bytes {
            SpanBytes::Raw(_) => RAW,
            SpanBytes::Mapped(_) => MAPPED,
        };
        let [low, high] = self.raw().map_or(0, |raw| raw.hint.0).to_le_bytes();
        let mut v = vec![VERSION, kind, low, high];
        v.extend_from_slice(&self.live.start.to_le_bytes());
        match &self.bytes {
            SpanBytes::Raw(raw) => raw.encode(&mut v),
            SpanBytes::Mapped(runs) => runs.encode(&mut v),
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
            let which = match split_key(key) {
                Some((log, end)) => format!("the span of log {log} that ends at address {end}"),
                None => format!("span record {key:02x?}"),
            };
            Error::Corrupt(format!("{which}: {what}; run `forebay fsck`"))
        };
        let (log, end) = split_key(key).ok_or_else(|| bad("key of a wrong length"))?;
        if value.first() != Some(&VERSION) {
            return Err(bad("unknown version"));
        }
        let head = value.get(4..VALUE_HEAD).and_then(|v| v.first_chunk());
        let start = u64::from_le_bytes(*head.ok_or_else(|| bad("cut short"))?);
        let live = start..end;
        if live.is_empty() {
            return Err(bad("addresses out of order"));
        }
        let rest = &value[VALUE_HEAD..];
        let hint = StoredHint(u16::from_le_bytes([value[2], value[3]]));
        let bytes = match value[1] {
            RAW => RawBytes::decode(log, &live, hint, rest).map(SpanBytes::Raw),
            MAPPED => SpanRuns::decode(end - start, rest).map(SpanBytes::Mapped),
            _ => Err("unknown kind"),
        };
        Ok(Span {
            log,
            live,
            bytes: bytes.map_err(bad)?,
        })
    }
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
    all_from(store, (0, 0))
}

/// Every span of the store with live bytes at this log and address or behind it.
pub fn all_from(store: &Store, from: (LogId, u64)) -> impl Iterator<Item = Result<Span>> {
    let from = key(from.0, from.1);
    store
        .scan(SPANS, Bound::Excluded(&from), Bound::Unbounded)
        .map(of_entry)
}

fn of_entry(entry: forebay_storage::Result<(Bytes, Bytes)>) -> Result<Span> {
    let (key, value) = entry?;
    Span::decode(&key, &value)
}

impl CachedRecord for Span {
    fn group(&self) -> u64 {
        self.log
    }

    fn addresses(&self) -> Range<u64> {
        self.live.clone()
    }

    fn memory(&self) -> usize {
        160 + match &self.bytes {
            SpanBytes::Raw(raw) => 4 * raw.crcs.len(),
            SpanBytes::Mapped(runs) => size_of::<Run>() * runs.count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::ChecksummedPieces;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_raw_span_reads_back_and_its_parts_keep_their_pieces(
            addr in 0u64..20_000, len in 1usize..20_000, a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>(),
        ) {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
            let span = Span::of(7, addr, &bytes, 3, 4096).with_hint(StoredHint(len as u16));
            prop_assert_eq!(&Span::decode(&span.key(), &span.value()).unwrap(), &span);
            let (a, b) = (a.index(len) as u64, b.index(len) as u64);
            let live = addr + a.min(b)..addr + a.max(b) + 1;
            let part = span.part(live.clone());
            prop_assert_eq!(&part.live, &live);
            prop_assert_eq!(&Span::decode(&part.key(), &part.value()).unwrap(), &part);
            let (whole, part) = (span.raw().unwrap(), part.raw().unwrap());
            for i in 0..part.crcs.len() {
                let p = part.piece(i);
                let bytes = &bytes[(p.start - addr) as usize..(p.end - addr) as usize];
                prop_assert_eq!(forebay_checksum::crc32c(bytes), part.crcs[i]);
                prop_assert_eq!(part.segment_offset(p.start), whole.segment_offset(p.start));
            }
        }

        #[test]
        fn a_mapped_span_reads_back_and_so_do_its_parts(
            addr in 0u64..20_000, runs in runs::tests::runs(), a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>(),
        ) {
            let span = Span::mapped(7, addr, runs);
            prop_assert_eq!(&Span::decode(&span.key(), &span.value()).unwrap(), &span);
            let len = span.live_len() as usize;
            let (a, b) = (a.index(len) as u64, b.index(len) as u64);
            let part = span.part(addr + a.min(b)..addr + a.max(b) + 1);
            prop_assert_eq!(part.runs().unwrap().bytes(), part.live_len());
            prop_assert_eq!(&Span::decode(&part.key(), &part.value()).unwrap(), &part);
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
            if let Ok(s) = Span::decode(&span.key(), &value) && let Some(raw) = s.raw() {
                prop_assert!(raw.stored.start <= s.live.start && s.live.end <= raw.stored.end);
                let _ = raw.piece(raw.piece_of(s.live.end - 1));
            }
        }
    }

    #[test]
    fn a_record_of_the_version_before_is_refused() {
        let span = Span::of(7, 100, &[1; 9000], 3, 4096);
        let mut value = span.value();
        value[0] = 1;
        let refused = Span::decode(&span.key(), &value).unwrap_err();
        assert!(refused.to_string().contains("unknown version"), "{refused}");
    }
}
