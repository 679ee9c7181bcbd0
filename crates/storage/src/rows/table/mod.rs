//! Table files: sorted, unchanging, each block checked when it is read.
//!
//! ```text
//!  +---------+---------+-----+---------+--------+-----------------+------------+-------------+
//!  | block 0 | block 1 | ... | block n | filter | metadata region | provenance | footer (64) |
//!  +---------+---------+-----+---------+--------+-----------------+------------+-------------+
//! ```
//! [`footer`] locates [`filter`] and metadata region ([`index`]); that region locates the blocks and holds
//! their checksums. Keys are the keyspace byte followed by the key. Each block has a [`frame`] before it: where footer or
//! region are damaged or cut off, the region is made again from the blocks that are whole. The [provenance](crate::Provenance)
//! is for a store whose manifest is lost; a copy has none.
//!
//! Entries of the keyspaces from [`Keyspace::FIRST_MIRRORED`](crate::Keyspace::FIRST_MIRRORED) on stand in blocks of their own,
//! and once more in `table-N.copy`, a table file of nothing else. It is read where a block of the table cannot be, so a
//! damaged, cut or missing file takes no such entry. A table has a copy if its last key is of such a keyspace.
//!
//! # Invariants
//! - A table file never changes after its builder finished. It goes when no version of the store and no
//!   snapshot uses it any more.
//! - Each key is in a table at most once, with its newest value at the time of the flush.
pub mod builder;
mod copy;
pub mod filter;
pub mod footer;
pub mod frame;
pub mod index;
mod metadata;
mod reader;

pub use builder::TableBuilder;
pub use reader::{Table, TableContext};
