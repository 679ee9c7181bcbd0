//! Reading many parts of logs in few calls, each part straight to its place.
//!
//! Records that the kernel's page cache held back lie in a log in short rows with gaps of a few pages: a page on the edge of two
//! records is written back twice, and what the first copy leaves is free. A call for each row would spend more time on looking up
//! and calling than on the bytes. So rows near each other in a segment are read by one call, the gaps into memory that is thrown
//! away, and each piece is verified where it lies.
//!
//! Invariant: what cannot be read so is left to `LogReader::read`, which sees tails, follows what moves meanwhile, and tells of
//! damage. That is: what is not raw, a piece of which only a part is wanted, and every row of a call of which one is not right.
use crate::pieces::ChecksummedPieces;
use crate::poison::io_error;
use crate::read::LogReader;
use crate::segment::SegmentRange;
use crate::span::Span;
use crate::verified_read::{READ_OVER_BYTES, VERIFY_STEP};
use forebay_checksum::crc32c;
use forebay_proto::{LogId, Result};
use std::cell::RefCell;
use std::sync::Arc;

/// Most parts of a call: with as many gaps, well below what the kernel takes at once (`IOV_MAX`).
const MAX_PARTS: usize = 256;

thread_local! {
    /// Where the gaps of a call go.
    static GAPS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes that are wanted of a log.
pub struct LogPart<'a> {
    /// Which log.
    pub log: LogId,
    /// Address of the first byte.
    pub addr: u64,
    /// As many as it holds, not none.
    pub into: &'a mut [u8],
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
        let addresses = part.addr..part.addr.checked_add(part.into.len() as u64)?;
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

    /// Whether a call that reads from `first` to `last` may go on to this part.
    fn follows(&self, first: &StoredPart, last: &StoredPart) -> bool {
        let (range, before) = (&self.range, &last.range);
        range.segment == before.segment
            && range.start >= before.end
            && range.start - before.end <= READ_OVER_BYTES
            && range.end - first.range.start <= VERIFY_STEP
    }

    /// Whether `bytes` are what was written.
    fn is_right(&self, bytes: &[u8]) -> bool {
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
            let near = self.near_parts(rest)?;
            let (now, later) = rest.split_at_mut(near.len().max(1));
            if near.len() < 2 || !self.read_near(&near, now)? {
                for part in now {
                    self.read(part.log, part.addr, part.into)?;
                }
            }
            rest = later;
        }
        Ok(())
    }

    /// Where the first of these parts are, as many as one call reads.
    fn near_parts(&self, parts: &[LogPart<'_>]) -> Result<Vec<StoredPart>> {
        let mut near: Vec<StoredPart> = Vec::new();
        for part in parts.iter().take(MAX_PARTS) {
            let last = near.last().map(|stored| &stored.span);
            let holds = |span: &&Arc<Span>| span.log == part.log && span.live.contains(&part.addr);
            let span = match last.filter(holds) {
                Some(span) => Some(span.clone()),
                None => self.spans.find(part.log, part.addr)?,
            };
            let Some(stored) = span.and_then(|span| StoredPart::of(span, part)) else {
                break;
            };
            if let (Some(first), Some(last)) = (near.first(), near.last())
                && !stored.follows(first, last)
            {
                break;
            }
            near.push(stored);
        }
        Ok(near)
    }

    /// Reads parts by one call. `false`: a part is not what was written, or not there; then all of them have any content.
    fn read_near(&self, near: &[StoredPart], parts: &mut [LogPart<'_>]) -> Result<bool> {
        let (Some(first), Some(last)) = (near.first(), near.last()) else {
            return Ok(true);
        };
        let (segment, start) = (first.range.segment, first.range.start);
        let Some(file) = self.segments.file(segment)? else {
            return Ok(false);
        };
        let wanted: u64 = near
            .iter()
            .map(|part| part.range.end - part.range.start)
            .sum();
        let len = last.range.end - start;
        let n = GAPS.with_borrow_mut(|gaps| {
            gaps.resize((len - wanted) as usize, 0);
            let mut gaps = &mut gaps[..];
            let mut targets: Vec<&mut [u8]> = Vec::with_capacity(2 * parts.len());
            let mut at = start;
            for (stored, part) in near.iter().zip(&mut *parts) {
                let (gap, later) = gaps.split_at_mut((stored.range.start - at) as usize);
                gaps = later;
                if !gap.is_empty() {
                    targets.push(gap);
                }
                targets.push(part.into);
                at = stored.range.end;
            }
            file.read_parts_at(&mut targets, start)
        });
        let n = n.map_err(|e| io_error("read", &self.segments.path(segment), e))?;
        let mut read = near.iter().zip(parts);
        Ok(n as u64 == len && read.all(|(stored, part)| stored.is_right(part.into)))
    }
}
