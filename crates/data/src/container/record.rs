//! A container as its record has it: where it lies, its chunks, and the stored parts with their checksums.
//!
//! ```text
//!  0  1  version: 1 plain, 2 encoded, 3 encoded against a base
//!  1  1  codec: 0, the bytes are as they are; else the number of a `CodecId`
//!  2  2  zero
//!  4  4  segment file                                       u32 little-endian, as all below
//!  8  4  offset of the first stored byte in the segment
//! 12  4  n, number of chunks
//! 16     n times: length * 2 + dropped, varint
//!        CRC32C 4 of the raw bytes of each chunk that is not dropped
//!        only if encoded, the stored parts: the codec's head, and one piece for each 4 KiB of positions (`encoded_parts`)
//!        only against a base, where the base's bytes are: runs, as in a span (`span/runs`)
//! ```
//! A chunk is **dropped** when the container moves and nothing names it: it keeps its positions, and has no bytes.
//!
//! **Positions** are those of raw bytes: runs of spans name them. **Stored parts** lie one behind the other in the segment, each with
//! a checksum, and are what is verified, moved and reclaimed ([`ChecksummedPieces`]). In a plain container each chunk is a part, and parts are
//! found by position. In an encoded one ([`EncodedParts`]) parts are found by their offset from the container's first stored byte. A
//! part is **needed** while a named chunk has a byte in it.
//!
//! A container may be encoded against a **base**: as many raw bytes as it has positions, which are needed to decode it. They are in other
//! containers, named by runs, and stay there because a record of its own counts these runs (`bases`).
//!
//! Invariants: there is a chunk, and no more than [`MAX_CONTAINER_CHUNKS`]; none is empty; together they are
//! [`MAX_CONTAINER_BYTES`] at most. No stored part of a needed chunk is dropped. Only an encoded container has a base, and its runs are
//! as long as its positions.
use super::encoded_parts::EncodedParts;
use super::{ChunkCounts, ContainerId, MAX_CONTAINER_BYTES};
use crate::chunk::MAX_CHUNK_BYTES;
use crate::cit::MAX_CONTAINER_CHUNKS;
use crate::pieces::ChecksummedPieces;
use crate::record_cache::CachedRecord;
use crate::segment::SegmentRange;
use crate::span::SpanRuns;
use forebay_codec::{CodecId, varint};
use std::ops::Range;

/// Version of the record of a plain container.
const PLAIN_VERSION: u8 = 1;
/// Version of the record of an encoded container.
const ENCODED_VERSION: u8 = 2;
/// Version of the record of a container that is encoded against a base.
const BASED_VERSION: u8 = 3;
const HEAD: usize = 16;

/// A chunk of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredChunk {
    /// Raw bytes.
    pub len: u32,
    /// CRC32C of its raw bytes. `None`: it was dropped.
    pub crc: Option<u32>,
}

/// Where a chunk is: its positions and, in a plain container, its stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChunkPlace {
    /// The position after its last byte.
    end: u32,
    /// Stored offset of its first byte, from the container's offset in the segment.
    at: u32,
    crc: Option<u32>,
}

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its number.
    pub id: ContainerId,
    /// The segment file.
    pub segment: u32,
    /// Offset of its first stored byte in the segment.
    pub offset: u32,
    chunks: Box<[ChunkPlace]>,
    /// How it is encoded. `None`: it is plain.
    encoded: Option<Box<EncodedParts>>,
    /// Where the bytes are that it is encoded against.
    base: Option<Box<SpanRuns>>,
}

impl Container {
    /// A plain container of these chunks, which must keep the invariants.
    pub fn new(
        id: ContainerId,
        segment: u32,
        offset: u32,
        chunks: impl IntoIterator<Item = StoredChunk>,
    ) -> Container {
        let (mut end, mut at) = (0, 0);
        let place = |chunk: StoredChunk| {
            end += chunk.len;
            let place = ChunkPlace {
                end,
                at,
                crc: chunk.crc,
            };
            at += chunk.crc.map_or(0, |_| chunk.len);
            place
        };
        Container {
            id,
            segment,
            offset,
            chunks: chunks.into_iter().map(place).collect(),
            encoded: None,
            base: None,
        }
    }

