//! The lanes of a piece: runs of numbers that can be decoded apart, as bits. `lane_encoder` writes, `lane_decoder` reads them.
//!
//! A number is the code of its symbol and the raw bits, low bits first; the code is from the table that the symbol before
//! chooses, or the lane, or the exponent of the base's number at the same place.
//!
//! Invariant: an index into a buffer of bits is masked, so that damaged bits lead to wrong numbers, never outside the buffer.
use super::base_tables::Thresholds;
use crate::element::Word;

/// The most tables of codes that a container has.
pub(super) const TABLES: usize = 4;
/// The most lanes of a piece.
pub(super) const LANES: usize = 8;
/// Which table codes the first symbol of a lane, if the symbol before chooses.
const FIRST_TABLE: usize = 1;
/// The bytes of a buffer of bits after the place that an index can name.
pub(super) const SLACK: usize = 8;

/// Elements in a lane: at most eight lanes in a piece, and few numbers to pass on the way to one.
pub(super) const fn lane_len<T: Word>() -> usize {
    if T::BYTES == 2 { 256 } else { 128 }
}

/// Which table codes a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableUse {
    /// There is one.
    One,
    /// The symbol before chooses: the number of these thresholds, which ascend, that its bit length exceeds.
    BySymbolBefore([u8; TABLES - 1]),
    /// Each lane has one.
    ByLane,
    /// The number at the same place of the base chooses (`base_tables`).
    ByBase(Thresholds),
}

impl TableUse {
    pub(super) fn code(self) -> u8 {
        match self {
            TableUse::One => 0,
            TableUse::BySymbolBefore(_) => 1,
            TableUse::ByLane => 2,
            TableUse::ByBase(_) => 3,
        }
    }

    pub(super) fn count(self) -> usize {
        match self {
            TableUse::One => 1,
            _ => TABLES,
        }
    }

    /// The table of a lane's first symbol, of a lane that has this one.
    pub(super) fn first(self, of_lane: u8) -> usize {
        match self {
            TableUse::One | TableUse::ByBase(_) => 0,
            TableUse::BySymbolBefore(_) => FIRST_TABLE,
            TableUse::ByLane => usize::from(of_lane) % TABLES,
        }
    }

    /// The table after a symbol of this table.
    pub(super) fn after(self, table: usize, symbol: usize) -> usize {
        match self {
            TableUse::One | TableUse::ByLane | TableUse::ByBase(_) => table,
            TableUse::BySymbolBefore(thresholds) => {
                let exceeded = |t: &&u8| symbol / 2 > usize::from(**t);
                thresholds.iter().filter(exceeded).count()
            }
        }
    }
}

/// The lowest bits.
#[inline(always)]
pub(super) fn low(bits: u64, n: u32) -> u64 {
    if n >= 64 { bits } else { bits & ((1 << n) - 1) }
}
