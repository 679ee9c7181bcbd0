//! IOR, and what has its shapes (LANL's FS-TEST: checkpoints of many equal writes; Pattern PLFS, section 3.1, 512 ranks, 4 KiB, 16 Ki to
//! 256 Ki writes): segments of one block per rank, each block written in transfers.
//!
//! ```text
//! shared file     | rank 0 block | rank 1 block | ... | rank 0 block | ...      segment 0, segment 1
//! file per rank   | block | block | ...
//! ```
//!
//! Fixed-stride N-1 (MetaKV, section IV) is one transfer per block: rank `r`'s call `i` is at `(i * ranks + r) * transfer`.

use super::{CallRange, Layout};

/// See the module.
#[derive(Debug, Clone)]
pub struct Ior {
    /// What its files are called.
    pub name: &'static str,
    /// Number of ranks.
    pub ranks: u32,
    /// Segments (IOR `-s`).
    pub segments: u64,
    /// Transfers in a block (IOR `-b` by `-t`).
    pub transfers: u64,
    /// Bytes of a call (IOR `-t`).
    pub transfer: u64,
    /// Whether each rank has its own file (IOR `-F`).
    pub file_per_rank: bool,
}

impl Layout for Ior {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn files(&self) -> Vec<String> {
        if self.file_per_rank {
            let name = |rank| format!("{}.{rank:05}", self.name);
            (0..self.ranks).map(name).collect()
        } else {
            vec![self.name.into()]
        }
    }

    fn calls(&self, _rank: u32) -> u64 {
        self.segments * self.transfers
    }

    fn access(&self, rank: u32, index: u64) -> CallRange {
        let (segment, transfer) = (index / self.transfers, index % self.transfers);
        let (ranks, place) = if self.file_per_rank {
            (1, 0)
        } else {
            (self.ranks, rank)
        };
        let block = segment * u64::from(ranks) + u64::from(place);
        CallRange {
            file: if self.file_per_rank { rank } else { 0 },
            offset: (block * self.transfers + transfer) * self.transfer,
            len: self.transfer,
        }
    }
}
