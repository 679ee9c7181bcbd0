//! The host of a store's engines, with what they share: its directory, log, manifest, file numbers, and [whether it may still
//! be written to](StoreHealth).
//!
//! # Locks
//! Taken in this order, never the other way: `syncing`, `log` (the log's end and the numbers; the commit leader holds it), what
//! engines hold while they write files, `manifest`, what engines hold while they change what readers see.
//!
//! # Invariants
//! - `visible` is the number of the last batch that all engines have applied; it moves on only once a batch is applied whole.
//! - `synced` never names a batch that is not on disk.
use super::health::StoreHealth;
use super::queue::Queue;
use crate::damage::OpenReport;
use crate::manifest::{Edit, EngineEdit, Manifest};
use crate::options::{Durability, Options};
use crate::wal::OldLog;
use crate::wal::writer::WalWriter;
use crate::{Io, Result, names};
use bytes::Bytes;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The end of the log and the numbers of batches; held by whoever commits, or ends a log file.
#[derive(Default)]
pub struct LogTail {
    /// The log file; none at durability `none`.
    pub(crate) file: Option<WalWriter>,
    /// Files before it, in order.
    pub(crate) old: Vec<OldLog>,
    /// The last batch's number.
    pub(crate) sequence: u64,
    /// Records on their way to the log.
    pub(crate) buffer: Vec<u8>,
    /// Counts log files created; compared with `directory_synced`.
    pub(crate) directory_changed: u64,
    /// The count whose directory entries are on disk.
    pub(crate) directory_synced: u64,
}

impl LogTail {
    /// Size of all log files, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let old: u64 = self.old.iter().map(|old| old.bytes).sum();
        old + self.file.as_ref().map_or(0, WalWriter::end)
    }
}

/// See the head of this file.
pub struct EngineHost {
    /// The file system.
    pub io: Arc<dyn Io>,
    /// Whether it may be written to.
    pub health: StoreHealth,
    pub(crate) options: Options,
    /// What was found at the open.
    pub(crate) opened: OpenReport,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) log: Mutex<LogTail>,
    pub(crate) queue: Queue,
    pub(crate) syncing: Mutex<()>,
    pub(crate) visible: AtomicU64,
    pub(crate) synced: AtomicU64,
    /// The newest log file that was made, or 0.
    pub(crate) newest_log: AtomicU64,
    /// The last batch that had entries for the attached engine.
    pub(crate) last_entries: AtomicU64,
    pub(crate) next_file: AtomicU64,
    /// Written to the log and to table files of rows.
    pub(crate) bytes_written: AtomicU64,
}

/// A store as its files have it.
pub(crate) struct RecoveredStore {
    pub opened: OpenReport,
    pub manifest: Manifest,
    pub old_logs: Vec<OldLog>,
    /// The last batch.
    pub last: u64,
    /// The last one with entries for the attached engine.
    pub last_entries: u64,
    pub next_file: u64,
}

impl EngineHost {
    pub(crate) fn new(
        io: Arc<dyn Io>,
        dir: &Path,
        salvaged: bool,
        options: Options,
        recovered: RecoveredStore,
    ) -> EngineHost {
        EngineHost {
            io,
            health: StoreHealth::new(dir, salvaged),
            options,
            opened: recovered.opened,
            manifest: Mutex::new(recovered.manifest),
            log: Mutex::new(LogTail {
                old: recovered.old_logs,
                sequence: recovered.last,
                ..LogTail::default()
            }),
            queue: Queue::default(),
            syncing: Mutex::default(),
            visible: AtomicU64::new(recovered.last),
            synced: AtomicU64::new(recovered.last),
            newest_log: AtomicU64::new(0),
            last_entries: AtomicU64::new(recovered.last_entries),
            next_file: AtomicU64::new(recovered.next_file),
            bytes_written: AtomicU64::new(0),
        }
    }

    /// The store's directory, where the engines' files lie too.
    pub fn dir(&self) -> &Path {
        self.health.dir()
    }

    /// Whether the store is only read, around whatever is damaged: engines write nothing and start no thread.
    pub fn is_salvaged(&self) -> bool {
        self.health.is_salvaged()
    }

    /// A file number never used before.
    pub fn new_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// The path of the attached engine's file `number`.
    pub fn path(&self, number: u64) -> PathBuf {
        names::engine_file(self.dir(), number)
    }

    /// The attached engine's files that the manifest names, by number, with what that engine wanted to know of them.
    pub fn files(&self) -> Vec<(u64, Bytes)> {
        let files = self.manifest.lock().state().engine_files.clone();
        files.into_iter().collect()
    }

    /// Names files of the attached engine in the manifest, on disk when it returns; removes log files that are superfluous then.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), [`Error::NoDescriptors`](crate::Error::NoDescriptors): nothing changed. Anything else has poisoned the store.
    pub fn edit(&self, engine: EngineEdit) -> Result<()> {
        let flushed = engine.flushed;
        if let Some(batch) = flushed {
            // A batch must not come back as this engine's part alone.
            match self.options.durability {
                // Without a log, what the rows hold comes to table files instead.
                Durability::None => self.health.rows().map_or(Ok(()), |rows| rows.flush())?,
                Durability::Process | Durability::Disk => self.sync_through(batch)?,
            }
        }
        let edit = Edit {
            engine,
            ..Edit::default()
        };
        self.append_edit(edit, |_| {})?;
        if flushed.is_some() {
            match self.retire_flushed() {
                // The files are named: that must not be taken for an edit that changed nothing. Superfluous logs go later.
                Err(e) if e.is_transient() => {
                    tracing::warn!(store = %self.dir().display(), "superfluous log files stay for now: {e}");
                }
                retired => retired?,
            }
        }
        Ok(())
    }

    /// Writes an edit to the manifest; `named` is called before another one can be written.
    ///
    /// # Errors
    /// As [`edit`](EngineHost::edit).
    pub(crate) fn append_edit(&self, mut edit: Edit, named: impl FnOnce(&Edit)) -> Result<()> {
        let mut manifest = self.manifest.lock();
        self.health.check_writable()?;
        edit.next_file = self.next_file.load(Ordering::Relaxed);
        manifest
            .append(edit.clone())
            .map_err(|e| self.health.poison_unless_full(e))?;
        named(&edit);
        Ok(())
    }

    /// How far the attached engine has come, if it does not hold all its entries in files.
    pub(crate) fn engine_behind(&self) -> Option<u64> {
        let flushed = self.manifest.lock().state().engine_flushed;
        (self.last_entries.load(Ordering::Acquire) > flushed).then_some(flushed)
    }
}
