//! Coalesced vectored reads: many parts of logs in few calls of `preadv`, each part straight to its place.
//!
//! Dirty pages that the kernel held back lie in a log in short parts with gaps of a few pages between them: a page on the edge of two
//! records is written back twice, and what the first copy leaves is free. A call for each part would spend more time on looking up
//! and calling than on the bytes. So parts close together in a segment are read by one call, the gaps into scratch memory, and each piece is
//! verified where it lies.
//!
//! Everything else goes through `LogReader::read`, which sees tails, follows what moves meanwhile, and tells of damage: parts that are not raw, or
//! begin or end inside a piece. Such parts that follow each other in a log are read together and copied to their places.
//!
//! Invariant: if one part of a call fails its checksum, or the call fails, all of its parts are read one by one.
use crate::pieces::ChecksummedPieces;
use crate::read::LogReader;
use crate::segment::SegmentRange;
use crate::span::Span;
use crate::verified_read::{READ_OVER_BYTES, VERIFY_STEP};
use forebay_checksum::crc32c;
use forebay_proto::{LOST_LOG, LogId, Result};
use std::sync::Arc;

/// Most parts of a call: with as many gaps, well below what the kernel takes at once (`IOV_MAX`).
const MAX_PARTS: usize = 256;
/// Bytes that are read together before they are copied to their places: few enough to be still in the processor's cache.
const COPIED_BYTES: usize = 128 << 10;

/// Bytes that are wanted of a log.
pub struct LogPart<'a> {
    /// Which log.
    pub log: LogId,
    /// Address of the first byte.
    pub addr: u64,
    /// As many as it holds, not none.
    pub into: &'a mut [u8],
}

impl LogPart<'_> {
    /// The address after the last byte.
    fn end(&self) -> u64 {
        self.addr.saturating_add(self.into.len() as u64)
    }
}

/// Where a part lies: whole pieces of a raw span.
struct StoredPart {
    span: Arc<Span>,
    range: SegmentRange,
    first_piece: usize,
}

impl StoredPart {
    /// If `span`, in which the part begins, has all of it in whole pieces.
    fn of(span: Arc<Span>, part: &LogPart<'_>) -> Option<StoredPart> {
        let addresses = part.addr..part.end();
        let raw = span.raw()?;
        if addresses.is_empty() || addresses.end > span.live.end {
            return None;
        }
        let first_piece = raw.piece_of(addresses.start);
        let last = raw.piece(raw.piece_of(addresses.end - 1));
        if raw.piece(first_piece).start != addresses.start || last.end != addresses.end {
            return None;
        }
        let range = raw.segment_range(&addresses);
        Some(StoredPart {
            span,
            range,
            first_piece,
        })
    }

    /// Whether a call that reads from `first` to `last` may read this part too.
    fn can_join(&self, first: &StoredPart, last: &StoredPart) -> bool {
        let (range, before) = (&self.range, &last.range);
        range.segment == before.segment
            && range.start >= before.end
            && range.start - before.end <= READ_OVER_BYTES
            && range.end - first.range.start <= VERIFY_STEP
    }

    /// Whether `bytes` are what was written.
    fn matches_checksums(&self, bytes: &[u8]) -> bool {
        let Some(raw) = self.span.raw() else {
            return false;
        };
        let (mut piece, mut rest) = (self.first_piece, bytes);
        while !rest.is_empty() {
            let positions = raw.piece(piece);
            let (bytes, behind) = rest.split_at((positions.end - positions.start) as usize);
            if crc32c(bytes) != raw.checksum(piece) {
                return false;
            }
            (piece, rest) = (piece + 1, behind);
        }
        true
    }
}

