//! The store: a crash-safe ordered key-value store with numbered keyspaces.
//!
//! ```text
//!  apply -> group commit -> log record -> MemTable -> visible
//!                                            | full: sealed
//!                                            v
//!           flush thread -> table file, level 0 -> manifest edit -> log files removed
//!                                            v
//!           compaction thread -> deeper levels -> manifest edit -> old tables removed
//!  get, scan: a View (MemTables and tables of one moment) and a batch number
//! ```
//! Invariants stand in `core` (state and locks), `wal` and `manifest` (crashes).
mod background;
mod compact;
mod core;
mod flush;
mod logs;
mod open;
mod pieces;
mod queue;
mod read;
mod write;

#[doc(hidden)]
pub use pieces::StoredPiece;
pub use read::{Scan, Snapshot};

pub(crate) use self::core::Core;
use crate::options::{Durability, Options, Stats};
use crate::wal::recovery;
use crate::{Batch, Damage, Error, Io, Keyspace, Lost, Opened, Result, Side, SideHost};
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

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
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
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
        self.core.tables.salvaged
    }

    /// What was found when it was opened.
    pub fn opened(&self) -> &Opened {
        &self.core.opened
    }

    /// The damage that reads met since, each place once.
    pub fn damage_notes(&self) -> Vec<Arc<Damage>> {
        self.core.tables.damage_notes.all()
    }

    /// The newest value of `key`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the block that holds it is damaged, or [`Error::Io`].
    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.core.get(keyspace, key)
    }

    /// All entries of `keyspace` inside the bounds, as of now: later batches do not show. Read as the scan goes.
    pub fn scan(&self, keyspace: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Scan {
        self.snapshot().scan(keyspace, from, to)
    }

    /// The store as of now, for several reads of one state.
    pub fn snapshot(&self) -> Snapshot {
        self.core.snapshot()
    }

    /// The store as it was after this batch, as far as batches behind it are only in the log: of what tables hold, the newest is shown.
    pub fn snapshot_at(&self, batch: u64) -> Snapshot {
        self.core.snapshot_at(batch)
    }

    /// Applies all of the batch or nothing; durable as the store's setting says.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: nothing was applied; delete something (such batches have a reserve) or make room, and try
    /// again. [`Error::Poisoned`] after a failed write: open the store again. [`Error::Io`]: the write failed; whether
    /// the batch is in the store shows when it is opened again.
    pub fn apply(&self, batch: Batch) -> Result<()> {
        self.core.apply(batch)
    }

    /// Everything applied so far is on disk when it returns, whatever the durability.
    ///
    /// # Errors
    /// A failed sync poisons the store: what is on disk is unknown until it is opened again.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// As [`sync`](Store::sync), before something that must not reach a disk earlier than what is here. At durability `none`,
    /// which promises nothing after a power cut, it does nothing.
    ///
    /// # Errors
    /// As [`sync`](Store::sync).
    pub fn barrier(&self) -> Result<()> {
        match self.core.options.durability {
            Durability::None => self.core.usable(),
            Durability::Process | Durability::Disk => self.core.sync(),
        }
    }

    /// Seals the MemTable and waits until it is a table file.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is no room for the table: everything stays in the log and in memory.
    pub fn flush(&self) -> Result<()> {
        self.core.flush()
    }

    /// Flushes, then merges all tables into one level without deletes, in this thread.
    ///
    /// # Errors
    /// As [`flush`](Store::flush).
    pub fn compact(&self) -> Result<()> {
        self.core.flush()?;
        self.core.compact_all()
    }

    /// Brings everything to table files, stops the background threads and waits for them, and notes in the manifest that the store was
    /// closed after its last batch; its log files are removed then. Reads go on working; batches are refused. Closing twice is fine.
    ///
    /// Where the disk has no room for table files, everything is in the log.
    ///
    /// # Errors
    /// If not all applied batches could be brought to disk; the store is closed nevertheless.
    pub fn close(&self) -> Result<()> {
        let core = &self.core;
        if core.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let side = core.side();
        let flushed = match core.tables.salvaged {
            true => Ok(()),
            false => core.sync().and_then(|()| self.flush_for_close()),
        };
        if let Some(side) = side {
            side.stop();
        }
        core.closed.store(true, Ordering::Release);
        core.stop(std::mem::take(&mut *self.threads.lock()));
        if core.tables.salvaged {
            return Ok(());
        }
        flushed.and_then(|()| core.end_log())
    }

    /// Brings everything to table files if there is room.
    fn flush_for_close(&self) -> Result<()> {
        let side = self.core.side().map_or(Ok(()), |side| side.flush());
        match side.and_then(|()| self.core.flush()) {
            Err(e) if e.is_transient() => {
                tracing::warn!(store = %self.core.dir().display(), "closed with its newest batches in the log only: {e}");
                Ok(())
            }
            result => result,
        }
    }

    /// What a [`Side`] asks of this store.
    pub fn side_host(&self) -> SideHost {
        SideHost(self.core.clone())
    }

    /// Makes `side` the side of this store, and gives it the entries that only the log holds. Once, before the first batch.
    pub fn attach(&self, side: Arc<dyn Side>) {
        let flushed = self.core.manifest.lock().state().side_flushed;
        for (batch, entries) in std::mem::take(&mut *self.core.side_log.lock()) {
            if batch > flushed {
                side.apply(batch, &entries);
            }
        }
        *self.core.side.write() = Some(side);
    }

    /// The side, if it is attached and of type `T`.
    pub fn side<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.core.side()?.as_any().downcast().ok()
    }

    /// Whether it works in threads of its own, see [`Options::background`].
    pub fn in_background(&self) -> bool {
        self.core.options.background
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        let core = &self.core;
        let view = core.view();
        let load = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let wal_bytes = {
            let writer = core.writer.lock();
            writer.old.iter().map(|o| o.bytes).sum::<u64>()
                + writer.log.as_ref().map_or(0, |l| l.end())
        };
        let (cache_hits, cache_misses) = core.tables.cache.hits_and_misses();
        let c = &core.counters;
        Stats {
            memtable_bytes: (view.active.bytes()
                + view.sealed.iter().map(|s| s.table.bytes()).sum::<usize>())
                as u64,
            sealed: view.sealed.len() as u64,
            cache_bytes: core.tables.cache.bytes() as u64,
            table_memory_bytes: view.levels.all().map(|t| t.resident_bytes() as u64).sum(),
            table_bytes: view.levels.all().map(|t| t.meta().bytes).sum(),
            tables: view.levels.all().count() as u64,
            wal_bytes,
            puts: load(&c.puts),
            gets: load(&c.gets),
            cache_hits,
            cache_misses,
            flushes: load(&c.flushes),
            compactions: load(&c.compactions),
            bytes_written: load(&c.bytes_written),
            stall_nanos: load(&c.stall_nanos),
        }
    }

    /// Reads every block and record and reports all damage. Batches go on meanwhile, but wait while the log is read.
    pub fn check(&self) -> Vec<Error> {
        self.survey().into_iter().map(|d| d.error).collect()
    }

    /// The same, with what each damaged place may have held. What the open found is not repeated.
    pub fn survey(&self) -> Vec<Damage> {
        let core = &self.core;
        let mut damage = Vec::new();
        {
            let writer = core.writer.lock();
            let mut check = |number, bytes, harmless: &[u64]| {
                recovery::check(core.io(), core.dir(), number, bytes, harmless, &mut damage);
            };
            for old in &writer.old {
                check(old.number, old.bytes, &old.harmless);
            }
            if let Some(log) = &writer.log {
                check(log.number(), log.end(), &[]);
            }
        }
        if !core.tables.salvaged {
            core.manifest.lock().check(&mut damage);
        }
        for table in core.view().levels.all() {
            table.check(&mut damage);
        }
        // A salvaged store still has the log files that its open read.
        if core.tables.salvaged {
            let place = |damage: &Damage| (damage.path().to_path_buf(), damage.offset());
            let told: Vec<_> = core.opened.damage.iter().map(place).collect();
            let corrected = |damage: &Damage| matches!(damage.lost, Lost::Corrected { .. });
            damage.retain(|d| d.offset().is_none() || corrected(d) || !told.contains(&place(d)));
        }
        damage
    }

    /// The durability that batches get.
    pub fn durability(&self) -> Durability {
        self.core.options.durability
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Threads of both may ask for the side until they end: no lock is held while they are waited for.
        if let Some(side) = self.core.side() {
            side.stop();
        }
        self.core.stop(std::mem::take(self.threads.get_mut()));
        // The side holds the store's core: this cuts the circle.
        let side = self.core.side.write().take();
        drop(side);
    }
}
