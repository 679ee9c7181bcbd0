//! The engine of the index: takes batches of records, keeps them sorted in memory and on disk, and answers reads.
//!
//! ```text
//!  batch -> log of the store -> MemTable -> visible
//!                                  | full: sealed
//!                                  v                          in the background from here on
//!                  compressed blocks, one tree a MemTable; trees of similar size are merged
//!                                  | buffer full, or the log is long
//!                                  v
//!                  one sorted run of table files; runs of similar size are merged
//! ```
//!
//! It is the [engine](forebay_storage::Engine) attached to a store, so its records become durable with whatever else a batch
//! holds.
//!
//! # Invariants
//! - A [`View`] never changes; readers clone the pointer. Of records with one key in it, the newest counts. From
//!   newest to oldest: the MemTable, sealed MemTables, trees, runs; of each kind, the later before the earlier.
//! - The manifest names exactly the tables of the runs; what is in memory only is in the log.
//! - One thread works in the background; only writers wait for it, at the limits of memory.
mod compact;
mod compress;
pub(in crate::csm) mod files;
mod output;

mod background;
mod inline_compression;
mod view;

pub use super::stats::Stats;
pub use view::View;

use super::block::BlockSplitter;
use super::record::Record;
use super::stats::count;
use super::table::TableContext;
use crate::cluster::Alpha;
use crate::coverage::Coverage;
use forebay_storage::{
    BackgroundWork, Batch, Damage, Engine, EngineHost, Error, GroupSummary, IoContext, Result,
    Store, UnreadableTables,
};
use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A block of a table: file, place, records.
#[doc(hidden)]
pub type StoredBlock = (PathBuf, Range<u64>, Vec<Record>);

/// Settings of an engine; sizes in bytes. The defaults are the paper's where it names one.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A block before compression.
    pub block_bytes: usize,
    /// Blocks of a table file.
    pub table_blocks: usize,
    /// A MemTable is sealed at this size.
    pub memtable_bytes: usize,
    /// The compression buffer is brought to disk at this size.
    pub buffer_bytes: usize,
    /// Blocks of table files, compressed, and their metadata regions that are kept. They also take what MemTables and compression buffer
    /// leave free.
    pub cache_bytes: usize,
    /// What is stored is known of ranges in memory, so that puts need not look.
    pub coverage_bytes: usize,
    /// The least locality factor of a region that is read at once.
    pub alpha: Alpha,
    /// Work in a thread of its own. If not, the putting thread does it: at the limits, and after its batch when the log has
    /// grown long.
    pub background: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            block_bytes: 4096,
            table_blocks: 256,
            memtable_bytes: 4 << 20,
            buffer_bytes: 8 << 20,
            cache_bytes: 8 << 20,
            coverage_bytes: 8 << 20,
            alpha: Alpha::default(),
            background: true,
        }
    }
}

impl Settings {
    /// What is wrong with them, and what to write instead.
    ///
    /// # Errors
    /// A sentence for people.
    pub fn check(&self) -> Result<(), String> {
        let sizes = [
            ("block size", self.block_bytes, 64, 16 << 20),
            ("number of blocks a table", self.table_blocks, 1, 1 << 20),
            ("MemTable size", self.memtable_bytes, 4096, usize::MAX),
            ("compression buffer", self.buffer_bytes, 4096, usize::MAX),
        ];
        for (what, value, least, most) in sizes {
            if value < least || value > most {
                let upper = match most {
                    usize::MAX => String::new(),
                    most => format!(", and at most {most}"),
                };
                return Err(format!(
                    "the index's {what} is {value}; it must be {least} or more{upper}"
                ));
            }
        }
        Ok(())
    }
}

/// What threads tell each other.
#[derive(Default)]
struct Signals {
    /// The log is long: bring everything to disk.
    flush_requested: bool,
    /// What the last attempt had too little of.
    shortage: Option<Error>,
    /// How many puts there had been when none had come for a while.
    quiet: Option<u64>,
}

struct EngineState {
    host: Arc<EngineHost>,
    shared: Arc<TableContext>,
    settings: Settings,
    view: RwLock<Arc<View>>,
    /// Shared with threads that sync tables for the worker.
    signals: Arc<BackgroundWork<Signals>>,
    /// Held while the background work is done, by the worker or whoever does it instead.
    working: Mutex<BlockSplitter>,
    unreadable: UnreadableTables,
    coverage: Coverage,
}

/// See the head of this file. Dropping the last one, or closing the store, ends its thread.
pub struct CompressedEngine {
    state: Arc<EngineState>,
}

impl CompressedEngine {
    /// The engine of `store`, attached to it.
    ///
    /// # Errors
    /// `Format`: wrong settings, or files of a newer version.
    pub fn attach(store: &Store, settings: Settings) -> Result<Arc<CompressedEngine>> {
        let host = store.engine_host().clone();
        let wrong = |reason| Error::format(host.dir(), reason);
        settings.check().map_err(wrong)?;
        let mut shared = TableContext::new(host.io.clone(), settings.cache_bytes, settings.alpha);
        shared.salvaged = host.is_salvaged();
        let shared = Arc::new(shared);
        let disk = files::runs(&host, &shared)?;
        let splitter = BlockSplitter::new(settings.block_bytes);
        let background = settings.background && !host.is_salvaged();
        let coverage = Coverage::new(settings.coverage_bytes);
        let state = Arc::new(EngineState {
            host,
            shared,
            settings,
            view: RwLock::new(Arc::new(View {
                disk,
                ..View::default()
            })),
            signals: Arc::default(),
            working: Mutex::new(splitter),
            unreadable: UnreadableTables::default(),
            coverage,
        });
        if background {
            let worker = state.clone();
            let spawned = state.signals.spawn("index", move || worker.work_loop());
            let dir = state.host.dir();
            spawned.state_unknown_context("start the thread of the index for", dir)?;
        }
        state.set_extra_budget(&state.view.read());
        let engine = Arc::new(CompressedEngine { state });
        store.attach(engine.clone())?;
        Ok(engine)
    }

