//! What a store's calls and threads share.
//!
//! # Locks
//! Taken in this order, never the other way: `syncing`, `writer` (the log and the numbers; the commit leader holds it),
//! `flushing` or `compacting` (one such job at a time), `manifest`, `view` (swapped in a moment), `signals`. (Conditions on the
//! view are also looked at under `signals`; nobody takes `signals` while the view is being swapped.)
//!
//! # Invariants
//! - A [`View`] never changes but for the growing active MemTable; readers clone the pointer, *then* read `visible`.
//!   Tables of a view only hold batches at or below any `visible` read after it.
//! - `visible` names the last batch that is whole in the MemTables; it moves only to the end of a batch.
use crate::compaction::{Levels, Limits};
use crate::damage::Opened;
use crate::manifest::Manifest;
use crate::memtable::MemTable;
use crate::options::Options;
use crate::side::Side;
use crate::table::Tables;
use crate::wal::writer::LogWriter;
use crate::{Error, File, Io, Result, Shortage};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// A MemTable that takes no more batches and waits for its flush.
pub struct Sealed {
    /// The entries.
    pub table: Arc<MemTable>,
    /// Its last batch.
    pub last: u64,
    /// The log files of its batches that may not be on disk yet, and their paths. One that is gone was synced, or is superfluous: held
    /// open, it would keep its space on the disk, which may be what a flush waits for.
    pub logs: Vec<(Weak<dyn File>, PathBuf)>,
}

/// One state of the store, unchanging (see the module).
#[derive(Clone)]
pub struct View {
    /// Takes new batches.
    pub active: Arc<MemTable>,
    /// Waiting for their flush, oldest first.
    pub sealed: Vec<Arc<Sealed>>,
    /// Table files.
    pub levels: Levels,
}

/// A log file that is no longer written.
pub struct OldLog {
    /// The number in its name.
    pub number: u64,
    /// Its last batch.
    pub last: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where it is damaged and nothing is lost, see [`Replayed`](crate::wal::recovery::Replayed).
    pub harmless: Vec<u64>,
    /// The file and its path, if it may not be on disk yet.
    pub unsynced: Option<(Arc<dyn File>, PathBuf)>,
}

/// The log's end and the numbers; held by whoever commits or seals.
pub struct Writer {
    /// The log file; none at durability `none`.
    pub log: Option<LogWriter>,
    /// Files before it, in order.
    pub old: Vec<OldLog>,
    /// The last batch's number.
    pub sequence: u64,
    /// Records on their way to the log.
    pub buffer: Vec<u8>,
    /// Counts log files created; compared with `directory_synced`.
    pub directory_changed: u64,
    /// The count whose directory entries are on disk.
    pub directory_synced: u64,
}

/// What threads tell each other.
#[derive(Default)]
pub struct Signals {
    /// Why the last flush or compaction could not be made for now, if none has succeeded since.
    pub shortage: Option<Shortage>,
    /// Attempts that failed for a shortage.
    pub shortages: u64,
    /// The disk is full and there are deletes: compact everything to give space back.
    pub reclaim: bool,
    /// Most entries of the tables may be deleted: compact everything, for there is time.
    pub shrink: bool,
    /// The last put found no room.
    pub full: bool,
    /// Refused puts, and deletes, since giving space back was last tried.
    pub pleas: u64,
    /// How often that was tried since it last helped.
    pub tries: u32,
    /// Tables that could not be read: left out of compactions.
    pub damaged: HashSet<u64>,
    /// Bytes of reclaiming batches taken beyond the limit while there is no room.
    pub beyond: u64,
}

/// Counters, see [`Stats`](crate::Stats).
#[derive(Default)]
pub struct Counters {
    pub puts: AtomicU64,
    pub gets: AtomicU64,
    pub flushes: AtomicU64,
    pub compactions: AtomicU64,
    pub bytes_written: AtomicU64,
    pub stall_nanos: AtomicU64,
}

