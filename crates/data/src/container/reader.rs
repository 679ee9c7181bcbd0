//! Reads chunks of containers, plain and encoded, verified.
//!
//! Of an encoded container only the pieces that hold wanted bytes are read, verified and decoded. Its head is parsed once and kept
//! in memory, under a budget of its own; pieces that are read again in small parts are kept decoded (`decoded_cache`). If it is encoded
//! against a base, the base's bytes at the places of these pieces are read first, from containers that have none.
//!
//! Invariant: a byte is handed out only after the checksums of its stored piece, and of the head, were right.
use super::decoded_cache::PieceKey;
use super::encoded_parts::EncodedParts;
use super::{Container, ContainerId, ContainerTable};
use crate::pieces::ChecksummedPieces;
use crate::record_cache::CachedRecord;
use crate::span::{RunSource, SpanRuns};
use crate::verified_read::{self, CoalescedReadBuffer, Mismatch, WantedPart};
use forebay_codec::container::PIECE_LEN;
use forebay_codec::{CodecError, ElementLayout, OpenedContainer};
use forebay_proto::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// Stored bytes of pieces that are read in one call, about.
const READ_STEP: u64 = 256 << 10;
/// Pieces between wanted ones, up to so many stored bytes, are read too, instead of making another call.
const READ_OVER_BYTES: u64 = 16 << 10;

/// Wanted parts of one piece, up to this length, may come from decoded pieces in memory. For longer ones decoding costs no more than
/// what else is done for a read.
const SMALL_PART: usize = PIECE_LEN;
/// How often reading a base is repeated because a container of it was moved meanwhile.
const MAX_MOVES_FOLLOWED: usize = 16;

/// The parsed head of an encoded container.
pub struct ParsedHead {
    container: u64,
    /// Checksum of the bytes that it was parsed from: a container may be encoded again.
    crc: Option<u32>,
    opened: OpenedContainer,
    memory: usize,
}

/// Some bytes of a base.
#[derive(Default)]
struct BaseBytes {
    /// The position of the first one.
    start: u64,
    bytes: Vec<u8>,
}

impl BaseBytes {
    fn new(start: u64, bytes: Vec<u8>) -> BaseBytes {
        BaseBytes { start, bytes }
    }

