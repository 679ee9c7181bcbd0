//! The stored parts of an encoded container: part 0 is the codec's head, part `i + 1` is piece `i`, which holds the raw bytes from
//! position `i` * 4 KiB on (`forebay_codec::container`).
//!
//! ```text
//! after the chunks of a container's record (`record`):
//!   length * 2 + dropped   varint, of each part; a dropped part has length 0
//!   CRC32C 4               little-endian, of each part that is not dropped
//! ```
//! A part is found by its offset from the container's first stored byte.
//!
//! Invariants: there are as many parts as the raw bytes say; no piece is longer than its raw bytes, nor the head than
//! [`MAX_HEAD_LEN`]; a part that is not dropped is not empty.
use forebay_codec::container::{MAX_HEAD_LEN, PIECE_LEN, piece_count};
use forebay_codec::{CodecId, EncodedContainer, varint};
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PartPlace {
    /// Offset after its last byte.
    end: u32,
    /// CRC32C of its stored bytes. `None`: it was dropped.
    crc: Option<u32>,
}

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedParts {
    /// The codec of all pieces.
    pub codec: CodecId,
    parts: Box<[PartPlace]>,
}

impl EncodedParts {
    /// The part that is the head.
    pub const HEAD: usize = 0;

    /// The parts of an encoded container, whose bytes lie as [`EncodedContainer::head`] and then [`EncodedContainer::bytes`].
    pub fn of(codec: CodecId, encoded: &EncodedContainer) -> EncodedParts {
        let pieces = (0..encoded.pieces()).map(|i| encoded.piece(i));
        let parts = std::iter::once(encoded.head()).chain(pieces);
        let with_crc = parts.map(|part| (part.len() as u32, Some(forebay_checksum::crc32c(part))));
        EncodedParts::place(codec, with_crc)
    }

    /// Parts of these lengths and checksums, one behind the other.
    fn place(codec: CodecId, parts: impl Iterator<Item = (u32, Option<u32>)>) -> EncodedParts {
        let mut end = 0;
        let parts = parts.map(|(len, crc)| {
            end += len;
            PartPlace { end, crc }
        });
        EncodedParts {
            codec,
            parts: parts.collect(),
        }
    }

    /// Number of parts.
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// Offsets of a part.
    pub fn range(&self, part: usize) -> Range<u64> {
        let start = part
            .checked_sub(1)
            .map_or(0, |before| self.parts[before].end);
        start.into()..self.parts[part].end.into()
    }

    /// Stored bytes of a part.
    pub fn len(&self, part: usize) -> u64 {
        let Range { start, end } = self.range(part);
        end - start
    }

    /// CRC32C of a part. `None`: it was dropped.
    pub fn crc(&self, part: usize) -> Option<u32> {
        self.parts[part].crc
    }

    /// The part that holds the stored byte at this offset.
    pub fn part_of(&self, at: u64) -> usize {
        self.parts.partition_point(|p| u64::from(p.end) <= at)
    }

    /// The parts that hold these raw positions, beside the head.
    pub fn over(positions: &Range<u64>) -> Range<usize> {
        let piece = |position: u64| position as usize / PIECE_LEN;
        1 + piece(positions.start)..2 + piece(positions.end - 1)
    }

    /// The raw positions that need a part, in a container of so many raw bytes; of the head that is all.
    pub fn raw_positions(part: usize, raw_len: u64) -> Range<u64> {
        match part.checked_sub(1) {
            None => 0..raw_len,
            Some(piece) => {
                let start = (piece * PIECE_LEN) as u64;
                start..raw_len.min(start + PIECE_LEN as u64)
            }
        }
    }

    /// These parts, without those that are not needed.
    pub fn only(&self, needed: &[bool]) -> EncodedParts {
        let parts = (0..self.count()).map(|part| match needed[part] {
            true => (self.len(part) as u32, self.crc(part)),
            false => (0, None),
        });
        EncodedParts::place(self.codec, parts)
    }

    /// What a part is called in a report of damage.
    pub fn describe(&self, part: usize) -> String {
        match part.checked_sub(1) {
            None => format!("head ({})", self.codec.name()),
            Some(piece) => format!("piece {piece} ({})", self.codec.name()),
        }
    }

    /// Memory, bytes.
    pub fn memory(&self) -> usize {
        size_of::<PartPlace>() * self.parts.len()
    }

    /// Appends them to a record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for part in 0..self.count() {
            let dropped = u64::from(self.crc(part).is_none());
            varint::put(out, self.len(part) * 2 + dropped);
        }
        for crc in self.parts.iter().filter_map(|part| part.crc) {
            out.extend_from_slice(&crc.to_le_bytes());
        }
    }

    /// Takes the parts of a container of so many raw bytes from the front of `rest`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(
        codec: CodecId,
        raw_len: u64,
        rest: &mut &[u8],
    ) -> Result<EncodedParts, &'static str> {
        const SHORT: &str = "cut short";
        let count = 1 + piece_count(raw_len as usize);
        let mut parts = Vec::with_capacity(count);
        for part in 0..count {
            let head = varint::take(rest).ok_or(SHORT)?;
            let (len, is_dropped) = (head >> 1, head & 1 == 1);
            let raw = EncodedParts::raw_positions(part, raw_len);
            let most = match part {
                EncodedParts::HEAD => MAX_HEAD_LEN as u64,
                _ => raw.end - raw.start,
            };
            if is_dropped != (len == 0) || len > most {
                return Err("parts of a wrong length");
            }
            parts.push((len as u32, (!is_dropped).then_some(0)));
        }
        for crc in parts.iter_mut().filter_map(|(_, crc)| crc.as_mut()) {
            let (bytes, behind) = rest.split_first_chunk().ok_or(SHORT)?;
            (*crc, *rest) = (u32::from_le_bytes(*bytes), behind);
        }
        Ok(EncodedParts::place(codec, parts.into_iter()))
    }
}
