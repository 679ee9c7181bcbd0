//! Supervised block clustering: which blocks of a table file are read together (MetaKV, section III-B).
//!
//! Gets that wait for blocks of one file are a [`PendingBlockReads`]. Its requested blocks are clustered into **regions** ([`cluster`]), each
//! read in one I/O; the region with the most requests a block is read first, so that the others can gather more.
//!
//! Pure: it knows block numbers and counts, no files.
mod demand;
mod regions;

pub use demand::{PendingBlockReads, ReadRound};
pub use regions::{Alpha, Region, cluster};