    /// Those at these positions, if they are here.
    fn of(&self, positions: &Range<u64>) -> Option<&[u8]> {
        let from = positions.start.checked_sub(self.start)? as usize;
        self.bytes
            .get(from..from + (positions.end - positions.start) as usize)
    }
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

impl ContainerTable {
    /// Reads parts of a container's raw positions, sorted. `Some`: a stored part does not match its checksum.
    ///
    /// # Errors
    /// As the disk; `Corrupt` if verified bytes cannot be decoded.
    pub fn read_parts(
        &self,
        container: &Container,
        buffer: &mut CoalescedReadBuffer<'_>,
        wanted: &mut [WantedPart<'_>],
    ) -> Result<Option<Mismatch>> {
        let Some(encoded) = container.encoded() else {
            return verified_read::read_parts(&self.segments, container, buffer, wanted);
        };
        let head = match self.head(container, encoded)? {
            Ok(head) => head,
            Err(bad) => return Ok(Some(bad)),
        };
        let mut first = 0;
        while first < wanted.len() {
            if self.read_decoded(container, encoded, &mut wanted[first]) {
                first += 1;
                continue;
            }
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
        buffer: &mut CoalescedReadBuffer<'_>,
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

    /// How the bytes of an encoded container are numbers. `None`: its head is damaged, or it is plain.
    ///
    /// # Errors
    /// As `read_parts`.
    pub fn layout(&self, container: &Container) -> Result<Option<ElementLayout>> {
        let Some(encoded) = container.encoded() else {
            return Ok(None);
        };
        let head = self.head(container, encoded)?;
        Ok(head.ok().map(|head| *head.opened.layout()))
    }

    /// Copies a small part from a decoded piece in memory, if that is there.
    fn read_decoded(
        &self,
        container: &Container,
        encoded: &EncodedParts,
        wanted: &mut WantedPart<'_>,
    ) -> bool {
        let parts = EncodedParts::over(&positions(wanted));
        if wanted.into.len() > SMALL_PART || parts.len() > 1 {
            return false;
        }
        let key = piece_key(container, encoded, parts.start);
        let Some(piece) = self.decoded.get(&key) else {
            return false;
        };
        let raw = EncodedParts::raw_positions(parts.start, container.bytes());
        let (range, into) = overlap(&raw, wanted);
        wanted.into[into].copy_from_slice(&piece[range]);
        true
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
        let opened = OpenedContainer::open(&bytes)
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
        opened: &OpenedContainer,
        parts: Range<usize>,
        buffer: &mut CoalescedReadBuffer<'_>,
        wanted: &mut [WantedPart<'_>],
    ) -> Result<Option<Mismatch>> {
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
            let base_buffer = buffer.another();
            let mut base = match container.base() {
                None => BaseBytes::default(),
                Some(runs) => self.base_of_step(container, runs, step..end, &base_buffer)?,
            };
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
                // Sorted by their begin; they may overlap, where a span names a chunk twice.
                let begun = wanted[first..].iter_mut().take_while(|w| w.at < raw.end);
                let mut touching = begun.filter(|w| w.end() > raw.start).peekable();
                if touching.peek().is_none() {
                    continue;
                }
                let place = encoded.range(part);
                let place = (place.start - begin) as usize..(place.end - begin) as usize;
                let found =
                    (place.end <= there).then(|| forebay_checksum::crc32c(&stored[place.clone()]));
                if found.is_none() || found != encoded.crc(part) {
                    return Ok(Some(Mismatch { piece: part, found }));
                }
                let stored = &stored[place];
                if let Some(runs) = container.base()
                    && base.of(&raw).is_none()
                {
                    let positions = raw.clone();
                    match self.read_base(container.id, runs, positions, &base_buffer) {
                        Ok(bytes) => base = BaseBytes::new(raw.start, bytes),
                        Err(error) if !error.is_damage() => return Err(error),
                        // It may have been encoded again, and its base be gone since.
                        Err(_) if !self.is_current(container)? => {
                            return Ok(Some(Mismatch::missing(part)));
                        }
                        Err(error) => {
                            for chunk in container.chunks_of_part(part) {
                                self.damaged.add(container.id, chunk);
                            }
                            return Err(error);
                        }
                    }
                }
                let base = base.of(&raw).unwrap_or_default();
                let undecodable = |e: CodecError| self.undecodable(container, part, &e);
                for w in touching {
                    let (range, into) = overlap(&raw, w);
                    let key = piece_key(container, encoded, part);
                    let is_small = range.len() == w.into.len() && range.len() <= SMALL_PART;
                    if is_small && self.decoded.touch(key) {
                        let mut piece = [0; PIECE_LEN];
                        let piece = &mut piece[..(raw.end - raw.start) as usize];
                        opened
                            .decode_piece_against(part - 1, stored, base, piece)
                            .map_err(undecodable)?;
                        w.into[into].copy_from_slice(&piece[range]);
                        self.decoded.insert(key, piece);
                    } else {
                        opened
                            .decode_range_against(part - 1, stored, range, base, &mut w.into[into])
                            .map_err(undecodable)?;
                    }
                }
            }
            step = end;
        }
        Ok(None)
    }

    /// The base's bytes for some pieces. None if some of them are damaged: those of each piece are read apart then.
    fn base_of_step(
        &self,
        container: &Container,
        runs: &SpanRuns,
        parts: Range<usize>,
        buffer: &CoalescedReadBuffer<'_>,
    ) -> Result<BaseBytes> {
        let positions = |part| EncodedParts::raw_positions(part, container.bytes());
        let raw = positions(parts.start).start..positions(parts.end - 1).end;
        let start = raw.start;
        match self.read_base(container.id, runs, raw, buffer) {
            Ok(bytes) => Ok(BaseBytes::new(start, bytes)),
            Err(error) if error.is_damage() => Ok(BaseBytes::default()),
            Err(error) => Err(error),
        }
    }

    /// Whether a chunk needs bytes of a base that are known to be damaged.
    ///
    /// # Errors
    /// As the store, and `Corrupt` for a broken record.
    pub fn needs_damaged(&self, container: &Container, chunk: usize) -> Result<bool> {
        let Some(runs) = container.base() else {
            return Ok(false);
        };
        let parts = EncodedParts::over(&container.positions(chunk));
        let positions = |part| EncodedParts::raw_positions(part, container.bytes());
        let raw = positions(parts.start).start..positions(parts.end - 1).end;
        for (id, positions) in runs.within(raw).filter_map(|run| run.in_container()) {
            let base = self.find(id)?;
            let chunks = base.and_then(|base| base.chunks_over(&positions));
            let is_whole = chunks
                .is_some_and(|mut chunks| chunks.all(|chunk| !self.damaged.contains(id, chunk)));
            if !is_whole {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_current(&self, container: &Container) -> Result<bool> {
        Ok(self.load(container.id)?.as_deref() == Some(container))
    }

    /// The bytes at these positions of what a container is, or is to be, encoded against.
    ///
    /// # Errors
    /// As the disk and the store; `Corrupt` for bytes that are damaged or gone.
    pub fn read_base(
        &self,
        of: ContainerId,
        base: &SpanRuns,
        positions: Range<u64>,
        buffer: &CoalescedReadBuffer<'_>,
    ) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (positions.end - positions.start) as usize];
        let (mut rest, mut buffer) = (&mut bytes[..], buffer.another());
        for run in base.within(positions) {
            let (into, behind) = rest.split_at_mut(run.len as usize);
            rest = behind;
            if let RunSource::Container { id, at } = run.source {
                let mut part = [WantedPart {
                    at: at.into(),
                    into,
                }];
                self.read_base_part(of, id, &mut part, &mut buffer)?;
            }
        }
        Ok(bytes)
    }

    /// Reads a part of a container that another one is encoded against; again if it was moved meanwhile.
    fn read_base_part(
        &self,
        of: ContainerId,
        id: ContainerId,
        part: &mut [WantedPart<'_>],
        buffer: &mut CoalescedReadBuffer<'_>,
    ) -> Result<()> {
        let mut container = self.find(id)?;
        for _ in 0..MAX_MOVES_FOLLOWED {
            let has_all = |c: &Arc<Container>| {
                let mut parts = part.iter();
                parts.all(|part| c.chunks_over(&positions(part)).is_some())
            };
            // One with a base would have this go on for ever, and none is made.
            let is_base = |c: &Arc<Container>| c.base().is_none() && has_all(c);
            let Some(c) = container.filter(is_base) else {
                break;
            };
            let Some(bad) = self.read_parts(&c, buffer, part)? else {
                return Ok(());
            };
            container = self.load(id)?;
            if container.as_ref() == Some(&c) {
                for chunk in c.chunks_of_part(bad.piece) {
                    self.damaged.add(id, chunk);
                }
                let user = format!(" (the base of container {of})");
                return Err(verified_read::damage(&self.segments, &*c, &user, &bad));
            }
        }
        Err(Error::Corrupt(format!(
            "container {id} has not the bytes that container {of} is encoded against; run `forebay fsck`"
        )))
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

/// What a piece with these raw positions has of a wanted part: bytes of the piece, and of the part.
fn overlap(raw: &Range<u64>, wanted: &WantedPart<'_>) -> (Range<usize>, Range<usize>) {
    let (from, to) = (wanted.at.max(raw.start), wanted.end().min(raw.end));
    let within = |start: u64| (from - start) as usize..(to - start) as usize;
    (within(raw.start), within(wanted.at))
}

fn piece_key(container: &Container, encoded: &EncodedParts, part: usize) -> PieceKey {
    PieceKey {
        container: container.id,
        // There are 257 parts at most.
        part: part as u32,
        crc: encoded.crc(part).unwrap_or_default(),
    }
}
