//! Table files being written: the output of a flush or a merge.
//!
//! A table is small, dozens of KiB, and a sync takes a disk about as long whatever the file's size. So another thread syncs many
//! tables at once. Meanwhile this one writes the next tables, and compresses sealed MemTables that writers wait for.
//!
//! Invariant: the tables that [`TableOutput::end`] returns are on disk with their directory entries; if it fails, none of them is left.
use super::super::block::Block;
use super::super::merge::{Blocks, Merge};
use super::super::stats::count;
use super::super::table::{Table, TableMeta, Writer};
use super::inline_compression::InlineCompression;
use super::{EngineState, Signals, files};
use forebay_storage::{BackgroundWork, Error, File, Io, IoContext, Provenance, Result};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Tables that are synced at a time, at most. Twice as many files may be open.
const SYNCED_TOGETHER: usize = 64;
/// Who waits for a sync looks again after this, woken or not.
const SYNC_WAIT: Duration = Duration::from_secs(1);

/// Why tables were not written.
pub enum Failure {
    /// What they are made of cannot be read; nothing has changed.
    Input(Error),
    /// They cannot be written; unless room or descriptors are missing, the store is poisoned.
    Output(Error),
}

impl Failure {
    /// What happened.
    pub fn error(self) -> Error {
        match self {
            Failure::Input(e) | Failure::Output(e) => e,
        }
    }
}

/// Files that were written and not synced, with their paths.
type UnsyncedFiles = Vec<(PathBuf, Arc<dyn File>)>;

fn sync(io: &dyn Io, unsynced: &UnsyncedFiles) -> Result<()> {
    let files: Vec<Arc<dyn File>> = unsynced.iter().map(|(_, file)| file.clone()).collect();
    let synced = io.sync_files(&files);
    synced.map_err(|(at, e)| Error::io("sync", &unsynced[at].0, e))
}

/// Files that another thread syncs.
struct TableSync {
    thread: JoinHandle<Result<()>>,
    over: Arc<AtomicBool>,
}

/// Tells the worker that a sync is over, however it ended.
struct SyncEnd {
    over: Arc<AtomicBool>,
    signals: Arc<BackgroundWork<Signals>>,
}

impl Drop for SyncEnd {
    fn drop(&mut self) {
        let _signals = self.signals.lock();
        self.over.store(true, Ordering::Release);
        self.signals.work.notify_all();
    }
}

/// See the head of this file.
pub struct TableOutput<'a> {
    state: &'a EngineState,
    urgent: InlineCompression<'a>,
    /// The age of the run that they are to be, and the tables that they are made of.
    age: u64,
    inputs: Vec<u64>,
    writer: Option<Writer>,
    tables: BTreeMap<u64, Arc<Table>>,
    unsynced: UnsyncedFiles,
    /// Those being synced.
    syncing: Option<TableSync>,
}

