//! Writing sealed MemTables to table files.
use super::core::{Core, Sealed, View, Writer};
use crate::lineage::Lineage;
use crate::manifest::Edit;
use crate::table::{Table, TableBuilder, TableMeta};
use crate::{Error, Result, Shortage, SideEdit};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Core {
    /// Flushes the oldest sealed MemTable. Returns its last batch, or `None` if none is sealed.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoDescriptors`]: nothing changed, try again later. Anything else has poisoned the store.
    pub fn flush_oldest(&self) -> Result<Option<u64>> {
        let _one = self.flushing.lock();
        self.usable_for_work()?;
        let view = self.view();
        let Some(sealed) = view.sealed.first() else {
            return Ok(None);
        };
        // Its name is on disk once the table's is, or else by a sync of the directory for it alone.
        let log = self.newest_log.load(Ordering::Acquire);
        // Only flushes add to an empty store, so it stays empty meanwhile and deletes have nothing to hide.
        let added = self
            .write_table(sealed, view.levels.is_empty())
            .map_err(|e| self.poison_unless_full(e))?;
        let number = added.as_ref().map(|t| t.number);
        if number.is_none() {
            let synced = self.io().sync_dir(self.dir());
            synced.map_err(|e| self.poison_unless_full(Error::hard("sync", self.dir(), e)))?;
        }
        let side_flushed = self.side_behind();
        // A batch must not come back without what it holds for the side, which only the log has.
        if side_flushed.is_some()
            && let Err(e) = self.sync_logs(sealed)
        {
            if let Some(number) = number.filter(|_| e.is_transient()) {
                self.remove_table_file(number);
            }
            return Err(self.poison_unless_full(e));
        }
        let edit = Edit {
            log: Some(log),
            add: added.into_iter().map(|t| (0, t)).collect(),
            flushed: Some(sealed.last),
            side: SideEdit {
                flushed: side_flushed,
                ..SideEdit::default()
            },
            ..Edit::default()
        };
        let last = sealed.last;
        if let Err(e) = self.edit(edit, |view| drop(view.sealed.remove(0))) {
            if e.is_transient()
                && let Some(number) = number
            {
                self.remove_table_file(number);
            }
            return Err(e);
        }
        self.count(&self.counters.flushes, 1);
        Ok(Some(last))
    }

    fn write_table(&self, sealed: &Sealed, drop_deletes: bool) -> Result<Option<TableMeta>> {
        let number = self.new_number();
        let mut builder = TableBuilder::create(
            self.io(),
            self.dir(),
            number,
            self.options.block_bytes,
        )?;
        let written = sealed
            .table
            .for_each(|keyspace, key, value| {
                if drop_deletes && value.is_none() {
                    Ok(())
                } else {
                    builder.add(keyspace.0, key, value)
                }
            })
            .and_then(|()| {
                if builder.entries() == 0 {
                    Ok(None)
                } else {
                    let mut lineage = Lineage::default();
                    lineage.edit.flushed = Some(sealed.last);
                    builder.finish(self.dir(), 0, &lineage).map(Some)
                }
            });
        match &written {
            Ok(Some(meta)) => self.count(&self.counters.bytes_written, meta.bytes),
            _ => builder.abandon(),
        }
        written
    }

    fn sync_logs(&self, sealed: &Sealed) -> Result<()> {
        for (file, path) in &sealed.logs {
            if let Some(file) = file.upgrade() {
                file.sync().map_err(|e| Error::hard("sync", path, e))?;
            }
        }
        let synced = self.io().sync_dir(self.dir());
        synced.map_err(|e| Error::hard("sync", self.dir(), e))
    }

    /// How far the side has come, if it does not hold all its entries in files.
    fn side_behind(&self) -> Option<u64> {
        let flushed = self.side_flushed();
        (self.side_last.load(Ordering::Acquire) > flushed).then_some(flushed)
    }

    /// Writes an edit to the manifest, then makes the state that it describes the newest; `also` changes more of it.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoDescriptors`]: nothing changed. Anything else has poisoned the store.
    pub fn edit(&self, mut edit: Edit, also: impl FnOnce(&mut View)) -> Result<()> {
        let mut manifest = self.manifest.lock();
        self.usable_for_work()?;
        edit.next_file = self.next_file.load(Ordering::Relaxed);
        manifest
            .append(edit.clone())
            .map_err(|e| self.poison_unless_full(e))?;
        let mut view = self.view.write();
        let old = view.clone();
        let make = |meta: &TableMeta| {
            // A table that only changes its level stays the same object.
            let same = old
                .levels
                .all()
                .find(|t| t.meta().number == meta.number)
                .cloned();
            same.unwrap_or_else(|| Arc::new(Table::new(self.tables.clone(), meta.clone())))
        };
        let mut new = View {
            levels: old.levels.edited(&edit, make),
            ..View::clone(&old)
        };
        also(&mut new);
        *view = Arc::new(new);
        drop(view);
        drop(manifest);
        for table in old.levels.all() {
            let number = table.meta().number;
            if edit.remove.contains(&number) && edit.add.iter().all(|(_, t)| t.number != number) {
                table.make_obsolete();
            }
        }
        Ok(())
    }

    /// Removes a table file that no edit names. Failure leaves an orphan for the next open.
    pub fn remove_table_file(&self, number: u64) {
        let (table, copy) = (crate::names::table, crate::names::table_copy);
        for path in [table(self.dir(), number), copy(self.dir(), number)] {
            match self.io().remove(&path) {
                Ok(()) => {}
                // Not every table has a copy.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => {
                    tracing::warn!(file = %path.display(), "unused table left behind, the next open removes it: {e}");
                }
            }
        }
    }

    /// Like `usable`, but a closing store may finish its work.
    pub fn usable_for_work(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            Err(self.poison_error())
        } else {
            Ok(())
        }
    }

    /// See [`Store::flush`](crate::Store::flush).
    pub fn flush(&self) -> Result<()> {
        self.usable()?;
        let mut writer = self.writer.lock();
        if !self.view.read().active.is_empty() {
            self.seal(&mut writer)?;
        }
        let last = writer.sequence;
        if !self.options.background {
            return self.flush_sealed(&mut writer);
        }
        drop(writer);
        let mut signals = self.signals.lock();
        let failures = signals.shortages;
        loop {
            self.usable_for_work()?;
            if self.view().sealed.first().is_none_or(|s| s.last > last) {
                return Ok(());
            }
            if signals.shortages != failures {
                let shortage = signals.shortage.unwrap_or(Shortage::Space);
                return Err(shortage.error(self.dir()));
            }
            if self.stopping() {
                return Err(Error::invalid(self.dir(), "the store is being closed"));
            }
            self.work.notify_all();
            self.progress.wait(&mut signals);
        }
    }

    /// Flushes all sealed MemTables in this thread.
    pub fn flush_sealed(&self, writer: &mut Writer) -> Result<()> {
        loop {
            match self.flush_oldest() {
                Ok(Some(last)) => {
                    self.note_progress();
                    let gone = self
                        .retire_logs(writer, last)
                        .map_err(|e| self.poison_unless_full(e))?;
                    self.remove_logs(gone)?;
                }
                Ok(None) => return Ok(()),
                Err(e) => {
                    self.note_failure(&e);
                    return Err(e);
                }
            }
        }
    }
}
