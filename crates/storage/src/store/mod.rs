//! The store: batches that are whole or not at all, over a log, a manifest and engines.
//!
//! ```text
//!  apply -> group commit -> log record -> each engine -> visible
//!  get, scan: the row engine; other engines are read through their own types
//! ```
//! Invariants stand in `engine` (what engines promise), `rows` (its state and locks), `wal` and `manifest` (crashes).
mod commit;
mod engines;
mod open;
mod record_locations;

#[doc(hidden)]
pub use record_locations::RecordLocation;

use crate::engine::{Engine, EngineHost};
use crate::options::{Durability, Stats};
use crate::rows::{RowEngine, Scan, Snapshot};
use crate::wal::check;
use crate::{Batch, Damage, Error, Keyspace, OpenReport, PossibleLoss, Result};
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// A crash-safe ordered key-value store with numbered keyspaces. Cheap to share behind an `Arc`.
///
/// Dropping it without [`close`](Store::close) ends its threads; for the data it is like a killed process.
///
/// # Examples
/// ```
/// use forebay_storage::{Batch, Keyspace, Options, OsIo, Store};
/// use std::sync::Arc;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// let store = Store::open(Arc::new(OsIo), &dir.path().join("store"), Options::default())?;
/// let mut batch = Batch::new();
/// batch.put(Keyspace(0), "planet", "earth");
/// store.apply(batch)?;
/// assert_eq!(store.get(Keyspace(0), b"planet")?.as_deref(), Some(&b"earth"[..]));
/// store.close()?;
/// # Ok(()) }
/// ```
pub struct Store {
    host: Arc<EngineHost>,
    rows: Arc<RowEngine>,
    attached: OnceLock<Arc<dyn Engine>>,
    /// What the log holds for the attached engine, until there is one.
    unclaimed: Mutex<Vec<(u64, Batch)>>,
}

impl Store {
    /// What was found when it was opened.
    pub fn opened(&self) -> &OpenReport {
        &self.host.opened
    }

    /// The damage that reads met since, each place once.
    pub fn damage_notes(&self) -> Vec<Arc<Damage>> {
        self.engines().flat_map(|e| e.damage_notes()).collect()
    }

    /// The newest value of `key`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the block that holds it is damaged, or [`Error::Io`].
    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.rows.state.get(keyspace, key)
    }

    /// All entries of `keyspace` inside the bounds, as of now: later batches do not show. Read as the scan goes.
    pub fn scan(&self, keyspace: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Scan {
        self.snapshot().scan(keyspace, from, to)
    }

    /// The store as of now, for several reads of one state.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_at(u64::MAX)
    }

    /// The store as it was after this batch, as far as batches after it are only in the log: of what tables hold, the newest is shown.
    pub fn snapshot_at(&self, batch: u64) -> Snapshot {
        self.rows.state.snapshot_at(batch)
    }

    /// Everything applied so far is on disk when it returns, whatever the durability. At durability `none` that is said of rows only: what the attached
    /// engine holds in memory gets there when it is flushed.
    ///
    /// # Errors
    /// A failed sync poisons the store: what is on disk is unknown until it is opened again.
    pub fn sync(&self) -> Result<()> {
        match self.host.options.durability {
            // There is no log: the rows come to table files.
            Durability::None => self.rows.flush(),
            Durability::Process | Durability::Disk => self.host.sync_through(0),
        }
    }

    /// As [`sync`](Store::sync), before something that must not reach a disk earlier than what is here. At durability `none`,
    /// which promises nothing after a power cut, it does nothing.
    ///
    /// # Errors
    /// As [`sync`](Store::sync).
    pub fn barrier(&self) -> Result<()> {
        match self.host.options.durability {
            Durability::None => self.host.health.check_open(),
            Durability::Process | Durability::Disk => self.sync(),
        }
    }

    /// Seals the MemTable and waits until it is a table file.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is no room for the table: everything stays in the log and in memory.
    pub fn flush(&self) -> Result<()> {
        self.rows.flush()
    }

    /// Flushes, then merges all tables into one level without deletes, in this thread.
    ///
    /// # Errors
    /// As [`flush`](Store::flush).
    pub fn compact(&self) -> Result<()> {
        self.rows.compact()
    }

    /// Brings everything to table files, stops the background threads and waits for them, and notes in the manifest that the store was
    /// closed after its last batch; its log files are removed then. Reads go on working; batches are refused. Closing twice is fine.
    ///
    /// Where the disk has no room for table files, everything is in the log.
    ///
    /// # Errors
    /// If not all applied batches could be brought to disk; the store is closed nevertheless.
    pub fn close(&self) -> Result<()> {
        let host = &self.host;
        if host.health.is_closed() {
            return Ok(());
        }
        if host.is_salvaged() {
            self.stop_attached();
            host.health.close();
            return Ok(());
        }
        let flushed = self.sync().and_then(|()| self.flush_for_close());
        self.stop_attached();
        host.health.close();
        self.rows.stop();
        flushed.and_then(|()| host.end_log(self.rows.is_flushed()))
    }

    /// What an [`Engine`] asks of this store.
    pub fn engine_host(&self) -> &Arc<EngineHost> {
        &self.host
    }

    /// The attached engine, if there is one and it is a `T`.
    pub fn engine<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.attached.get()?.clone().as_any().downcast().ok()
    }

    /// Whether it works in threads of its own, see [`Options::background`](crate::Options::background).
    pub fn in_background(&self) -> bool {
        self.host.options.background
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        Stats {
            wal_bytes: self.host.log.lock().bytes(),
            bytes_written: self.host.bytes_written.load(Ordering::Relaxed),
            ..self.rows.stats()
        }
    }

    /// Reads every block and record, those of all engines, and reports all damage. Batches go on meanwhile, but wait while the log is read.
    pub fn check(&self) -> Vec<Error> {
        self.survey().into_iter().map(|d| d.error).collect()
    }

    /// The same, with what each damaged place may have held. What the open found is not repeated.
    pub fn survey(&self) -> Vec<Damage> {
        let host = &self.host;
        let mut damage = Vec::new();
        {
            let log = host.log.lock();
            let mut check = |number, bytes, harmless: &[u64]| {
                check::check(&*host.io, host.dir(), number, bytes, harmless, &mut damage);
            };
            for old in &log.old {
                check(old.number, old.bytes, &old.harmless);
            }
            if let Some(file) = &log.file {
                check(file.number, file.end(), &[]);
            }
        }
        if !host.is_salvaged() {
            host.manifest.lock().check(&mut damage);
        }
        self.engines().for_each(|e| damage.extend(e.survey()));
        // A salvaged store still has the log files that its open read.
        if host.is_salvaged() {
            let place = |damage: &Damage| (damage.path().to_path_buf(), damage.offset());
            let told: Vec<_> = host.opened.damage.iter().map(place).collect();
            let corrected = |damage: &Damage| matches!(damage.lost, PossibleLoss::Corrected { .. });
            damage.retain(|d| d.offset().is_none() || corrected(d) || !told.contains(&place(d)));
        }
        damage
    }

    /// The durability that batches get.
    pub fn durability(&self) -> Durability {
        self.host.options.durability
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop_attached();
        self.rows.stop();
    }
}
