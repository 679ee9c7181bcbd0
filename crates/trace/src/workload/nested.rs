//! Nested strides: a stride of strides of strides, as the rows of a block in a matrix (2-d) or a cube (3-d).

use super::{CallRange, Layout};

/// One level: `count` steps of `stride` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NestedLevel {
    /// Steps.
    pub count: u64,
    /// Bytes between them.
    pub stride: u64,
}

/// Calls of `len` bytes at `rank * rank_stride` plus a step of each level, the first level fastest.
#[derive(Debug, Clone)]
pub struct Nested {
    /// Number of ranks.
    pub ranks: u32,
    /// Distance of neighbouring ranks' first calls, bytes.
    pub rank_stride: u64,
    /// Bytes of a call.
    pub len: u64,
    /// The levels, innermost first.
    pub levels: Vec<NestedLevel>,
}

impl Nested {
    /// `counts` steps of each level, innermost first: ranks take turns in the inner level; each outer level starts a gap
    /// of `gap` bytes after the inner one's end. Ranks do not overlap.
    pub fn in_turn(ranks: u32, len: u64, counts: &[u64], gap: u64) -> Nested {
        let mut stride = u64::from(ranks) * len;
        let mut levels = Vec::new();
        for &count in counts {
            levels.push(NestedLevel { count, stride });
            stride = stride * count + gap;
        }
        Nested {
            ranks,
            rank_stride: len,
            len,
            levels,
        }
    }
}

impl Layout for Nested {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn files(&self) -> Vec<String> {
        vec!["nested".into()]
    }

    fn calls(&self, _rank: u32) -> u64 {
        self.levels.iter().map(|l| l.count).product()
    }

    fn access(&self, rank: u32, index: u64) -> CallRange {
        let (mut offset, mut rest) = (u64::from(rank) * self.rank_stride, index);
        for level in &self.levels {
            offset += rest % level.count * level.stride;
            rest /= level.count;
        }
        CallRange {
            file: 0,
            offset,
            len: self.len,
        }
    }
}
