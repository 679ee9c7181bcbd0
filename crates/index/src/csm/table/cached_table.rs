//! The cached parts of one table file: its metadata region, and blocks as they were read.
//!
//! Invariant: `bytes` of a slot is what the cache has counted for it; both change under the slot's lock.
use super::block_map::BlockMap;
use crate::cluster::{Alpha, PendingBlockReads};
use forebay_storage::Error;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of a file that were read at once, and hold some blocks.
pub struct ReadPiece {
    /// Where they start in the file.
    pub(super) start: u64,
    pub(super) bytes: Box<[u8]>,
}

/// One compressed block; its checksum was verified.
#[derive(Clone)]
pub struct RawBlock {
    piece: Arc<ReadPiece>,
    from: u32,
    length: u32,
}

impl RawBlock {
    pub(super) fn new(piece: &Arc<ReadPiece>, places: &BlockMap, block: usize) -> RawBlock {
        let start = places.offset(block);
        RawBlock {
            piece: piece.clone(),
            from: (start - piece.start) as u32,
            length: (places.end(block) - start) as u32,
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.piece.bytes[self.from as usize..][..self.length as usize]
    }
}

/// Tells whether it pays to read what lies beside the blocks that are asked for: if not, few blocks are asked for between two
/// reads, because those read with others are not wanted before they have to go.
#[derive(Debug, Default)]
pub struct ReadWidth {
    asked: AtomicU64,
    rounds: AtomicU64,
    narrow: AtomicBool,
}

impl ReadWidth {
    /// Looked at after this many reads.
    const WINDOW_READS: u64 = 256;
    /// Fewer blocks asked for per read than this are few: a wide read takes as long as two or three narrow ones.
    const FEW_BLOCKS_A_READ: u64 = 2;

    /// Whether wide reads did not pay of late.
    pub fn is_narrow(&self) -> bool {
        self.narrow.load(Ordering::Relaxed)
    }

    /// Counts requested blocks.
    pub fn add_asked(&self, n: u64) {
        self.asked.fetch_add(n, Ordering::Relaxed);
    }

    /// A read was made.
    pub fn add_round(&self) {
        // One of several threads sees the number.
        if self.rounds.fetch_add(1, Ordering::Relaxed) + 1 == ReadWidth::WINDOW_READS {
            let asked = self.asked.swap(0, Ordering::Relaxed);
            self.narrow.store(
                asked < ReadWidth::FEW_BLOCKS_A_READ * ReadWidth::WINDOW_READS,
                Ordering::Relaxed,
            );
            self.rounds.store(0, Ordering::Relaxed);
        }
    }
}

/// One caller's blocks that are not in memory.
#[derive(Default)]
pub(super) struct BlockTicket {
    /// Blocks still to come.
    pub(super) missing: usize,
    /// Those that came.
    pub(super) got: Vec<(u32, Arc<ReadPiece>)>,
    /// Why one did not.
    pub(super) failed: Option<Error>,
}

pub(super) type SharedBlockTicket = Arc<Mutex<BlockTicket>>;

/// What is kept of a table, and who waits for more.
pub struct CachedTable {
    pub(super) state: Mutex<CachedTableState>,
    /// Wakes those who wait, after each round.
    pub(super) changed: Condvar,
    /// When it was used last.
    used: AtomicU64,
}

pub(super) struct CachedTableState {
    pub(super) places: Option<Arc<BlockMap>>,
    /// By block; no blocks at all until the first is read.
    pub(super) kept: Vec<Option<Arc<ReadPiece>>>,
    /// Memory of both.
    pub(super) bytes: usize,
    pub(super) demand: PendingBlockReads<SharedBlockTicket>,
    /// Whether somebody reads.
    pub(super) reading: bool,
}

impl CachedTable {
    /// Nothing kept.
    pub fn new(alpha: Alpha) -> CachedTable {
        CachedTable {
            state: Mutex::new(CachedTableState {
                places: None,
                kept: Vec::new(),
                bytes: 0,
                demand: PendingBlockReads::new(alpha),
                reading: false,
            }),
            changed: Condvar::new(),
            used: AtomicU64::new(0),
        }
    }

    /// When it was used last; `None` if it holds nothing.
    pub fn last_use(&self) -> Option<u64> {
        let holds = self.state.lock().bytes > 0;
        holds.then(|| self.used.load(Ordering::Relaxed))
    }

    /// Forgets what is kept; returns how many bytes that were.
    pub fn empty(&self) -> usize {
        let mut state = self.state.lock();
        state.places = None;
        state.kept = Vec::new();
        std::mem::take(&mut state.bytes)
    }

    /// Memory of the metadata region, if it is here.
    pub fn places_bytes(&self) -> usize {
        let state = self.state.lock();
        state.places.as_ref().map_or(0, |places| places.bytes())
    }

    /// The metadata region, if it is here.
    pub fn places(&self) -> Option<Arc<BlockMap>> {
        self.state.lock().places.clone()
    }

    /// Keeps it; `count` hears under the lock how many bytes more are kept.
    pub fn keep_places(&self, places: &Arc<BlockMap>, count: impl FnOnce(usize)) {
        let mut state = self.state.lock();
        if state.places.is_none() {
            state.places = Some(places.clone());
            let more = places.bytes();
            state.bytes += more;
            count(more);
        }
    }

    /// Marks it as used.
    pub fn mark_used(&self, now: u64) {
        self.used.store(now, Ordering::Relaxed);
    }
}

impl CachedTableState {
    /// Keeps blocks of a piece; returns how many bytes more are kept.
    pub(super) fn keep(&mut self, blocks: usize, piece: &Arc<ReadPiece>, whole: &[u32]) -> usize {
        let mut more = piece.bytes.len();
        if self.kept.is_empty() {
            self.kept = vec![None; blocks];
            more += blocks * size_of::<Option<Arc<ReadPiece>>>();
        }
        for block in whole {
            self.kept[*block as usize] = Some(piece.clone());
        }
        self.bytes += more;
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_become_narrow_while_few_blocks_are_asked_for_between_them_and_wide_again() {
        let width = ReadWidth::default();
        let window = |asked: u64| {
            for _ in 0..ReadWidth::WINDOW_READS {
                width.add_asked(asked);
                width.add_round();
            }
            width.is_narrow()
        };
        assert!(!width.is_narrow());
        assert_eq!(
            [3, 1, 1, 2, 20, 1].map(window),
            [false, true, true, false, false, true]
        );
    }
}