impl LogReader {
    /// Fills parts, sorted by log and address, none overlapping the next. As `read` of each of them.
    ///
    /// # Errors
    /// As `LogStore::read`.
    pub fn read_parts(&self, parts: &mut [LogPart<'_>]) -> Result<()> {
        let _call = self.foreground.begin();
        let mut rest = parts;
        while !rest.is_empty() {
            let batch = self.coalesced_parts(rest);
            if batch.len() < 2 {
                let (now, later) = rest.split_at_mut(consecutive_parts(rest));
                self.read_consecutive(now)?;
                rest = later;
                continue;
            }
            let (now, later) = rest.split_at_mut(batch.len());
            if !self.read_coalesced(&batch, now) {
                for part in now {
                    self.read(part.log, part.addr, part.into)?;
                }
            }
            rest = later;
        }
        Ok(())
    }

    /// Where the first of these parts are, as many as one call reads.
    fn coalesced_parts(&self, parts: &[LogPart<'_>]) -> Vec<StoredPart> {
        let mut batch: Vec<StoredPart> = Vec::new();
        for part in parts.iter().take(MAX_PARTS) {
            let last = batch.last().map(|stored| &stored.span);
            let holds = |span: &&Arc<Span>| span.log == part.log && span.live.contains(&part.addr);
            let span = match last.filter(holds) {
                Some(span) => Some(span.clone()),
                None => self.written_span(part),
            };
            let Some(stored) = span.and_then(|span| StoredPart::of(span, part)) else {
                break;
            };
            if let (Some(first), Some(last)) = (batch.first(), batch.last())
                && !stored.can_join(first, last)
            {
                break;
            }
            batch.push(stored);
        }
        batch
    }

    /// The span in which a part begins. `None` also where it is in a tail, and where `read` will tell of an error.
    fn written_span(&self, part: &LogPart<'_>) -> Option<Arc<Span>> {
        let is_in_tail = |log: &Arc<crate::log::Log>| part.addr >= log.written();
        if part.log == LOST_LOG || self.logs.find(part.log).as_ref().is_some_and(is_in_tail) {
            return None;
        }
        self.spans.find(part.log, part.addr).ok().flatten()
    }

    /// Reads parts by one call. `false`: a part is not what was written, or the call failed; then all of them have any content.
    fn read_coalesced(&self, batch: &[StoredPart], parts: &mut [LogPart<'_>]) -> bool {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
            return true;
        };
        let (segment, start) = (first.range.segment, first.range.start);
        let Ok(Some(file)) = self.segments.file(segment) else {
            return false;
        };
        let wanted: usize = parts.iter().map(|part| part.into.len()).sum();
        let len = (last.range.end - start) as usize;
        let mut scratch = self.buffers.take((len - wanted).next_power_of_two());
        let mut gaps = &mut scratch[..];
        let mut targets: Vec<&mut [u8]> = Vec::with_capacity(2 * parts.len());
        let mut at = start;
        for (stored, part) in batch.iter().zip(&mut *parts) {
            let (gap, later) = gaps.split_at_mut((stored.range.start - at) as usize);
            gaps = later;
            if !gap.is_empty() {
                targets.push(gap);
            }
            targets.push(part.into);
            at = stored.range.end;
        }
        let n = file.read_parts_at(&mut targets, start);
        let mut read = batch.iter().zip(parts);
        n.is_ok_and(|n| n == len) && read.all(|(stored, part)| stored.matches_checksums(part.into))
    }

    /// Reads parts that follow each other in a log.
    fn read_consecutive(&self, parts: &mut [LogPart<'_>]) -> Result<()> {
        let first = match parts {
            [] => return Ok(()),
            [only] => return self.read(only.log, only.addr, only.into),
            [first, ..] => first,
        };
        let (log, addr) = (first.log, first.addr);
        let mut buffer = self.buffers.take(COPIED_BYTES);
        let len = parts.iter().map(|part| part.into.len()).sum();
        self.read(log, addr, &mut buffer[..len])?;
        let mut rest = &buffer[..len];
        for part in parts {
            let (bytes, behind) = rest.split_at(part.into.len());
            part.into.copy_from_slice(bytes);
            rest = behind;
        }
        Ok(())
    }
}

/// How many of these parts follow each other in a log, and are read together: one at least, the others within `COPIED_BYTES`.
fn consecutive_parts(parts: &[LogPart<'_>]) -> usize {
    let mut len = parts.first().map_or(0, |part| part.into.len());
    let pairs = parts.windows(2).take_while(|pair| {
        len += pair[1].into.len();
        pair[1].log == pair[0].log && pair[1].addr == pair[0].end() && len <= COPIED_BYTES
    });
    (1 + pairs.count()).min(parts.len())
}
