//! The lanes of a span: runs of numbers that can be decoded apart, as bits. `lane_encoder` writes, `lane_decoder` reads them.
//!
//! A number is the code of its symbol and the raw bits, low bits first; the code is from the table that the symbol before
//! chooses.
//!
//! Invariant: an index into a buffer of bits is masked, so that damaged bits lead to wrong numbers, never outside the buffer.
use crate::element::Word;

/// The most tables of codes that a container has.
pub(super) const CONTEXTS: usize = 4;
/// The most lanes of a span.
pub(super) const LANES: usize = 8;
/// Which table codes the first symbol of a lane, if there are four.
const FIRST_CONTEXT: usize = 1;
/// The bytes of a buffer of bits after the place that an index can name.
pub(super) const SLACK: usize = 8;

/// Elements in a lane: at most eight lanes in a span, and few numbers to pass on the way to one.
pub(super) const fn lane_len<T: Word>() -> usize {
    if T::BYTES == 2 { 256 } else { 128 }
}

/// Which table codes the symbol after a symbol: the number of thresholds that its bit length exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SymbolContexts {
    /// Ascending; `None`: there is one table.
    pub(super) thresholds: Option<[u8; CONTEXTS - 1]>,
}

impl SymbolContexts {
    pub(super) const ONE: SymbolContexts = SymbolContexts { thresholds: None };

    pub(super) fn count(self) -> usize {
        self.thresholds.map_or(1, |_| CONTEXTS)
    }

    pub(super) fn first(self) -> usize {
        self.thresholds.map_or(0, |_| FIRST_CONTEXT)
    }

    pub(super) fn after(self, symbol: usize) -> usize {
        let exceeded = |t: &&u8| symbol / 2 > usize::from(**t);
        self.thresholds
            .map_or(0, |thresholds| thresholds.iter().filter(exceeded).count())
    }
}

/// The lowest bits.
#[inline(always)]
pub(super) fn low(bits: u64, n: u32) -> u64 {
    if n >= 64 { bits } else { bits & ((1 << n) - 1) }
}
