//! Reads chunks of containers, plain and encoded, verified.
//!
//! Of an encoded container only the pieces that hold wanted bytes are read, verified and decoded. Its head is parsed once and kept
//! in memory, under a budget of its own.
//!
//! Invariant: a byte is handed out only after the checksums of its stored piece, and of the head, were right.
use super::encoded_parts::EncodedParts;
use super::{Container, ContainerTable};
use crate::pieces::Pieces;
use crate::record_cache::CachedRecord;
use crate::verified_read::{self, Mismatch, NearBuffer, WantedPart};
use forebay_codec::Opened;
use forebay_codec::container::PIECE_LEN;
use forebay_proto::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// Stored bytes of pieces that are read in one call, about.
const READ_STEP: u64 = 256 << 10;
/// Pieces between wanted ones, up to so many stored bytes, are read too, instead of making another call.
const READ_OVER_BYTES: u64 = 16 << 10;

/// The parsed head of an encoded container.
pub struct ParsedHead {
    container: u64,
    /// Checksum of the bytes that it was parsed from: a container may be encoded again.
    crc: Option<u32>,
    opened: Opened,
    memory: usize,
}

impl CachedRecord for ParsedHead {
    fn group(&self) -> u64 {
        self.container
    }

    fn addresses(&self) -> Range<u64> {
        0..u64::MAX
    }

    fn memory(&self) -> usize {
        self.memory
    }
}

/// Outcome of a read: `Some` is a stored part that is not what was written.
type Verified = Option<Mismatch>;

