//! Cuts the bytes of a log into chunks, the units of deduplication. Pure: it takes slices and returns ranges.
//!
//! Chunks have one size. They are shorter only at the ends of the input and where the grid moves. The grid has lines one chunk size
//! apart; its *phase* is the offset of the lines from multiples of the chunk size in log addresses. The phase follows the content:
//! **anchors** are positions that the content alone chooses, and a table remembers how far each lay behind a line when it was cut
//! last. Only this memory can tell the right phase: the same bytes may be a page-aligned file in one place and the middle of a file
//! with a header in another.
//!
//! | module | what it owns |
//! |---|---|
//! | `anchor` | which positions are anchors |
//! | `anchor_table` | how anchors lay on the grid |
//! | `grid` | where the lines of the grid lie, and when it moves |
//! | `cutter`, `parts` | from pieces of a log to chunks; two pieces seen as one |
//! | `zero` | chunks that are holes |
//!
//! Invariants:
//! - Chunks follow each other without gap or overlap, hold every byte pushed, and are at most the chunk size.
//! - The same bytes at the same addresses, with an equal table, are cut at the same places, however they were split into pieces.
//! - At most [`LOOKAHEAD_BYTES`], a chunk and a block of `anchor` wait to be cut.
mod anchor;
mod anchor_table;
mod cutter;
mod grid;
mod parts;
mod zero;

pub use anchor_table::AnchorTable;
pub use cutter::Cutter;
pub use zero::is_zero;

use std::ops::Range;

/// The smallest chunk size; bytes.
pub const MIN_CHUNK_BYTES: u32 = 4 << 10;
/// The largest chunk size; bytes.
pub const MAX_CHUNK_BYTES: u32 = 64 << 10;
/// How far behind a chunk the cutter looks before it cuts it; bytes.
pub const LOOKAHEAD_BYTES: usize = 256 << 10;

/// The size of whole chunks: a power of two from [`MIN_CHUNK_BYTES`] to [`MAX_CHUNK_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkSize(u32);

impl ChunkSize {
    /// 4 KiB.
    pub const MIN: ChunkSize = ChunkSize(MIN_CHUNK_BYTES);

    /// `None` if it is no such size.
    pub fn new(bytes: u32) -> Option<ChunkSize> {
        let fits = bytes.is_power_of_two() && (MIN_CHUNK_BYTES..=MAX_CHUNK_BYTES).contains(&bytes);
        fits.then_some(ChunkSize(bytes))
    }

    /// In bytes.
    pub fn bytes(self) -> usize {
        self.0 as usize
    }
}

/// A chunk as it is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Log address of its first byte.
    pub addr: u64,
    /// Its bytes; at least one, at most the chunk size.
    pub bytes: &'a [u8],
    /// All of them are zero: it is stored as a hole.
    pub zero: bool,
}

impl Chunk<'_> {
    /// The log addresses that it covers.
    pub fn range(&self) -> Range<u64> {
        self.addr..self.addr + self.bytes.len() as u64
    }
}
