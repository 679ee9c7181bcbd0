//! The state of the row engine: the current [`View`], replaced together with each edit of the manifest. Shared by readers, flushes
//! and compactions.
//!
//! # Invariants
//! - A [`View`] never changes, except that its active MemTable grows. Readers clone the pointer, *then* read `visible`. So the
//!   tables of a view hold only batches up to any `visible` that is read after it.
//! - The newest view has the tables that the manifest names.
use super::signals::SignalState;
use super::table::{Table, TableBuilder, TableContext};
use super::view::{RowReplay, View};
use crate::engine::{BackgroundWork, EngineHost};
use crate::manifest::{Edit, TableMeta};
use crate::{Result, names, remove_unnamed};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters, see [`Stats`](crate::Stats).
#[derive(Default)]
pub(super) struct Counters {
    pub puts: AtomicU64,
    pub gets: AtomicU64,
    pub flushes: AtomicU64,
    pub compactions: AtomicU64,
    pub stall_nanos: AtomicU64,
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// See the head of this file.
pub struct RowState {
    pub(super) host: Arc<EngineHost>,
    pub(super) tables: Arc<TableContext>,
    pub(super) view: RwLock<Arc<View>>,
    /// One MemTable is flushed at a time.
    pub(super) flushing: Mutex<()>,
    pub(super) signals: Arc<BackgroundWork<SignalState>>,
    pub(super) counters: Counters,
}

impl RowState {
    pub(super) fn new(host: Arc<EngineHost>, replayed: RowReplay) -> RowState {
        let (tables, view) = replayed.into_view();
        RowState {
            host,
            tables,
            view: RwLock::new(Arc::new(view)),
            flushing: Mutex::default(),
            signals: Arc::default(),
            counters: Counters::default(),
        }
    }

    /// The newest state.
    pub fn view(&self) -> Arc<View> {
        self.view.read().clone()
    }

    /// A new table file.
    pub(super) fn new_table(&self) -> Result<TableBuilder<'_>> {
        let host = &self.host;
        let (number, block_bytes) = (host.new_number(), host.options.block_bytes);
        let path = names::table(host.dir(), number);
        TableBuilder::create(&*host.io, path, number, block_bytes)
    }

    /// Writes an edit to the manifest, then publishes the state that it describes; `also` may change that state further.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), [`Error::NoDescriptors`](crate::Error::NoDescriptors): nothing changed, and the tables
    /// that the edit adds are removed. Anything else has poisoned the store.
    pub(super) fn edit(&self, edit: Edit, also: impl FnOnce(&mut View)) -> Result<()> {
        let add = edit.add.iter().map(|(_, t)| t.number);
        let new: Vec<u64> = add.filter(|n| !edit.remove.contains(n)).collect();
        let mut old = None;
        let mut replaced = Vec::new();
        let named = self.host.append_edit(edit, |edit| {
            let mut view = self.view.write();
            let make = |meta: &TableMeta| {
                // A table that only changes its level stays the same object.
                let mut all = view.levels.all();
                let same = all.find(|t| t.meta().number == meta.number).cloned();
                same.unwrap_or_else(|| Arc::new(Table::new(self.tables.clone(), meta.clone())))
            };
            let mut new = View {
                levels: view.levels.edited(edit, make),
                ..View::clone(&view)
            };
            also(&mut new);
            let stays = |number: u64| edit.add.iter().any(|(_, t)| t.number == number);
            replaced.extend(edit.remove.iter().copied().filter(|n| !stays(*n)));
            old = Some(std::mem::replace(&mut *view, Arc::new(new)));
        });
        named.inspect_err(|e| {
            if e.is_transient() {
                new.iter().for_each(|n| self.remove_table_file(*n));
            }
        })?;
        for table in old.iter().flat_map(|old| old.levels.all()) {
            if replaced.contains(&table.meta().number) {
                table.make_obsolete();
            }
        }
        Ok(())
    }

    /// Removes a table that no edit names, and its copy if it has one.
    pub(super) fn remove_table_file(&self, number: u64) {
        let (io, dir) = (&*self.host.io, self.host.dir());
        remove_unnamed(io, &names::table(dir, number));
        remove_unnamed(io, &names::table_copy(dir, number));
    }
}