impl ContainerTable {
    /// Reads parts of a container's raw positions, sorted. `Some`: a stored part does not match its checksum.
    ///
    /// # Errors
    /// As the disk; `Corrupt` if verified bytes cannot be decoded.
    pub fn read_parts(
        &self,
        container: &Container,
        buffer: &mut NearBuffer<'_>,
        wanted: &mut [WantedPart<'_>],
    ) -> Result<Verified> {
        let Some(encoded) = container.encoded() else {
            return verified_read::read_parts(&self.segments, container, buffer, wanted);
        };
        let head = match self.head(container, encoded)? {
            Ok(head) => head,
            Err(bad) => return Ok(Some(bad)),
        };
        let mut first = 0;
        while first < wanted.len() {
            let mut parts = EncodedParts::over(&positions(&wanted[first]));
            let mut last = first;
            while let Some(next) = wanted.get(last + 1) {
                let next = EncodedParts::over(&positions(next));
                let (gap, end) = (
                    encoded.range(parts.end - 1).end,
                    encoded.range(next.end - 1).end,
                );
                let is_near = encoded.range(next.start).start.saturating_sub(gap)
                    <= READ_OVER_BYTES
                    && end - encoded.range(parts.start).start <= READ_STEP;
                if !is_near {
                    break;
                }
                parts.end = parts.end.max(next.end);
                last += 1;
            }
            let near = &mut wanted[first..=last];
            let bad = self.read_pieces(container, encoded, &head.opened, parts, buffer, near)?;
            if bad.is_some() {
                return Ok(bad);
            }
            first = last + 1;
        }
        Ok(None)
    }

    /// All raw bytes of the named chunks; zeros where there are others. `Err`: a stored part does not match its checksum.
    ///
    /// # Errors
    /// As `read_parts`.
    pub fn read_named(
        &self,
        container: &Container,
        is_named: impl Fn(usize) -> bool,
        buffer: &mut NearBuffer<'_>,
    ) -> Result<std::result::Result<Vec<u8>, Mismatch>> {
        let mut bytes = vec![0; container.bytes() as usize];
        let (mut wanted, mut rest, mut at) = (Vec::new(), &mut bytes[..], 0);
        for chunk in (0..container.count()).filter(|i| is_named(*i)) {
            let positions = container.positions(chunk);
            let (_, behind) = rest.split_at_mut((positions.start - at) as usize);
            let (into, behind) = behind.split_at_mut((positions.end - positions.start) as usize);
            (rest, at) = (behind, positions.end);
            wanted.push(WantedPart {
                at: positions.start,
                into,
            });
        }
        Ok(match self.read_parts(container, buffer, &mut wanted)? {
            Some(bad) => Err(bad),
            None => Ok(bytes),
        })
    }

    /// The parsed head of an encoded container.
    fn head(
        &self,
        container: &Container,
        encoded: &EncodedParts,
    ) -> Result<std::result::Result<Arc<ParsedHead>, Mismatch>> {
        let (id, crc) = (container.id, encoded.crc(EncodedParts::HEAD));
        if let Some(head) = self.heads.get(id, 0).filter(|head| head.crc == crc) {
            return Ok(Ok(head));
        }
        let epoch = self.heads.epoch(id);
        let mut bytes = vec![0; encoded.len(EncodedParts::HEAD) as usize];
        if let Some(bad) = verified_read::read(&self.segments, container, 0, &mut bytes)? {
            return Ok(Err(bad));
        }
        let opened = Opened::open(&bytes)
            .map_err(|e| self.undecodable(container, EncodedParts::HEAD, &e))?;
        if opened.raw_len() as u64 != container.bytes() {
            return Err(self.undecodable(
                container,
                EncodedParts::HEAD,
                &"it is of another container",
            ));
        }
        let head = Arc::new(ParsedHead {
            container: id,
            crc,
            memory: size_of::<ParsedHead>() + opened.memory(),
            opened,
        });
        self.heads.keep(epoch, head.clone());
        Ok(Ok(head))
    }

    /// Reads pieces (`parts`) in few calls, verifies and decodes those of which bytes are wanted.
    fn read_pieces(
        &self,
        container: &Container,
        encoded: &EncodedParts,
        opened: &Opened,
        parts: Range<usize>,
        buffer: &mut NearBuffer<'_>,
        wanted: &mut [WantedPart<'_>],
    ) -> Result<Verified> {
        let Some(file) = self.segments.file(container.segment)? else {
            return Ok(Some(Mismatch::missing(parts.start)));
        };
        let mut small = [0; 2 * PIECE_LEN];
        let mut step = parts.start;
        let mut first = 0;
        while step < parts.end {
            let begin = encoded.range(step).start;
            let mut end = step + 1;
            while end < parts.end && encoded.range(end).end - begin <= READ_STEP {
                end += 1;
            }
            let len = (encoded.range(end - 1).end - begin) as usize;
            let stored = match small.get_mut(..len) {
                Some(small) => small,
                None => buffer.bytes(len),
            };
            let offset = container.segment_offset(begin);
            let there = verified_read::read_at(&self.segments, container, &*file, offset, stored)?;
            for part in step..end {
                let raw = EncodedParts::raw_positions(part, container.bytes());
                while wanted.get(first).is_some_and(|w| w.end() <= raw.start) {
                    first += 1;
                }
                let mut touching = wanted[first..].iter_mut();
                let mut touching = touching.by_ref().take_while(|w| w.at < raw.end).peekable();
                if touching.peek().is_none() {
                    continue;
                }
                let place = encoded.range(part);
                let place = (place.start - begin) as usize..(place.end - begin) as usize;
                let found = (place.end <= there).then(|| crc32c::crc32c(&stored[place.clone()]));
                if found.is_none() || found != encoded.crc(part) {
                    return Ok(Some(Mismatch { piece: part, found }));
                }
                for w in touching {
                    let (from, to) = (w.at.max(raw.start), w.end().min(raw.end));
                    let range = (from - raw.start) as usize..(to - raw.start) as usize;
                    let into = (from - w.at) as usize..(to - w.at) as usize;
                    opened
                        .decode_range(part - 1, &stored[place.clone()], range, &mut w.into[into])
                        .map_err(|e| self.undecodable(container, part, &e))?;
                }
            }
            step = end;
        }
        Ok(None)
    }

    fn undecodable(
        &self,
        container: &Container,
        part: usize,
        why: &dyn std::fmt::Display,
    ) -> Error {
        let path = self.segments.path(container.segment);
        let (what, at) = (
            container.describe(part),
            container.segment_offset(container.piece(part).start),
        );
        Error::Corrupt(format!(
            "{}: {what} at byte {at} cannot be decoded: {why}; run `forebay fsck`",
            path.display()
        ))
    }
}

fn positions(wanted: &WantedPart<'_>) -> Range<u64> {
    wanted.at..wanted.end()
}