impl<'a> TableOutput<'a> {
    /// Of none yet, for a run of this age, made of these tables; urgent work is done while they are made and synced.
    pub fn new(
        state: &'a EngineState,
        urgent: InlineCompression<'a>,
        age: u64,
        inputs: Vec<u64>,
    ) -> TableOutput<'a> {
        TableOutput {
            state,
            urgent,
            age,
            inputs,
            writer: None,
            tables: BTreeMap::new(),
            unsynced: Vec::new(),
            syncing: None,
        }
    }

    /// Adds all blocks of a merge, whose keys are above those before.
    pub fn take<B: Blocks>(&mut self, merge: &mut Merge<'_, B>) -> Result<(), Failure> {
        while let Some(block) = merge.block().map_err(Failure::Input)? {
            self.add(&block).map_err(Failure::Output)?;
            self.urgent.compress_next().map_err(Failure::Output)?;
        }
        Ok(())
    }

    fn add(&mut self, block: &Block) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let new = match self.create() {
                    // Those before it are open until they are synced.
                    Err(Error::NoDescriptors { .. }) if self.holds_files() => {
                        self.start_background_sync()?;
                        self.wait()?;
                        self.create()
                    }
                    created => created,
                };
                self.writer.insert(new?)
            }
        };
        writer.add(block);
        if writer.blocks() >= self.state.settings.table_blocks {
            self.cut()?;
        }
        Ok(())
    }

    fn create(&self) -> Result<Writer> {
        let host = &self.state.host;
        let number = host.new_number();
        Writer::create(host.io.clone(), host.path(number), number)
    }

    /// Whether there are tables that are not synced yet.
    fn holds_files(&self) -> bool {
        !self.unsynced.is_empty() || self.syncing.is_some()
    }

    /// Ends the table at hand, so that another may stand after it.
    pub fn cut(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let path = writer.path.clone();
            let provenance = |meta: &TableMeta| {
                let record = files::table_record(self.age, meta, &path)?;
                let made = Provenance::of_engine_file(meta.number, record, &self.inputs);
                Ok(made.encode(meta.number))
            };
            let (meta, file) = writer.finish(provenance)?;
            count(&self.state.shared.counters.bytes_written, meta.bytes);
            let table = Arc::new(Table::new(self.state.shared.clone(), path.clone(), meta));
            self.tables.insert(meta.number, table);
            self.unsynced.push((path, file));
            let most = self.state.host.io.open_at_once() / 2;
            if self.unsynced.len() >= SYNCED_TOGETHER.min(most) {
                self.start_background_sync()?;
            }
        }
        Ok(())
    }

    /// Has the tables so far synced, by another thread if there may be one, once those before them are.
    fn start_background_sync(&mut self) -> Result<()> {
        self.wait()?;
        let (io, unsynced) = (
            self.state.host.io.clone(),
            std::mem::take(&mut self.unsynced),
        );
        if self.state.settings.background {
            let unsynced = Arc::new(unsynced);
            let (io_there, there) = (io.clone(), unsynced.clone());
            let over = Arc::new(AtomicBool::new(false));
            let end = SyncEnd {
                over: over.clone(),
                signals: self.state.signals.clone(),
            };
            let work = move || {
                let _end = end;
                sync(&*io_there, &there)
            };
            let thread = std::thread::Builder::new().name("index sync".into());
            match thread.spawn(work) {
                Ok(thread) => self.syncing = Some(TableSync { thread, over }),
                Err(_) => sync(&*io, &unsynced)?,
            }
            return Ok(());
        }
        sync(&*io, &unsynced)
    }

    /// Waits for the tables that are being synced; meanwhile does what writers wait for, as MemTables are sealed.
    fn wait(&mut self) -> Result<()> {
        let mut done = Ok(());
        while let Some(TableSync { over, .. }) = &self.syncing
            && !over.load(Ordering::Acquire)
        {
            let sealed = || self.state.view.read().sealed.len();
            let before = sealed();
            match self.urgent.compress_next() {
                Ok(true) => {}
                Ok(false) => {
                    let mut signals = self.state.signals.lock();
                    // Both are made true before `work` is notified under this lock.
                    if !over.load(Ordering::Acquire) && sealed() <= before {
                        self.state.signals.work.wait_for(&mut signals, SYNC_WAIT);
                    }
                }
                Err(e) => {
                    done = Err(e);
                    break;
                }
            }
        }
        self.join().and(done)
    }

    /// Whether what was being synced is.
    fn join(&mut self) -> Result<()> {
        let Some(syncing) = self.syncing.take() else {
            return Ok(());
        };
        syncing.thread.join().unwrap_or_else(|_| {
            let panicked = io::Error::other("the thread panicked");
            Err(panicked).state_unknown_context("sync tables in", self.state.host.dir())
        })
    }

    /// The last table, and all of them to disk.
    fn sync_all(&mut self) -> Result<()> {
        self.cut()?;
        if !self.unsynced.is_empty() {
            self.start_background_sync()?;
        }
        self.wait()?;
        let dir = self.state.host.dir();
        let synced = self.state.host.io.sync_dir(dir);
        synced.state_unknown_context("sync", dir)
    }

    /// The tables, whole and on disk; or, after a failure, none of them is left.
    ///
    /// # Errors
    /// The failure given, or that of the last tables.
    pub fn end(mut self, result: Result<(), Failure>) -> Result<Vec<Arc<Table>>, Failure> {
        let result = result.and_then(|()| self.sync_all().map_err(Failure::Output));
        result.map_err(|failure| {
            if let Some(writer) = self.writer.take() {
                writer.abandon();
            }
            // Whatever becomes of them, they go; but no thread is left behind.
            let _ = self.join();
            self.tables.values().for_each(|t| t.make_obsolete());
            match failure {
                Failure::Output(e) => Failure::Output(self.state.host.health.poison_unless_full(e)),
                input => input,
            }
        })?;
        Ok(self.tables.into_values().collect())
    }
}
