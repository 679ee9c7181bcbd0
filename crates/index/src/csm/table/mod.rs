//! Table files: up to 256 compressed blocks in key order, a metadata region, a footer (MetaKV, figure 4).
//!
//! ```text
//!  | footer, 64 bytes | metadata region | block 0 | block 1 | ... | metadata region | provenance | footer, 64 bytes |
//! ```
//! The copy at the beginning is read if the end is damaged or cut off. The [provenance](forebay_storage::Provenance) is for a
//! store whose manifest is lost.
//!
//! | file | what |
//! |---|---|
//! | `footer`, `region`, `writer`, `reader` | the parts of a file, and the whole |
//! | `block_map` | the location of each block of a table, in memory |
//! | `cached_table`, `cache` | what is in memory of one table, and of all within a budget |
//! | `fetch` | blocks read in rounds, for concurrent requests |
//!
//! Invariants: a table file is whole and on disk before anything names it; it never changes; the ranges of its blocks ascend
//! and do not overlap.
mod block_map;
mod cache;
mod cached_table;
mod fetch;
pub(in crate::csm) mod footer;
mod reader;
pub(in crate::csm) mod region;
mod writer;

pub use block_map::BlockMap;
pub use fetch::WantedBlock;
pub use reader::{Table, TableContext};
pub use writer::{TableMeta, Writer};
