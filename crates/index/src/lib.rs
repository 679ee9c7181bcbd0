//! The extent index: which log bytes hold which bytes of a file.
//!
//! | module | what |
//! |---|---|
//! | `extent` | one extent: a run of a file's bytes and the log bytes that hold them |
//! | `change`, `overlay` | laying new extents over stored ones |
//! | `get`, `get_many`, `found_extents` | which extents hold a range, or each of many |
//! | `coverage`, `unoverlapped` | which puts overlap nothing that is stored |
//! | `csm` | how records are kept: compressed, in memory and on disk (MetaKV, section III-A) |
//! | `cluster` | which blocks are read together (MetaKV, section III-B) |
//!
//! What this crate knows: extents, how they overlap, how they are stored. What it must not know: files' attributes,
//! members' addresses, how a commit travels. It does no I/O of its own; all of it goes through `forebay_storage`.
//!
//! # Invariants
//! 1. Stored extents of one file never overlap.
//! 2. No stored extent is longer than [`MAX_EXTENT`], and none crosses a multiple of [`SLICE`]. So whatever overlaps
//!    `off` starts after `off - MAX_EXTENT` and inside the same slice: one short range scan misses nothing.
//! 3. No stored extent is empty.

mod change;
mod cluster;
mod coverage;
mod csm;
mod extent;
mod found_extents;
mod get;
mod get_many;
mod overlay;
#[cfg(test)]
mod tests;
mod unoverlapped;

pub use change::Change;
pub use cluster::Alpha;
pub use csm::engine::{CompressedEngine, Settings, Stats};
pub use csm::{Key, RECORD, Record};
pub use extent::{Extent, MAX_EXTENT, SLICE};
pub use found_extents::FoundExtents;

use forebay_storage::{Result, Store};
use std::sync::Arc;

/// The extents of many files, in the [engine](forebay_storage::Engine) attached to a store. Stored extents of one file never overlap.
pub struct ExtentIndex {
    engine: Arc<CompressedEngine>,
}

impl ExtentIndex {
    /// The index of `store`: the one attached to it already, whatever its settings, or a new one with these.
    ///
    /// # Errors
    /// `Format`: wrong settings, or files of a newer version.
    pub fn open(store: &Store, settings: Settings) -> Result<ExtentIndex> {
        let engine = match store.engine() {
            Some(engine) => engine,
            None => CompressedEngine::attach(store, settings)?,
        };
        Ok(ExtentIndex { engine })
    }

    /// The same with the default settings; it works in a thread of its own if the store does.
    ///
    /// # Errors
    /// `Format`: files of a newer version.
    pub fn of(store: &Store) -> Result<ExtentIndex> {
        let settings = Settings {
            background: store.in_background(),
            ..Settings::default()
        };
        ExtentIndex::open(store, settings)
    }

    /// What keeps the records.
    pub fn engine(&self) -> &Arc<CompressedEngine> {
        &self.engine
    }
}
