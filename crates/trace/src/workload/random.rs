//! Random calls in one shared file: every block once in random order, or anywhere, overlapping.

use super::{CallRange, Layout};

/// See the module.
#[derive(Debug, Clone)]
pub struct Random {
    /// Number of ranks.
    pub ranks: u32,
    /// Calls of a rank.
    pub calls: u64,
    /// Bytes of a block; the longest call if `overlap`.
    pub len: u64,
    /// Lengths from 1 to `len` at any offset, instead of each block once.
    pub overlap: bool,
    /// Another seed, another order.
    pub seed: u64,
}

impl Random {
    fn blocks(&self) -> u64 {
        u64::from(self.ranks) * self.calls
    }
}

/// A permutation of `0..n` that needs no memory: a Feistel network over the next power of four, walked until it lands inside.
#[derive(Debug, Clone, Copy)]
pub struct Shuffle {
    /// How many numbers.
    pub n: u64,
    /// Another seed, another order.
    pub seed: u64,
}

impl Shuffle {
    /// The number at a place below `n`.
    pub fn at(&self, place: u64) -> u64 {
        let bits = (64 - (self.n - 1).leading_zeros()).div_ceil(2).max(1);
        let mask = (1u64 << bits) - 1;
        let mut at = place;
        loop {
            let (mut left, mut right) = (at >> bits, at & mask);
            for round in 0..4u64 {
                let hash = hash(self.seed, right << 2 | round);
                (left, right) = (right, left ^ (hash & mask));
            }
            at = left << bits | right;
            if at < self.n {
                return at;
            }
        }
    }
}

fn hash(seed: u64, n: u64) -> u64 {
    let mut z = n.wrapping_add(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Layout for Random {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn files(&self) -> Vec<String> {
        vec!["random".into()]
    }

    fn calls(&self, _rank: u32) -> u64 {
        self.calls
    }

    fn access(&self, rank: u32, index: u64) -> CallRange {
        let number = u64::from(rank) * self.calls + index;
        if !self.overlap {
            let (n, seed) = (self.blocks(), self.seed);
            return CallRange::shared(Shuffle { n, seed }.at(number) * self.len, self.len);
        }
        let len = 1 + hash(self.seed, number * 2) % self.len;
        let offset = hash(self.seed, number * 2 + 1) % (self.blocks() * self.len - len + 1);
        CallRange::shared(offset, len)
    }
}
