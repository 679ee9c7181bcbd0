//! The store: batches that are whole or not at all, over a log, a manifest and engines.
//!
//! ```text
//!  apply -> group commit -> log record -> each engine -> visible
//!  get, scan: the rows; other engines are read through what they are
//! ```
//! Invariants stand in `engine` (what engines promise), `rows` (its state and locks), `wal` and `manifest` (crashes).
mod commit;
mod open;
mod pieces;

#[doc(hidden)]
pub use pieces::StoredPiece;

use crate::engine::{Engine, EngineHost};
use crate::options::{Durability, Options, Stats};
use crate::rows::{RowEngine, Scan, Snapshot};
use crate::wal::recovery;
use crate::{Batch, Damage, Error, Io, Keyspace, Lost, Opened, Result};
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::Bound;
use std::path::Path;
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
    /// The engine beside the rows.
    attached: OnceLock<Arc<dyn Engine>>,
    /// What the log holds for it, until it is attached.
    unclaimed: Mutex<Vec<(u64, Batch)>>,
}

impl Store {
    /// Opens the store in `dir`, creating it if there is none, and replays its log. The caller makes sure that no other process has the
    /// store open.
    ///
    /// # Errors
    /// [`Error::Format`] if the store is of a newer version, or files are missing; [`Error::Corrupt`] if the log
    /// or the manifest is damaged beyond what a crash does; [`Error::Io`], [`Error::NoSpace`].
    pub fn open(io: Arc<dyn Io>, dir: &Path, options: Options) -> Result<Store> {
        open::open(io, dir, options)
    }

    /// Opens a store to read all of it that is whole, whatever is damaged. No file is written or removed, no thread started, and every batch
    /// is refused. Whole batches behind damaged ones of the log are there; scans go on behind what cannot be read (see [`Scan`]). A manifest that
    /// is lost, both copies, is made again from the tables and logs.
    ///
    /// # Errors
    /// [`Error::Format`] if there is no store, or one of another version; [`Error::Io`] if the directory cannot be read.
    pub fn salvage(io: Arc<dyn Io>, dir: &Path, options: Options) -> Result<Store> {
        open::salvage(io, dir, options)
    }

    /// Whether it was opened by [`salvage`](Store::salvage).
    pub fn is_salvaged(&self) -> bool {
        self.host.is_salvaged()
    }

    /// What was found when it was opened.
    pub fn opened(&self) -> &Opened {
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
        self.rows.state.snapshot()
    }

    /// The store as it was after this batch, as far as batches behind it are only in the log: of what tables hold, the newest is shown.
    pub fn snapshot_at(&self, batch: u64) -> Snapshot {
        self.rows.state.snapshot_at(batch)
    }

    /// Applies all of the batch or nothing; durable as the store's setting says.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: nothing was applied; delete something (such batches have a reserve) or make room, and try
    /// again. [`Error::Poisoned`] after a failed write: open the store again. [`Error::Io`]: the write failed; whether
    /// the batch is in the store shows when it is opened again.
    pub fn apply(&self, batch: Batch) -> Result<()> {
        self.commit(batch)
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
            Durability::None => self.host.check_open(),
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
        if host.is_closed() {
            return Ok(());
        }
        if host.is_salvaged() {
            self.stop_attached();
            host.close();
            return Ok(());
        }
        let flushed = self.sync().and_then(|()| self.flush_for_close());
        self.stop_attached();
        host.close();
        self.rows.stop();
        flushed.and_then(|()| host.end_log(self.rows.is_flushed()))
    }

    /// Brings everything to files if there is room.
    fn flush_for_close(&self) -> Result<()> {
        let attached = self.attached.get().map_or(Ok(()), |engine| engine.flush());
        match attached.and_then(|()| self.rows.flush()) {
            Err(e) if e.is_transient() => {
                tracing::warn!(store = %self.host.dir().display(), "closed with its newest batches in the log only: {e}");
                Ok(())
            }
            result => result,
        }
    }

    fn stop_attached(&self) {
        if let Some(engine) = self.attached.get() {
            engine.stop();
        }
    }

    /// All engines, the rows first.
    fn engines(&self) -> impl Iterator<Item = &dyn Engine> {
        let rows: &dyn Engine = &*self.rows;
        std::iter::once(rows).chain(self.attached.get().map(|engine| &**engine))
    }

    /// What an [`Engine`] asks of this store.
    pub fn engine_host(&self) -> &Arc<EngineHost> {
        &self.host
    }

    /// Makes this the engine for the [entries](Batch::put_entry) of batches, and gives it those that only the log holds. Once, before the first
    /// batch.
    ///
    /// # Errors
    /// If there is one already.
    pub fn attach(&self, engine: Arc<dyn Engine>) -> Result<()> {
        let again = || Error::invalid(self.host.dir(), "a store has one engine beside its rows");
        if self.attached.get().is_some() {
            return Err(again());
        }
        for (number, mut batch) in std::mem::take(&mut *self.unclaimed.lock()) {
            engine.apply(number, &mut batch);
        }
        self.host.register(Arc::downgrade(&engine));
        self.attached.set(engine).map_err(|_| again())
    }

    /// The attached engine, if there is one and it is a `T`.
    pub fn engine<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.attached.get()?.clone().as_any().downcast().ok()
    }

    /// Whether it works in threads of its own, see [`Options::background`].
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
                recovery::check(
                    &**host.io(),
                    host.dir(),
                    number,
                    bytes,
                    harmless,
                    &mut damage,
                );
            };
            for old in &log.old {
                check(old.number, old.bytes, &old.harmless);
            }
            if let Some(file) = &log.file {
                check(file.number(), file.end(), &[]);
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
            let corrected = |damage: &Damage| matches!(damage.lost, Lost::Corrected { .. });
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
