//! A side: a part of a store that keeps its entries in its own way, and shares the store's log and manifest.
//!
//! ```text
//!  batch: puts and deletes -----> log record ----> MemTable
//!         entries for the side -/          \----> side.apply        both visible and durable together
//!
//!  side's files: numbered by the store, named in its manifest, each with some bytes that the side understands
//! ```
//!
//! Invariants:
//! - Log records stay until both the store and the side hold them in files; neither names a file of batches that the log does
//!   not have on disk for the other. So after a crash a batch is there whole, or not at all.
//! - A file that the manifest does not name is removed at the next open.
use crate::manifest::Edit;
use crate::store::Core;
use crate::{Error, Io, Result, SideEntry};
use bytes::Bytes;
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a store asks of its side.
pub trait Side: Send + Sync + 'static {
    /// Called before a batch with entries is logged, with no lock held: may wait for the side's own background work.
    ///
    /// # Errors
    /// If there is no room: the batch is refused.
    fn make_room(&self) -> Result<()>;

    /// Takes the entries of a batch, after it was logged: in the order of batches, one at a time. Must not wait.
    fn apply(&self, batch: u64, entries: &[SideEntry]);

    /// The log has grown long: entries should come into files soon. Called with a lock of the store held: must not wait.
    fn hurry(&self);

    /// Called after each batch, with no lock held, by a store that works in no thread of its own: what
    /// [`hurry`](Side::hurry) asked for is done now. What fails is tried again, or has poisoned the store.
    fn catch_up(&self);

    /// Brings all entries into files, named in the manifest when it returns. Called with no lock held, before [`stop`](Side::stop).
    ///
    /// # Errors
    /// [`Error::NoSpace`]: they stay in the log. Anything else has poisoned the store.
    fn flush(&self) -> Result<()>;

    /// The store is being closed: end threads, write nothing more.
    fn stop(&self);

    /// The side as what it is.
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// A change of the side's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SideEdit {
    /// Files that are whole and on disk, by number, with what the side wants to know of them. May name one again.
    pub add: Vec<(u64, Bytes)>,
    /// Files that are superseded, by number. Applied before `add`. Removing them is the side's affair.
    pub remove: Vec<u64>,
    /// The side's files hold its entries through this batch.
    pub flushed: Option<u64>,
}

/// What a side asks of its store.
#[derive(Clone)]
pub struct SideHost(pub(crate) Arc<Core>);

impl SideHost {
    /// The file system.
    pub fn io(&self) -> Arc<dyn Io> {
        self.0.tables.io.clone()
    }

    /// The store's directory, where the side's files lie too.
    pub fn dir(&self) -> PathBuf {
        self.0.dir().to_path_buf()
    }

    /// A file number never used before.
    pub fn new_number(&self) -> u64 {
        self.0.new_number()
    }

    /// The path of the side's file `number`.
    pub fn path(&self, number: u64) -> PathBuf {
        path(self.0.dir(), number)
    }

    /// The files that the manifest names, by number.
    pub fn files(&self) -> Vec<(u64, Bytes)> {
        let manifest = self.0.manifest.lock();
        let files = manifest.state().side.iter();
        files.map(|(n, told)| (*n, told.clone())).collect()
    }

    /// Names files in the manifest, on disk when it returns; removes log files that are superfluous then.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoDescriptors`]: nothing changed. Anything else has poisoned the store.
    pub fn edit(&self, edit: SideEdit) -> Result<()> {
        let flushed = edit.flushed;
        if let Some(batch) = flushed {
            // A batch must not come back as the side's part alone.
            self.0.sync_through(batch)?;
        }
        let edit = Edit {
            side: edit,
            ..Edit::default()
        };
        self.0.edit(edit, |_| {})?;
        if flushed.is_some() {
            match self.0.retire_flushed() {
                // The files are named: that must not be taken for an edit that changed nothing. Superfluous logs go later.
                Err(e) if e.is_transient() => {
                    tracing::warn!(store = %self.0.dir().display(), "superfluous log files stay for now: {e}");
                }
                retired => retired?,
            }
        }
        Ok(())
    }

    /// Whether the store is only read, around whatever is damaged: the side writes nothing and starts no thread.
    pub fn is_salvaged(&self) -> bool {
        self.0.tables.salvaged
    }

    /// Refuses everything that changes the store from now on. Hands the error back.
    pub fn poison(&self, error: Error) -> Error {
        self.0.poison(error)
    }

    /// Whether an earlier failure has closed the store.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn usable(&self) -> Result<()> {
        self.0.usable_for_work()
    }
}

/// Path of the side's file `number` in a store's directory.
pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("side-{number:010}.tbl"))
}
