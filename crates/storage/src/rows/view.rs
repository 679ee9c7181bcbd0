//! The state of the row engine at one moment (a *version* in LevelDB's words): immutable, except that its active MemTable grows.
//! [`RowReplay`] collects the first one at an open.
use super::cache::BlockCache;
use super::levels::Levels;
use super::memtable::MemTable;
use super::table::{Table, TableContext};
use crate::damage::DamageNotes;
use crate::engine::UnsyncedLog;
use crate::manifest::{Edit, ManifestState};
use crate::options::Options;
use crate::{Io, Op};
use std::path::Path;
use std::sync::Arc;

/// A MemTable that takes no more batches and waits for its flush.
pub struct SealedMemTable {
    /// The entries.
    pub table: Arc<MemTable>,
    /// Its last batch.
    pub last: u64,
    /// Log files of its batches that may not be synced yet.
    pub logs: Vec<UnsyncedLog>,
}

/// See the head of this file.
#[derive(Clone)]
pub struct View {
    /// Takes new batches.
    pub active: Arc<MemTable>,
    /// Waiting for their flush, oldest first.
    pub sealed: Vec<Arc<SealedMemTable>>,
    /// Table files.
    pub levels: Levels,
}

impl View {
    /// The MemTables, newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        std::iter::once(&self.active).chain(self.sealed.iter().rev().map(|s| &s.table))
    }
}

/// The first state, while the log is replayed.
pub struct RowReplay {
    tables: Arc<TableContext>,
    view: View,
    memtable_bytes: usize,
    /// Batches through this one are in the tables.
    flushed: u64,
}

impl RowReplay {
    /// Of the tables that the manifest names.
    pub fn new(
        io: Arc<dyn Io>,
        dir: &Path,
        options: &Options,
        salvaged: bool,
        state: &ManifestState,
    ) -> RowReplay {
        let tables = Arc::new(TableContext {
            io,
            dir: dir.to_path_buf(),
            cache: BlockCache::new(options.cache_bytes),
            salvaged,
            damage_notes: DamageNotes::default(),
        });
        let edit = Edit {
            add: state.tables.clone(),
            ..Edit::default()
        };
        let levels = Levels::default().edited(&edit, |meta| {
            Arc::new(Table::new(tables.clone(), meta.clone()))
        });
        RowReplay {
            tables,
            view: View {
                active: Arc::default(),
                sealed: Vec::new(),
                levels,
            },
            memtable_bytes: options.memtable_bytes,
            flushed: state.flushed,
        }
    }

    /// Adds a batch of the log, if the tables do not hold it.
    pub fn apply(&mut self, number: u64, ops: Vec<Op>) {
        if number > self.flushed {
            self.view.active.insert(number, ops);
            if self.view.active.bytes() >= self.memtable_bytes {
                self.seal(number);
            }
        }
    }

    /// Seals the active MemTable, whose last batch is `last`, if it is not empty.
    pub fn seal(&mut self, last: u64) {
        if !self.view.active.is_empty() {
            self.view.sealed.push(Arc::new(SealedMemTable {
                table: std::mem::take(&mut self.view.active),
                last,
                logs: Vec::new(),
            }));
        }
    }

    pub(super) fn into_view(self) -> (Arc<TableContext>, View) {
        (self.tables, self.view)
    }
}
