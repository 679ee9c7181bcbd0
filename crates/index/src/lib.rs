//! The extent index: which log bytes hold which bytes of a file, in one keyspace of a store.
//!
//! What this crate knows: extents, how they overlap, how one is stored. What it must not know: files' attributes,
//! members' addresses, how a commit travels. It does no I/O of its own; all of it goes through `forebay_storage`.
//!
//! # Invariants
//! 1. Stored extents of one file never overlap.
//! 2. No stored extent is longer than [`MAX_EXTENT`], and none crosses a multiple of [`SLICE`]. So whatever overlaps
//!    `off` starts after `off - MAX_EXTENT` and inside the same slice: one short range scan misses nothing.
//! 3. No stored extent is empty.

mod change;
pub mod cluster;
pub mod csm;
mod encoding;
mod extent;
mod get;
mod overlay;
mod range_map;
#[cfg(test)]
mod tests;

pub use change::Change;
pub use extent::{Extent, MAX_EXTENT, SLICE};
pub use range_map::RangeMap;

use forebay_storage::{Keyspace, Store};
use std::sync::Arc;

/// The extents of many files, in one keyspace of a store. Stored extents of one file never overlap.
pub struct ExtentIndex {
    store: Arc<Store>,
    keyspace: Keyspace,
}

impl ExtentIndex {
    /// The index kept in `keyspace` of `store`. Nothing else may write there.
    pub fn new(store: Arc<Store>, keyspace: Keyspace) -> ExtentIndex {
        ExtentIndex { store, keyspace }
    }
}