    /// The same container in its encoded form, without a base. `parts` must be those of as many raw bytes.
    pub fn into_encoded(self, parts: EncodedParts) -> Container {
        Container {
            encoded: Some(Box::new(parts)),
            base: None,
            ..self
        }
    }

    /// The same encoded container, which these bytes are needed to decode; as many as it has positions. `None`: it needs none.
    pub fn with_base(self, base: Option<SpanRuns>) -> Container {
        Container {
            base: base.map(Box::new),
            ..self
        }
    }

    /// The same container in its plain form: the stored bytes are the raw ones of its chunks.
    pub fn into_plain(self) -> Container {
        Container {
            encoded: None,
            base: None,
            ..self
        }
    }

    /// Where the bytes are that it is encoded against; `None`: it needs no others.
    pub fn base(&self) -> Option<&SpanRuns> {
        self.base.as_deref()
    }

    /// How it is encoded; `None`: it is plain.
    pub fn encoded(&self) -> Option<&EncodedParts> {
        self.encoded.as_deref()
    }

    /// The codec of its bytes.
    pub fn codec(&self) -> CodecId {
        self.encoded().map_or(CodecId::Raw, |parts| parts.codec)
    }

    /// Number of chunks.
    pub fn count(&self) -> usize {
        self.chunks.len()
    }

    /// Number of positions: the lengths of all chunks together.
    pub fn bytes(&self) -> u64 {
        self.chunks.last().map_or(0, |last| last.end.into())
    }

    /// Number of the chunk that holds this position.
    pub fn chunk_of(&self, position: u64) -> usize {
        // Chunks are mostly equally long: then it is where their mean length says.
        let mean = (position * self.count() as u64).checked_div(self.bytes());
        let guess = mean.unwrap_or_default() as usize;
        if guess < self.count() && self.positions(guess).contains(&position) {
            return guess;
        }
        self.chunks
            .partition_point(|c| u64::from(c.end) <= position)
    }

    /// Positions of chunk `i`.
    pub fn positions(&self, i: usize) -> Range<u64> {
        let start = i.checked_sub(1).map_or(0, |before| self.chunks[before].end);
        start.into()..self.chunks[i].end.into()
    }

    /// One of its chunks.
    pub fn chunk(&self, i: usize) -> StoredChunk {
        let positions = self.positions(i);
        StoredChunk {
            len: (positions.end - positions.start) as u32,
            crc: self.chunks[i].crc,
        }
    }

    /// All of them.
    pub fn chunks(&self) -> impl Iterator<Item = StoredChunk> {
        (0..self.count()).map(|i| self.chunk(i))
    }

    /// The chunks that have a byte in these positions. `None`: not all of the positions are stored.
    pub fn chunks_over(&self, positions: &Range<u64>) -> Option<Range<usize>> {
        if positions.is_empty() || positions.end > self.bytes() {
            return None;
        }
        let chunks = self.chunk_of(positions.start)..self.chunk_of(positions.end - 1) + 1;
        let mut stored = self.chunks[chunks.clone()].iter();
        stored.all(|chunk| chunk.crc.is_some()).then_some(chunks)
    }

    /// Raw bytes of the named chunks.
    pub fn named_raw_len(&self, counts: &ChunkCounts) -> u64 {
        let named = self.chunks().zip(&counts.0).filter(|(_, n)| **n > 0);
        named.map(|(chunk, _)| u64::from(chunk.len)).sum()
    }

    /// Number of stored parts, dropped ones included.
    fn part_count(&self) -> usize {
        self.encoded().map_or(self.count(), EncodedParts::count)
    }

    /// Bytes of a stored part; `None`: it was dropped.
    fn part_len(&self, part: usize) -> Option<u64> {
        match self.encoded() {
            Some(parts) => parts.crc(part).map(|_| parts.len(part)),
            None => {
                let chunk = self.chunk(part);
                chunk.crc.map(|_| chunk.len.into())
            }
        }
    }

    /// The chunks that have a byte in a stored part.
    pub fn chunks_of_part(&self, part: usize) -> Range<usize> {
        match self.encoded() {
            None => part..part + 1,
            Some(_) => {
                let raw = EncodedParts::raw_positions(part, self.bytes());
                self.chunk_of(raw.start)..self.chunk_of(raw.end - 1) + 1
            }
        }
    }

