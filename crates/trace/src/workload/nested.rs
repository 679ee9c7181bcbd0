//! Nested strides: a stride of strides of strides, as the rows of a block in a matrix (2-d) or a cube (3-d).

use super::{CallRange, Layout};

/// Calls of `len` bytes at a step of each level, the first level fastest. Ranks take turns in the first level; each further level starts
/// a gap after the end of the one before it. Ranks do not overlap.
#[derive(Debug, Clone)]
pub struct Nested {
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes of a call.
    pub len: u64,
    /// Steps of each level, innermost first.
    pub counts: Vec<u64>,
    /// Bytes between levels.
    pub gap: u64,
}

impl Layout for Nested {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn files(&self) -> Vec<String> {
        vec!["nested".into()]
    }

    fn calls(&self, _rank: u32) -> u64 {
        self.counts.iter().product()
    }

    fn access(&self, rank: u32, index: u64) -> CallRange {
        let (mut offset, mut rest) = (u64::from(rank) * self.len, index);
        let mut stride = u64::from(self.ranks) * self.len;
        for count in &self.counts {
            offset += rest % count * stride;
            rest /= count;
            stride = stride * count + self.gap;
        }
        CallRange::shared(offset, self.len)
    }
}
