//! Cutting the bytes of a log into chunks, the units of deduplication. Pure: it takes slices and returns ranges.
//!
//! Chunks have one size, but for shorter ones at the ends of what is cut and where the grid moves. They lie on a grid
//! whose *phase*, the offset of its lines from multiples of the chunk size in log addresses, follows the content: **anchors** are
//! places that content alone chooses, and a table remembers how each lay on the grid when it was cut last. Nothing but the
//! memory of what was stored can say which phase is right: the same random bytes may be a page-aligned file in one place
//! and the middle of one with a header in another.
//!
//! | module | what it owns |
//! |---|---|
//! | `anchor` | which places are anchors |
//! | `anchor_table` | how anchors lay on the grid |
//! | `grid` | where the lines of the grid lie, and when it moves |
//! | `cutter`, `parts` | from pieces of a log to chunks; two pieces seen as one |
//! | `zero` | chunks that are holes |
//!
//! Invariants: chunks follow each other without gap or overlap and hold every byte pushed, each chunk at most the chunk
//! size; the same bytes at the same addresses, in pieces of whatever sizes and with an equal table, are cut at the same places;
//! bytes that wait to be cut are at most [`LOOKAHEAD_BYTES`], a chunk and a block of `anchor`.
mod anchor;
mod anchor_table;
mod cutter;
mod grid;
mod parts;
mod zero;

pub use anchor_table::AnchorTable;
pub use cutter::{Cutter, MAX_CUTTER_BYTES};
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