    /// Of each stored part whether a chunk that `is_wanted` selects has a byte in it.
    pub fn needed_parts(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<bool> {
        let is_wanted = |i: usize| self.chunks[i].crc.is_some() && is_wanted(i);
        let mut needed = vec![false; self.part_count()];
        for i in (0..self.count()).filter(|i| is_wanted(*i)) {
            let parts = match self.encoded() {
                None => i..i + 1,
                Some(_) => {
                    needed[EncodedParts::HEAD] = true;
                    EncodedParts::over(&self.positions(i))
                }
            };
            needed[parts].fill(true);
        }
        needed
    }

    /// Stored bytes of the parts that are needed by these.
    fn len_of(&self, needed: &[bool]) -> u64 {
        let needed = needed.iter().enumerate().filter(|(_, needed)| **needed);
        needed.filter_map(|(part, _)| self.part_len(part)).sum()
    }

    /// Stored bytes in the segment, of named and other chunks.
    pub fn stored_len(&self) -> u64 {
        let parts = 0..self.part_count();
        parts.filter_map(|part| self.part_len(part)).sum()
    }

    /// Stored bytes that named chunks need.
    pub fn named_len(&self, counts: &ChunkCounts) -> u64 {
        self.len_of(&self.needed_parts(|i| counts.0[i] > 0))
    }

    /// Ranges of stored parts for which `is_wanted` holds, as [`ChecksummedPieces`] has them; adjacent ones are joined.
    fn joined(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for part in (0..self.part_count()).filter(|p| self.part_len(*p).is_some() && is_wanted(*p))
        {
            match found.last_mut() {
                Some(last) if self.piece(last.end - 1).end == self.piece(part).start => {
                    last.end = part + 1;
                }
                _ => found.push(part..part + 1),
            }
        }
        found
    }

    fn stretch(&self, parts: &Range<usize>) -> Range<u64> {
        self.piece(parts.start).start..self.piece(parts.end - 1).end
    }

    /// What is stored of the chunks that `is_wanted` selects, in the terms of [`ChecksummedPieces`]; adjacent parts are joined.
    pub fn stretches(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<Range<u64>> {
        let needed = self.needed_parts(is_wanted);
        let joined = self.joined(|part| needed[part]);
        joined.iter().map(|parts| self.stretch(parts)).collect()
    }

    /// Segment ranges of what is stored of the chunks that `is_wanted` selects.
    pub fn places(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<SegmentRange> {
        let stretches = self.stretches(is_wanted).into_iter();
        stretches.map(|s| self.segment_range(&s)).collect()
    }

    /// Segment ranges of all stored parts that no chunk needs which `is_named` selects.
    pub fn unneeded_places(&self, is_named: impl Fn(usize) -> bool) -> Vec<SegmentRange> {
        let needed = self.needed_parts(is_named);
        let joined = self.joined(|part| !needed[part]);
        let stretches = joined.iter().map(|parts| self.stretch(parts));
        stretches.map(|s| self.segment_range(&s)).collect()
    }

    /// Segment ranges that are not needed any more, where counts change from `before` to `now`. Together with neighbours that were
    /// not needed before: a page of the file that both share may be free now.
    pub fn freed_places(&self, before: &ChunkCounts, now: &ChunkCounts) -> Vec<SegmentRange> {
        let before = self.needed_parts(|i| before.0[i] > 0);
        let now = self.needed_parts(|i| now.0[i] > 0);
        let joined = self.joined(|part| !now[part]).into_iter();
        let fresh = joined.filter(|parts| parts.clone().any(|part| before[part]));
        fresh
            .map(|parts| self.segment_range(&self.stretch(&parts)))
            .collect()
    }

    /// This container at another place, without the chunks whose count is 0 and the parts that only these have bytes in.
    pub fn moved(&self, counts: &ChunkCounts, segment: u32, offset: u32) -> Container {
        let chunks = self.chunks().zip(&counts.0).map(|(chunk, n)| StoredChunk {
            crc: chunk.crc.filter(|_| *n > 0),
            ..chunk
        });
        let needed = self.needed_parts(|i| counts.0[i] > 0);
        let encoded = self.encoded().map(|parts| Box::new(parts.only(&needed)));
        Container {
            encoded,
            base: self.base.clone(),
            ..Container::new(self.id, segment, offset, chunks)
        }
    }

    /// The value of its record.
    pub fn value(&self) -> Vec<u8> {
        let (version, codec) = match self.encoded() {
            None => (PLAIN_VERSION, 0),
            Some(parts) if self.base.is_some() => (BASED_VERSION, parts.codec as u8),
            Some(parts) => (ENCODED_VERSION, parts.codec as u8),
        };
        let mut value = vec![version, codec, 0, 0];
        for field in [self.segment, self.offset, self.chunks.len() as u32] {
            value.extend_from_slice(&field.to_le_bytes());
        }
        for chunk in self.chunks() {
            let dropped = u64::from(chunk.crc.is_none());
            varint::put(&mut value, u64::from(chunk.len) * 2 + dropped);
        }
        for crc in self.chunks.iter().filter_map(|chunk| chunk.crc) {
            value.extend_from_slice(&crc.to_le_bytes());
        }
        if let Some(parts) = self.encoded() {
            parts.encode(&mut value);
        }
        if let Some(base) = self.base() {
            base.encode(&mut value);
        }
        value
    }

    /// Reads a value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(id: ContainerId, value: &[u8]) -> Result<Container, &'static str> {
        const SHORT: &str = "cut short";
        let u32_at = |at: usize| Some(u32::from_le_bytes(*value.get(at..)?.first_chunk()?));
        let codec = match value.get(..2) {
            Some([PLAIN_VERSION, 0]) => None,
            Some([ENCODED_VERSION | BASED_VERSION, codec]) => {
                let known = CodecId::ALL.get(usize::from(*codec));
                Some(*known.ok_or("unknown codec")?)
            }
            _ => return Err("unknown version or codec"),
        };
        let (Some(segment), Some(offset), Some(n)) = (u32_at(4), u32_at(8), u32_at(12)) else {
            return Err(SHORT);
        };
        let mut rest = &value[HEAD..];
        if n as usize > rest.len() || n > MAX_CONTAINER_CHUNKS {
            return Err("wrong number of chunks");
        }
        let mut chunks = Vec::with_capacity(n as usize);
        let mut len = 0;
        for _ in 0..n {
            let head = varint::take(&mut rest).ok_or(SHORT)?;
            let chunk_len = head >> 1;
            len += chunk_len;
            let is_chunk = (1..=u64::from(MAX_CHUNK_BYTES)).contains(&chunk_len);
            if !is_chunk || len > MAX_CONTAINER_BYTES {
                return Err("chunks of a wrong length");
            }
            chunks.push(StoredChunk {
                len: chunk_len as u32,
                crc: (head & 1 == 0).then_some(0),
            });
        }
        for crc in chunks.iter_mut().filter_map(|chunk| chunk.crc.as_mut()) {
            let (bytes, behind) = rest.split_first_chunk().ok_or(SHORT)?;
            (*crc, rest) = (u32::from_le_bytes(*bytes), behind);
        }
        if chunks.is_empty() {
            return Err("wrong number of chunks");
        }
        let plain = Container::new(id, segment, offset, chunks);
        let container = match codec {
            None => plain,
            Some(codec) => {
                let parts = EncodedParts::decode(codec, plain.bytes(), &mut rest)?;
                plain.into_encoded(parts)
            }
        };
        let base = match value[0] {
            BASED_VERSION => Some(SpanRuns::decode(
                container.bytes(),
                std::mem::take(&mut rest),
            )?),
            _ => None,
        };
        let container = container.with_base(base);
        if !rest.is_empty() {
            return Err("bytes after its end");
        }
        let needed = container.needed_parts(|_| true);
        let is_whole =
            |(part, needed): (usize, &bool)| !needed || container.part_len(part).is_some();
        match needed.iter().enumerate().all(is_whole) {
            true => Ok(container),
            false => Err("a chunk without the parts that hold it"),
        }
    }
}

impl ChecksummedPieces for Container {
    fn segment(&self) -> u32 {
        self.segment
    }

    fn piece_of(&self, at: u64) -> usize {
        match self.encoded() {
            None => self.chunk_of(at),
            Some(parts) => parts.part_of(at),
        }
    }

    fn piece(&self, i: usize) -> Range<u64> {
        match self.encoded() {
            None => self.positions(i),
            Some(parts) => parts.range(i),
        }
    }

    fn checksum(&self, i: usize) -> u32 {
        let crc = match self.encoded() {
            None => self.chunks[i].crc,
            Some(parts) => parts.crc(i),
        };
        crc.unwrap_or_default()
    }

    fn segment_offset(&self, at: u64) -> u64 {
        let offset = u64::from(self.offset);
        match self.encoded() {
            None => {
                let i = self.chunk_of(at);
                offset + u64::from(self.chunks[i].at) + (at - self.positions(i).start)
            }
            Some(_) => offset + at,
        }
    }

    fn describe(&self, i: usize) -> String {
        let id = self.id;
        match self.encoded() {
            None => format!("container {id} chunk {i}"),
            Some(parts) => format!("container {id} {}", parts.describe(i)),
        }
    }
}

impl CachedRecord for Container {
    fn group(&self) -> u64 {
        self.id
    }

    fn addresses(&self) -> Range<u64> {
        0..u64::MAX
    }

    fn memory(&self) -> usize {
        let encoded = self.encoded().map_or(0, EncodedParts::memory);
        let base = self.base().map_or(0, SpanRuns::memory);
        160 + size_of::<ChunkPlace>() * self.chunks.len() + encoded + base
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::{Run, RunSource};
    use forebay_codec::general::{ByteCodec, GeneralCodec};
    use forebay_codec::{Codec, ElementLayout, ElementType, EncodedContainer};
    use proptest::prelude::*;

    fn chunks() -> impl Strategy<Value = Vec<StoredChunk>> {
        let chunk = (1u32..9000, any::<Option<u32>>());
        let chunks = prop::collection::vec(chunk, 1..40);
        chunks.prop_map(|chunks| {
            let chunk = |(len, crc)| StoredChunk { len, crc };
            chunks.into_iter().map(chunk).collect()
        })
    }

    proptest! {
        #[test]
        fn a_container_reads_back_and_says_where_each_position_lies(chunks in chunks()) {
            let container = Container::new(9, 3, 4096, chunks.clone());
            let value = container.value();
            prop_assert_eq!(Container::decode(9, &value), Ok(container.clone()));
            prop_assert!(Container::decode(9, &value[..value.len() - 1]).is_err());
            let (mut position, mut offset) = (0, 4096);
            for (i, chunk) in chunks.iter().enumerate() {
                let len = u64::from(chunk.len);
                prop_assert_eq!(container.positions(i), position..position + len);
                prop_assert_eq!(container.chunk(i), *chunk);
                for at in [position, position + len - 1] {
                    prop_assert_eq!(container.piece_of(at), i);
                    prop_assert_eq!(container.segment_offset(at), offset + (at - position));
                    prop_assert_eq!(container.chunks_over(&(at..at + 1)), chunk.crc.map(|_| i..i + 1));
                }
                position += len;
                offset += chunk.crc.map_or(0, |_| len);
            }
            prop_assert_eq!((container.bytes(), container.stored_len()), (position, offset - 4096));
            prop_assert_eq!(container.chunks_over(&(0..position + 1)), None);
        }

        #[test]
        fn a_moved_container_keeps_positions_and_drops_what_nothing_names(
            chunks in chunks(), named in prop::collection::vec(0u64..2, 40),
        ) {
            let container = Container::new(9, 3, 4096, chunks.clone());
            let counts = ChunkCounts(named[..chunks.len()].into());
            let moved = container.moved(&counts, 5, 70_000);
            let kept = |i: usize| chunks[i].crc.is_some() && counts.0[i] > 0;
            let mut at = 70_000;
            for (i, chunk) in chunks.iter().enumerate() {
                prop_assert_eq!(moved.piece(i), container.piece(i));
                prop_assert_eq!(moved.chunk(i).crc, chunk.crc.filter(|_| kept(i)));
                if kept(i) {
                    prop_assert_eq!(moved.segment_offset(moved.piece(i).start), at);
                    at += u64::from(chunk.len);
                }
            }
            let stretches = moved.stretches(|_| true);
            prop_assert_eq!(stretches.iter().map(|s| s.end - s.start).sum::<u64>(), at - 70_000);
            prop_assert!(stretches.windows(2).all(|w| w[0].end < w[1].start));
        }

        #[test]
        fn an_encoded_container_reads_back_and_keeps_the_parts_that_named_chunks_need(
            chunks in chunks(), named in prop::collection::vec(0u64..3, 40), again in prop::collection::vec(0u64..2, 40),
            based in any::<bool>(),
        ) {
            let all = chunks.iter().map(|c| StoredChunk { crc: Some(7), ..*c });
            let plain = Container::new(9, 3, 4096, all);
            // Every other piece is shorter than its raw bytes.
            let raw: Vec<u8> = (0..plain.bytes()).map(|i| (i >> 12 & 1) as u8 * ((i * 31) >> 3) as u8).collect();
            let mut encoded = EncodedContainer::new();
            let codec = GeneralCodec { codec: ByteCodec::Lz4, shuffle: false };
            codec.encode(&ElementLayout::plain(ElementType::F32), &raw, &mut encoded).unwrap();
            let whole = plain.into_encoded(EncodedParts::of(CodecId::Lz4, &encoded));
            prop_assert_eq!(Container::decode(9, &whole.value()), Ok(whole.clone()));
            prop_assert_eq!(whole.stored_len(), encoded.encoded_len() as u64);
            let zeros = Run { len: whole.bytes() as u32, source: RunSource::Zeros };
            let whole = whole.with_base(based.then(|| std::iter::once(zeros).collect()));
            prop_assert_eq!(Container::decode(9, &whole.value()), Ok(whole.clone()));
            let counts = |counts: &[u64]| ChunkCounts(counts[..chunks.len()].into());
            let (first, second) = (counts(&named), counts(&named.iter().zip(&again).map(|(a, b)| a * b).collect::<Vec<_>>()));
            prop_assume!(!first.are_zero());
            let moved = whole.moved(&first, 5, 70_000);
            let value = moved.value();
            prop_assert_eq!(Container::decode(9, &value), Ok(moved.clone()));
            prop_assert!(Container::decode(9, &value[..value.len() - 1]).is_err());
            prop_assert_eq!(moved.stored_len(), whole.named_len(&first));
            prop_assert_eq!((moved.bytes(), moved.named_raw_len(&first)), (whole.bytes(), whole.named_raw_len(&first)));
            // What is freed and what is still needed are all there is, and nothing twice.
            let len = |places: &[SegmentRange]| places.iter().map(|r| r.end - r.start).sum::<u64>();
            let (kept, freed) = (moved.places(|i| second.0[i] > 0), moved.freed_places(&first, &second));
            prop_assert_eq!(len(&kept), moved.named_len(&second));
            prop_assert_eq!(len(&kept) + len(&freed), moved.stored_len());
            let mut both = [kept, freed].concat();
            both.sort_unstable();
            prop_assert!(both.windows(2).all(|w| w[0].end <= w[1].start));
            for i in (0..chunks.len()).filter(|i| first.0[*i] > 0) {
                for part in EncodedParts::over(&moved.positions(i)) {
                    prop_assert!(moved.chunks_of_part(part).contains(&i));
                    prop_assert_eq!(moved.checksum(part), forebay_checksum::crc32c(encoded.piece(part - 1)));
                }
            }
        }

        #[test]
        fn any_bytes_are_refused_or_a_container(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80), n in 0u32..12, version in 1u8..5, codec in 0u8..9,
        ) {
            if bytes.len() >= HEAD {
                bytes[..4].copy_from_slice(&[version, codec, 0, 0]);
                bytes[12..16].copy_from_slice(&n.to_le_bytes());
            }
            if let Ok(container) = Container::decode(1, &bytes) {
                prop_assert!(container.count() > 0 && container.bytes() <= MAX_CONTAINER_BYTES);
                prop_assert!(container.base().is_none_or(|base| base.bytes() == container.bytes()));
                let _ = container.segment_offset(container.bytes() - 1);
            }
        }
    }
}
