//! Flushes the whole index of a stopped service to table files, as the service itself does in the background once its
//! memory for new records is full.
//!
//! Invariant: what the stores hold stays the same; a crash at any point leaves the old files, or the new tables.
use crate::{Config, Result, offline_stores};
use forebay_index::ExtentIndex;
use forebay_index::{Settings, Stats};
use forebay_storage::{Io, Store};
use std::path::PathBuf;
use std::sync::Arc;

/// Brings all records of the index to one sorted run of table files in each store; gives the figures of all together. `dirs` as
/// for [`fsck::check`](crate::fsck::check), `config` as the service has it.
///
/// # Errors
/// `Refused` if they are not all the stores of one service, or in use; what a store fails with.
pub fn write(io: Arc<dyn Io>, dirs: &[PathBuf], config: &Config) -> Result<Stats> {
    config.check()?;
    let layout = offline_stores::open(&*io, dirs)?;
    let mut all = Stats::default();
    for node in &layout.nodes {
        let store = Store::open(
            io.clone(),
            &node.join("kv"),
            offline_stores::without_threads(),
        )?;
        let settings = Settings {
            background: false,
            ..config.index.settings(config.memory)
        };
        let index = ExtentIndex::open(&store, settings)?;
        index.engine().compact()?;
        all = all.and(index.engine().stats());
        store.close()?;
    }
    Ok(all)
}
