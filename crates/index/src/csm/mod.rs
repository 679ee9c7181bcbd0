//! Compressed storage management (MetaKV, section III-A): extents in memory and on disk as compressed blocks.
//!
//! | file | what |
//! |---|---|
//! | `record` | one index record and its key |
//! | `block` | 4 KiB of records by columns, with its key range |
//! | `tree` | the blocks of one sealed MemTable, by minimum key |
//! | `merge` | two sorted sequences of blocks become one; only overlapping blocks are decompressed |
//!
//! | `table` | the same on disk |
mod block;
mod merge;
mod record;
pub mod table;
#[cfg(test)]
mod tests;
mod tree;

pub use block::{Block, Cutter};
pub use merge::{Blocks, Counts, Merge};
pub use record::{Key, RECORD, Record};
pub use tree::Tree;
