//! Raw bytes of a span: as they were appended, in one segment, written by one call.
//!
//! They are cut into pieces at multiples of 4 KiB *of the log address* (and at the start of the span).
//!
//! ```text
//! after the head of a span's value (`span`), little-endian:
//!   0  4  segment file
//!   4  4  offset of the first stored byte in the segment
//!   8  4  n, number of pieces
//!  12  8  stored start: address of the first stored byte
//!  20  8  stored end: address after the last stored byte
//!  28 4n  CRC32C of every piece
//! ```
use super::hint::StoredHint;
use crate::pieces::ChecksummedPieces;
use forebay_proto::LogId;
use std::ops::Range;

/// Pieces are cut at multiples of this many bytes of log address.
pub const PIECE_BYTES: u64 = 4096;
/// Bytes before the checksums.
const HEAD: usize = 28;

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawBytes {
    /// The log; for reports.
    pub log: LogId,
    /// Addresses whose bytes the segment holds: whole pieces.
    pub stored: Range<u64>,
    /// The segment file.
    pub segment: u32,
    /// Where `stored.start` lies in the segment, bytes.
    pub offset: u32,
    /// CRC32C of every piece.
    pub crcs: Box<[u32]>,
    /// How they are to be encoded.
    pub hint: StoredHint,
}

impl RawBytes {
    /// Stored bytes.
    pub fn stored_len(&self) -> u64 {
        self.stored.end - self.stored.start
    }

    /// The pieces that hold these addresses, which are not none.
    pub fn part(&self, live: &Range<u64>) -> RawBytes {
        let (first, last) = (self.piece_of(live.start), self.piece_of(live.end - 1));
        let stored = self.piece(first).start..self.piece(last).end;
        RawBytes {
            log: self.log,
            segment: self.segment,
            offset: self.segment_offset(stored.start) as u32,
            crcs: self.crcs[first..=last].into(),
            hint: self.hint,
            stored,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(HEAD + 4 * self.crcs.len());
        for field in [self.segment, self.offset, self.crcs.len() as u32] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for addr in [self.stored.start, self.stored.end] {
            out.extend_from_slice(&addr.to_le_bytes());
        }
        for crc in &self.crcs {
            out.extend_from_slice(&crc.to_le_bytes());
        }
    }

    /// Reads what `encode` wrote of a span with these live addresses and this hint.
    pub(super) fn decode(
        log: LogId,
        live: &Range<u64>,
        hint: StoredHint,
        bytes: &[u8],
    ) -> Result<RawBytes, &'static str> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let fields = (u32_at(0), u32_at(4), u32_at(8), u64_at(12), u64_at(20));
        let (Some(segment), Some(offset), Some(n), Some(start), Some(end)) = fields else {
            return Err("cut short");
        };
        if !(start <= live.start && live.end <= end) {
            return Err("addresses out of order");
        }
        let pieces = (end - 1) / PIECE_BYTES - start / PIECE_BYTES + 1;
        if u64::from(n) != pieces || bytes.len() != HEAD + 4 * n as usize {
            return Err("wrong number of pieces");
        }
        let crcs = bytes[HEAD..]
            .chunks_exact(4)
            .map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]))
            .collect();
        Ok(RawBytes {
            log,
            stored: start..end,
            segment,
            offset,
            crcs,
            hint,
        })
    }
}

impl ChecksummedPieces for RawBytes {
    fn segment(&self) -> u32 {
        self.segment
    }

    fn piece_of(&self, addr: u64) -> usize {
        (addr / PIECE_BYTES - self.stored.start / PIECE_BYTES) as usize
    }

    fn piece(&self, i: usize) -> Range<u64> {
        let first = (self.stored.start / PIECE_BYTES + i as u64) * PIECE_BYTES;
        first.max(self.stored.start)..(first + PIECE_BYTES).min(self.stored.end)
    }

    fn checksum(&self, i: usize) -> u32 {
        self.crcs[i]
    }

    fn segment_offset(&self, addr: u64) -> u64 {
        u64::from(self.offset) + (addr - self.stored.start)
    }

    fn describe(&self, i: usize) -> String {
        format!("log {} address {}", self.log, self.piece(i).start)
    }
}

/// CRC32C of every piece of `bytes`, which lie at `addr`.
pub fn checksums(addr: u64, bytes: &[u8]) -> Box<[u32]> {
    let first = ((PIECE_BYTES - addr % PIECE_BYTES) as usize).min(bytes.len());
    let rest = bytes[first..].chunks(PIECE_BYTES as usize);
    std::iter::once(&bytes[..first])
        .filter(|b| !b.is_empty())
        .chain(rest)
        .map(forebay_checksum::crc32c)
        .collect()
}