    /// Makes the batch carry these records too, after those before.
    pub fn add(&self, batch: &mut Batch, records: Vec<Record>) {
        for (entry, adds) in files::entries(records) {
            batch.put_entry(entry, adds);
        }
    }

    /// What is known of stored ranges.
    pub(crate) fn coverage(&self) -> &Coverage {
        &self.state.coverage
    }

    /// The state as of now.
    pub fn view(&self) -> Arc<View> {
        self.state.view_to_read()
    }

    /// Counts ranges that were looked up, and the extents found.
    pub(crate) fn count_gets(&self, ranges: usize, extents: usize) {
        let counters = &self.state.shared.counters;
        count(&counters.gets, ranges as u64);
        count(&counters.records_found, extents as u64);
    }

    /// Brings everything to one sorted run without deletes.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoDescriptors`]: what is in memory stays there, and in the log.
    pub fn compact(&self) -> Result<()> {
        let mut splitter = self.state.working.lock();
        self.state.flush_all(&mut splitter)?;
        while self.state.compact_all(&mut splitter)? {}
        Ok(())
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        let view = self.state.view.read().clone();
        let coverage = self.state.coverage.stats();
        let region_bytes = view.tables().map(|t| t.resident_bytes() as u64).sum();
        Stats {
            memtable_bytes: view.memtable_bytes() as u64,
            buffer_bytes: view.buffer_bytes() as u64,
            cache_bytes: (self.state.shared.cache.bytes() as u64).saturating_sub(region_bytes),
            region_bytes,
            coverage_bytes: coverage.bytes,
            coverage_hits: coverage.hits,
            coverage_misses: coverage.misses,
            coverage_loads: coverage.loads,
            table_bytes: view.tables().map(|t| t.meta().bytes).sum(),
            tables: view.tables().count() as u64,
            table_records: view.tables().map(|t| t.meta().records).sum(),
            runs: view.disk.len() as u64,
            ..self.state.shared.counters.load()
        }
    }

    /// Reads every table file and reports all damage.
    pub fn check(&self) -> Vec<Error> {
        self.survey().into_iter().map(|d| d.error).collect()
    }

    /// Where each block of each table stands, and its records: for tests that damage a file and must know what it held.
    ///
    /// # Errors
    /// Those of reading.
    #[doc(hidden)]
    pub fn stored_blocks(&self) -> Result<Vec<StoredBlock>> {
        let mut blocks = Vec::new();
        for table in self.view().tables() {
            let places = table.places()?;
            for (i, place) in places.iter().enumerate() {
                let mut records = Vec::new();
                for block in table.read(i..i + 1)? {
                    // A block that cannot be understood holds nothing that is known.
                    let _ = block.records(&mut records);
                }
                blocks.push((
                    table.path().to_path_buf(),
                    place.offset..place.end(),
                    records,
                ));
            }
        }
        Ok(blocks)
    }

    /// The records in an entry of the log: for the same tests.
    #[doc(hidden)]
    pub fn records_in(entry: &[u8]) -> Option<Vec<Record>> {
        let mut records = Vec::new();
        super::block::decode_columns(entry, &mut records)?;
        Some(records)
    }
}

impl Engine for CompressedEngine {
    fn make_room(&self, batch: &Batch) -> Result<()> {
        match batch.entries().is_empty() || batch.is_reclaiming() {
            true => Ok(()),
            false => self.state.make_room(),
        }
    }

    fn apply(&self, number: u64, batch: &mut Batch) {
        if !batch.entries().is_empty() {
            self.state.apply(number, batch.entries());
        }
    }

    fn applied(&self, _load: GroupSummary, _outcome: &Result<()>) {
        self.state.flush_in_caller();
    }

    fn request_flush(&self) {
        self.state.signals.lock().flush_requested = true;
        self.state.signals.work.notify_all();
    }

    fn flush(&self) -> Result<()> {
        let mut splitter = self.state.working.lock();
        self.state.flush_all(&mut splitter)?;
        drop(splitter);
        // There may be runs to merge.
        self.state.signals.wake();
        Ok(())
    }

    fn stop(&self) {
        self.state.signals.stop(self.state.host.dir());
    }

    /// Keys are 16 bytes: file and offset, big-endian.
    fn survey(&self) -> Vec<Damage> {
        let mut damage = Vec::new();
        self.view().tables().for_each(|t| t.check(&mut damage));
        damage
    }

    fn damage_notes(&self) -> Vec<Arc<Damage>> {
        self.state.shared.damage_notes.all()
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl Drop for CompressedEngine {
    fn drop(&mut self) {
        self.stop();
    }
}
