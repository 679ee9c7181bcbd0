//! Storage engines: each keeps one kind of a batch's changes, in memory and in files, over one shared log and manifest.
//!
//! ```text
//!                 one batch = one record of the log
//!                 +----------------------------------+-----------------------------+
//!                 | puts and deletes, by keyspace    | entries: bytes              |
//!                 +----------------------------------+-----------------------------+
//!  apply                       |                                   |                     visible and durable together
//!                              v                                   v
//!                 RowEngine (`rows`), always there    an engine that was attached, e.g. the index's
//!                 MemTable -> levels of tables        memory -> files in its own format
//!                              |                                   |
//!  flush                       +---- edits of one manifest --------+        then log files go whose batches all engines hold in files
//! ```
//!
//! | file | what |
//! |---|---|
//! | `queue`, `host` | group commit; what engines share |
//! | `logs`, `health` | the log files of an open store; whether it may still be written to |
//! | `background` | the background threads of an engine |
//!
//! # What the store does, and what an engine does
//! - The **store** ([`Store`](crate::Store)) numbers batches, logs them, and hands each to every engine. When it is opened, it hands
//!   over the batches that the log holds in the same way.
//! - [`EngineHost`] is the part of the store that engines share: the I/O trait, the directory, file numbers, the manifest, the log's
//!   files, and whether a failed write has poisoned the store ([`StoreHealth`]).
//! - An **engine** ([`Engine`]) takes its changes out of a batch. It decides when its memory is full, writes files, names them in the
//!   manifest, merges them, and reports damage. [`BackgroundWork`] is its threads, and how they and writers wake each other.
//!
//! Reads and statistics are not in the trait. Engines have different keys and figures, and a get or a scan through a trait
//! object would cost every record. A reader takes the engine as its own type ([`Store::engine`](crate::Store::engine)). The
//! calls of the trait are dynamic: a few for each batch, none for a record.
//!
//! # The formats name two engines
//! | | rows | the attached engine |
//! |---|---|---|
//! | in a batch and a log record ([`payload`](crate::wal::payload)) | tags 0 to 15, the keyspace | tag 16 |
//! | files ([`names`](crate::names)) | `table-N.tbl`, `table-N.copy` | `side-N.tbl` |
//! | in the manifest ([`edit`](crate::manifest)) | 1, 2, flushed: 3 | 5, 6, flushed: 7 |
//!
//! (*Side* is an older word for the attached engine, kept in file names.) So a store has at most one engine beside the rows. A
//! third needs a tag, a file name and edits of its own, and a newer version of the manifest. Otherwise only the calls of
//! [`EngineHost`] on files, edits and progress know that there is one attached engine.
//!
//! # Invariants
//! - A log record stays until all engines hold its batch in files. An engine adds a file to the manifest only after the log records of
//!   the file's batches are synced: another engine may still need these records for its share of the same batches. So after a crash a
//!   batch is there for all engines or for none.
//! - A file that the manifest does not name is removed at the next open.
//! - An engine gets batches in the order of their numbers, one at a time, each after it was logged.
mod background;
mod health;
mod host;
mod logs;
mod queue;

pub use background::BackgroundWork;
pub(crate) use health::PoisonOnPanic;
pub use health::StoreHealth;
pub(crate) use host::RecoveredStore;
pub use host::{EngineHost, LogTail};
pub(crate) use logs::{UnsyncedLog, sync_logs};
pub(crate) use queue::QueuedBatch;

use crate::{Batch, Damage, Result};
use std::any::Any;
use std::sync::Arc;

/// What a store asks of an engine.
pub trait Engine: Send + Sync + 'static {
    /// Called before a batch is queued for the log, with no lock held: may wait for the engine's own background work.
    ///
    /// # Errors
    /// If there is no room: the batch is refused.
    fn make_room(&self, _batch: &Batch) -> Result<()> {
        Ok(())
    }

    /// Called before a group of batches is logged, with the end of the log locked. May end the log file, and wait for the engine's own
    /// background work.
    ///
    /// # Errors
    /// The group is refused; nothing of it was logged.
    fn admit(&self, _log: &mut LogTail, _group: GroupSummary) -> Result<()> {
        Ok(())
    }

    /// Takes this engine's changes out of a batch. Called after the batch was logged, and at an open for each batch in the log. Must not
    /// wait.
    fn apply(&self, number: u64, batch: &mut Batch);

    /// Called after each batch, whatever its outcome, with no lock held. A store without threads of its own does the
    /// [requested](Engine::request_flush) work here. Work that fails is retried, or has poisoned the store.
    fn applied(&self, load: GroupSummary, outcome: &Result<()>);

    /// The log has grown long: the engine should flush soon. Called with locks of the store held: must not wait. Does nothing for an
    /// engine whose MemTable ends with each log file.
    fn request_flush(&self) {}

    /// The disk is full: the log goes on in its reserve, for batches that free space. Called with the end of the log
    /// held: must not wait.
    fn log_in_reserve(&self) {}

    /// The store was [poisoned](StoreHealth::poison): whoever waits for this engine looks again.
    fn poisoned(&self) {}

    /// Flushes everything to files, which the manifest names when this returns. Called with no lock held, before [`stop`](Engine::stop).
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), [`Error::NoDescriptors`](crate::Error::NoDescriptors): it stays in memory and in the log.
    /// Anything else has poisoned the store.
    fn flush(&self) -> Result<()>;

    /// Ends threads and waits for them; writes nothing more. Reads still work. May be called twice.
    fn stop(&self);

    /// Reads every file and reports all damage, with what each damaged place may have held.
    fn survey(&self) -> Vec<Damage>;

    /// The damage that reads have met since the open, each place once.
    fn damage_notes(&self) -> Vec<Arc<Damage>>;

    /// The engine, to be cast to its own type.
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// A summary of one batch, or of a group that is logged together, over the changes for all engines.
#[derive(Debug, Clone, Copy)]
pub struct GroupSummary {
    /// All of them free space: on a full disk they may use reserves.
    pub reclaiming: bool,
    /// Some delete rows.
    pub deletes: bool,
    /// Their encoded size at most, bytes.
    pub bytes: u64,
}
