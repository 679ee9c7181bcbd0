//! Compressed storage management (MetaKV, section III-A): extents in memory and on disk as compressed blocks.
//!
//! | file | what |
//! |---|---|
//! | `record` | one index record and its key |
//! | `block` | 4 KiB of records by columns, with its key range |
//! | `tree` | the blocks of one sealed MemTable, by minimum key |
//! | `memtable` | the newest records: sorted runs |
//! | `merge` | sorted sequences of blocks become one; only overlapping blocks are decompressed |
//! | `loser_tree` | which of many is the least, as they change |
//! | `table`, `sorted` | table files, and runs of them |
//! | `engine` | all of it at work, as an engine of a store |
//! | `lookup` | the records that many ranges need |
//! | `search` | searching what is sorted, from a guess |
//! | `scan` | records in key order from all of these |
//! | `stats` | figures and counters |
mod block;
pub mod engine;
#[cfg(test)]
mod fuzz;
pub(crate) mod lookup;
mod loser_tree;
mod memtable;
mod merge;
mod record;
mod scan;
mod search;
mod sorted;
mod stats;
pub mod table;
#[cfg(test)]
mod tests;
mod tree;

pub use memtable::Run;
pub use record::{Key, RECORD, Record};