/// See the [module](self).
pub struct Core {
    /// What was found at the open.
    pub opened: Opened,
    /// The newest log file that was made, or 0.
    pub newest_log: AtomicU64,
    pub tables: Arc<Tables>,
    pub options: Options,
    pub view: RwLock<Arc<View>>,
    pub visible: AtomicU64,
    pub synced: AtomicU64,
    pub queue: super::queue::Queue,
    pub writer: Mutex<Writer>,
    pub syncing: Mutex<()>,
    pub manifest: Mutex<Manifest>,
    pub flushing: Mutex<()>,
    /// Where the last compaction of each level ended.
    pub compacting: Mutex<Vec<Vec<u8>>>,
    pub signals: Mutex<Signals>,
    /// A batch came since the log was last trimmed: the flush thread waits for a pause.
    pub grown: AtomicBool,
    /// Wakes the background threads.
    pub work: Condvar,
    /// Wakes those who wait for them.
    pub progress: Condvar,
    pub next_file: AtomicU64,
    pub stop: AtomicBool,
    pub closed: AtomicBool,
    /// Whether the last put found no room (a copy of the signal, to be read without its lock).
    pub full: AtomicBool,
    /// Whether the spare room is in use or could not be made: puts are refused.
    pub spare_used: AtomicBool,
    /// Held while space is given back.
    pub giving_back: Mutex<()>,
    pub poisoned: AtomicBool,
    pub reason: Mutex<String>,
    pub counters: Counters,
    /// The side, once attached.
    pub side: RwLock<Option<Arc<dyn Side>>>,
    /// The last batch that had entries for it.
    pub side_last: AtomicU64,
    /// What the log holds for the side, until it is attached: batches with their entries.
    pub side_log: Mutex<Vec<(u64, Vec<crate::SideEntry>)>>,
}

impl Core {
    /// The file system.
    pub fn io(&self) -> &dyn Io {
        &*self.tables.io
    }

    /// The store's directory.
    pub fn dir(&self) -> &Path {
        &self.tables.dir
    }

    /// The limits that drive compaction.
    pub fn limits(&self) -> Limits {
        let o = &self.options;
        Limits {
            level0_tables: o.level0_tables.max(1),
            level1_bytes: o.level1_bytes,
            ratio: 10,
        }
    }

    /// The side, if it is attached.
    pub fn side(&self) -> Option<Arc<dyn Side>> {
        self.side.read().clone()
    }

    /// The last batch through which the side holds its entries in files.
    pub fn side_flushed(&self) -> u64 {
        self.manifest.lock().state().side_flushed
    }

    /// The newest state.
    pub fn view(&self) -> Arc<View> {
        self.view.read().clone()
    }

    /// A file number never used before.
    pub fn new_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Refuses everything that changes the store from now on. Hands the error back.
    pub fn poison(&self, error: Error) -> Error {
        let mut reason = self.reason.lock();
        if reason.is_empty() {
            tracing::error!(store = %self.dir().display(), "store closed after a failed write: {error}");
            *reason = error.to_string();
        }
        self.poisoned.store(true, Ordering::Release);
        drop(reason);
        let _signals = self.signals.lock();
        self.progress.notify_all();
        error
    }

    /// Poisons, unless the error is a full disk or a want of descriptors, which change nothing.
    pub fn poison_unless_full(&self, error: Error) -> Error {
        if error.is_transient() {
            error
        } else {
            self.poison(error)
        }
    }

    /// # Errors
    /// [`Error::Poisoned`] after a failed write or `close`; [`Error::Io`] if the store is salvaged.
    pub fn usable(&self) -> Result<()> {
        if self.tables.salvaged {
            return Err(Error::Io {
                what: "change a store that is salvaged:",
                path: self.dir().to_path_buf(),
                source: std::io::ErrorKind::ReadOnlyFilesystem.into(),
            });
        }
        if self.poisoned.load(Ordering::Acquire) {
            return Err(self.poison_error());
        }
        if self.closed.load(Ordering::Acquire) {
            let reason = "it was closed".to_string();
            return Err(Error::Poisoned {
                path: self.dir().to_path_buf(),
                reason,
            });
        }
        Ok(())
    }

    /// The error of a poisoned store.
    pub fn poison_error(&self) -> Error {
        Error::Poisoned {
            path: self.dir().to_path_buf(),
            reason: self.reason.lock().clone(),
        }
    }

    /// Whether threads shall end.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Wakes the background threads.
    pub fn wake(&self) {
        let _signals = self.signals.lock();
        self.work.notify_all();
    }

    /// Adds to a counter.
    pub fn count(&self, counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// Poisons the store when the thread panics under it: what was half done is not known, and others may wait for it.
pub struct PoisonOnPanic<'a> {
    core: &'a Core,
    /// The thread was panicking already, for another reason.
    before: bool,
}

impl PoisonOnPanic<'_> {
    pub fn new(core: &Core) -> PoisonOnPanic<'_> {
        let before = std::thread::panicking();
        PoisonOnPanic { core, before }
    }
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.before {
            let path = self.core.dir();
            self.core.poison(Error::invalid(path, "a thread panicked"));
        }
    }
}
