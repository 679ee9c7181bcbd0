//! A container as its record has it: where it lies, its chunks, their checksums.
//!
//! ```text
//!  0  1  version = 1
//!  1  1  codec: 0, the bytes are as they are
//!  2  2  zero
//!  4  4  segment file                                       u32 little-endian, as all below
//!  8  4  offset of the first stored byte in the segment
//! 12  4  n, number of chunks
//! 16     n times: length * 2 + dropped, varint
//!        CRC32C 4 of each chunk that is not dropped
//! ```
//! A chunk is **dropped** when the container moves and nothing names it: it keeps its positions, and has no bytes. The others
//! lie one behind the other.
//!
//! Invariants: there is a chunk, and no more than [`MAX_CONTAINER_CHUNKS`]; none is empty; together they are
//! [`MAX_CONTAINER_BYTES`] at most.
use super::{ContainerId, Counts, MAX_CONTAINER_BYTES};
use crate::chunk::MAX_CHUNK_BYTES;
use crate::cit::MAX_CONTAINER_CHUNKS;
use crate::pieces::Pieces;
use crate::record_cache::CachedRecord;
use crate::segment::SegmentRange;
use forebay_codec::varint;
use std::ops::Range;

const VERSION: u8 = 1;
/// The only codec there is.
const PLAIN: u8 = 0;
const HEAD: usize = 16;

/// A chunk of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredChunk {
    /// Bytes.
    pub len: u32,
    /// CRC32C. `None`: it was dropped.
    pub crc: Option<u32>,
}

/// Where a chunk is: its positions and its stored bytes.
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
}

impl Container {
    /// A container of these chunks, which must keep the invariants.
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
        }
    }

    /// Number of chunks.
    pub fn count(&self) -> usize {
        self.chunks.len()
    }

    /// Number of positions: the lengths of all chunks together.
    pub fn bytes(&self) -> u64 {
        self.chunks.last().map_or(0, |last| last.end.into())
    }

    /// One of its chunks.
    pub fn chunk(&self, i: usize) -> StoredChunk {
        let positions = self.piece(i);
        StoredChunk {
            len: (positions.end - positions.start) as u32,
            crc: self.chunks[i].crc,
        }
    }

    /// All of them.
    pub fn chunks(&self) -> impl Iterator<Item = StoredChunk> {
        (0..self.count()).map(|i| self.chunk(i))
    }

    /// Stored bytes in the segment, of named and other chunks.
    pub fn stored_len(&self) -> u64 {
        let stored = self.chunks().filter(|chunk| chunk.crc.is_some());
        stored.map(|chunk| u64::from(chunk.len)).sum()
    }

    /// The chunks that have a byte in these positions. `None`: not all of the positions are stored.
    pub fn chunks_over(&self, positions: &Range<u64>) -> Option<Range<usize>> {
        if positions.is_empty() || positions.end > self.bytes() {
            return None;
        }
        let chunks = self.piece_of(positions.start)..self.piece_of(positions.end - 1) + 1;
        let mut stored = self.chunks[chunks.clone()].iter();
        stored.all(|chunk| chunk.crc.is_some()).then_some(chunks)
    }

    /// Bytes of the named chunks.
    pub fn named_len(&self, counts: &Counts) -> u64 {
        let named = self.chunks().zip(&counts.0).filter(|(_, n)| **n > 0);
        named.map(|(chunk, _)| u64::from(chunk.len)).sum()
    }

    /// Position ranges of the stored chunks that `is_wanted` selects; adjacent ones are joined.
    pub fn stretches(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        for i in (0..self.count()).filter(|i| self.chunks[*i].crc.is_some() && is_wanted(*i)) {
            let positions = self.piece(i);
            match found.last_mut() {
                Some(last) if last.end == positions.start => last.end = positions.end,
                _ => found.push(positions),
            }
        }
        found
    }

    /// Segment ranges of the chunks that `is_wanted` selects.
    pub fn places(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<SegmentRange> {
        let stretches = self.stretches(is_wanted).into_iter();
        stretches.map(|s| self.segment_range(&s)).collect()
    }

    /// This container at another place, without the chunks whose count is 0.
    pub fn moved(&self, counts: &Counts, segment: u32, offset: u32) -> Container {
        let chunks = self.chunks().zip(&counts.0).map(|(chunk, n)| StoredChunk {
            crc: chunk.crc.filter(|_| *n > 0),
            ..chunk
        });
        Container::new(self.id, segment, offset, chunks)
    }

    /// The value of its record.
    pub fn value(&self) -> Vec<u8> {
        let mut value = vec![VERSION, PLAIN, 0, 0];
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
        value
    }

    /// Reads a value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(id: ContainerId, value: &[u8]) -> Result<Container, &'static str> {
        const SHORT: &str = "cut short";
        let u32_at = |at: usize| Some(u32::from_le_bytes(*value.get(at..)?.first_chunk()?));
        if value.first() != Some(&VERSION) || value.get(1) != Some(&PLAIN) {
            return Err("unknown version or codec");
        }
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
        match chunks.is_empty() || !rest.is_empty() {
            true => Err("wrong number of chunks"),
            false => Ok(Container::new(id, segment, offset, chunks)),
        }
    }
}

impl Pieces for Container {
    fn segment(&self) -> u32 {
        self.segment
    }

    fn stored(&self) -> Range<u64> {
        0..self.bytes()
    }

    fn piece_of(&self, at: u64) -> usize {
        self.chunks.partition_point(|c| u64::from(c.end) <= at)
    }

    fn piece(&self, i: usize) -> Range<u64> {
        let start = i.checked_sub(1).map_or(0, |before| self.chunks[before].end);
        start.into()..self.chunks[i].end.into()
    }

    fn checksum(&self, i: usize) -> u32 {
        self.chunks[i].crc.unwrap_or_default()
    }

    fn segment_offset(&self, at: u64) -> u64 {
        let i = self.piece_of(at);
        u64::from(self.offset) + u64::from(self.chunks[i].at) + (at - self.piece(i).start)
    }

    fn describe(&self, i: usize) -> String {
        format!("container {} chunk {i}", self.id)
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
        160 + size_of::<ChunkPlace>() * self.chunks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
                prop_assert_eq!(container.piece(i), position..position + len);
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
            let counts = Counts(named[..chunks.len()].into());
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
        fn any_bytes_are_refused_or_a_container(mut bytes in prop::collection::vec(any::<u8>(), 0..80), n in 0u32..12) {
            if bytes.len() >= HEAD {
                bytes[..4].copy_from_slice(&[VERSION, PLAIN, 0, 0]);
                bytes[12..16].copy_from_slice(&n.to_le_bytes());
            }
            if let Ok(container) = Container::decode(1, &bytes) {
                prop_assert!(container.count() > 0 && container.bytes() <= MAX_CONTAINER_BYTES);
                let _ = container.segment_offset(container.bytes() - 1);
            }
        }
    }
}
