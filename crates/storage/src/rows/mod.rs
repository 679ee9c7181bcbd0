//! The row engine: key-value rows, put and deleted in numbered keyspaces, in MemTables and in levels of table files.
//!
//! ```text
//!  batch -> MemTable -> visible
//!              | full, or its log file is: sealed
//!              v
//!     flush thread -> table file, level 0 -> manifest edit -> log files removed
//!              v
//!     compaction thread -> deeper levels -> manifest edit -> old tables removed
//!  get, scan: a View (MemTables and tables of one moment) and a batch number
//! ```
//!
//! | file | what |
//! |---|---|
//! | `memtable`, `block`, `table`, `levels`, `cache` | what holds rows, in memory and on disk |
//! | `state`, `view` | what there is now, and at one moment |
//! | `read`, `merge` | gets, snapshots, scans |
//! | `write_stall` | sealing MemTables, waiting for flushes |
//! | `flush`, `compact` | writing table files, merging them |
//! | `reclaim`, `compaction_reserve` | reclaiming space on a full disk |
//! | `background`, `signals` | the threads that do all this, and what they and writers tell each other |
//!
//! # Locks
//! Taken in this order, never the other way: the host's `syncing` and `log`, `flushing` (one flush at a time), the compactor's
//! `ends` (one compaction at a time), the manifest, `view` (held only to swap or clone it), `signals`. (Conditions on the view are also
//! checked under `signals`; nobody takes `signals` while the view is being swapped.)
//!
//! # Invariants
//! - Those of `state`.
//! - A MemTable is sealed when its log file is full, so the host never asks this engine to flush because the log is long.
mod background;
pub mod block;
mod cache;
mod compact;
mod compaction_reserve;
mod flush;
mod levels;
mod memtable;
mod merge;
mod read;
mod reclaim;
mod signals;
mod state;
pub mod table;
mod view;
mod write_stall;

pub use read::{Scan, Snapshot};
pub use view::RowReplay;

use crate::engine::{BackgroundWork, Engine, EngineHost, GroupSummary, LogTail};
use crate::options::Stats;
use crate::{Batch, Damage, Error, Result};
use compact::Compactor;
use compaction_reserve::CompactionReserve;
use signals::SignalState;
use state::{RowState, count};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the [module](self).
pub struct RowEngine {
    host: Arc<EngineHost>,
    /// What readers need.
    pub state: Arc<RowState>,
    compactor: Compactor,
    /// The file `SPARE`. It is created at the open, before the engine is started.
    pub spare: CompactionReserve,
    signals: Arc<BackgroundWork<SignalState>>,
    /// The last put found no room. Changes under the lock of `signals`.
    full: AtomicBool,
    /// A batch was logged since the last trim: the flush thread waits for an idle moment.
    grown: AtomicBool,
}

impl RowEngine {
    /// An engine with the tables and the replayed log of an open. Its threads begin with [`start`](RowEngine::start).
    pub fn new(host: Arc<EngineHost>, replayed: RowReplay) -> RowEngine {
        let logged = !host.log.lock().old.is_empty();
        let state = Arc::new(RowState::new(host.clone(), replayed));
        RowEngine {
            compactor: Compactor::new(state.clone()),
            spare: CompactionReserve::new(host.clone()),
            host,
            signals: state.signals.clone(),
            state,
            full: AtomicBool::new(false),
            grown: AtomicBool::new(logged),
        }
    }

    /// Whether all rows are in table files.
    pub fn is_flushed(&self) -> bool {
        let view = self.state.view();
        view.active.is_empty() && view.sealed.is_empty()
    }

    /// Merges all tables into one level without deletes.
    ///
    /// # Errors
    /// As [`flush`](Engine::flush).
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        self.compactor.compact_all()
    }

    /// The log has grown: the first time after a trim this wakes the flush thread, which waits for an idle moment.
    pub fn note_logged(&self) {
        if !self.grown.swap(true, Ordering::Relaxed) {
            self.signals.wake();
        }
    }

    /// Counters and sizes; those of the log are left out.
    pub fn stats(&self) -> Stats {
        let view = self.state.view();
        let load = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let tables = &self.state.tables;
        let c = &self.state.counters;
        let sealed = view.sealed.iter().map(|s| s.table.bytes()).sum::<usize>();
        Stats {
            memtable_bytes: (view.active.bytes() + sealed) as u64,
            sealed: view.sealed.len() as u64,
            cache_bytes: tables.cache.bytes() as u64,
            table_memory_bytes: view.levels.all().map(|t| t.resident_bytes() as u64).sum(),
            table_bytes: view.levels.all().map(|t| t.meta().bytes).sum(),
            tables: view.levels.all().count() as u64,
            puts: load(&c.puts),
            gets: load(&c.gets),
            flushes: load(&c.flushes),
            compactions: load(&c.compactions),
            stall_nanos: load(&c.stall_nanos),
            ..Stats::default()
        }
    }
}

impl Engine for RowEngine {
    /// Seals MemTables here, with the end of the log held, because a MemTable ends with its log file.
    fn admit(&self, log: &mut LogTail, group: GroupSummary) -> Result<()> {
        if !group.reclaiming && !self.spare.is_there()? {
            return Err(Error::no_space(self.host.dir()));
        }
        self.seal_if_full(log, group)
    }

    fn apply(&self, number: u64, batch: &mut Batch) {
        let active = self.state.view.read().active.clone();
        count(&self.state.counters.puts, batch.ops.len() as u64);
        active.insert(number, std::mem::take(&mut batch.ops));
    }

    fn applied(&self, load: GroupSummary, outcome: &Result<()>) {
        self.note_room(load, outcome);
    }

    fn log_in_reserve(&self) {
        let _signals = self.signals.lock();
        self.full.store(true, Ordering::Relaxed);
    }

    fn poisoned(&self) {
        let _signals = self.signals.lock();
        self.signals.progress.notify_all();
    }

    fn flush(&self) -> Result<()> {
        self.flush_all()
    }

    fn stop(&self) {
        self.signals.stop(self.host.dir());
    }

    fn survey(&self) -> Vec<Damage> {
        let mut damage = Vec::new();
        for table in self.state.view().levels.all() {
            table.check(&mut damage);
        }
        damage
    }

    fn damage_notes(&self) -> Vec<Arc<Damage>> {
        self.state.tables.damage_notes.all()
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
