//! Writing sealed MemTables to table files.
use super::RowEngine;
use super::state::{RowState, count};
use super::view::SealedMemTable;
use crate::engine::{LogTail, sync_logs};
use crate::manifest::{Edit, EngineEdit, Provenance, TableMeta};
use crate::{Error, IoContext, Result};
use std::sync::atomic::Ordering;

impl RowState {
    /// Flushes the oldest sealed MemTable. Returns its last batch, or `None` if none is sealed.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoDescriptors`]: nothing changed, try again later. Anything else has poisoned the store.
    pub(super) fn flush_oldest(&self) -> Result<Option<u64>> {
        let _one = self.flushing.lock();
        self.host.health.check_writable()?;
        let view = self.view();
        let Some(sealed) = view.sealed.first() else {
            return Ok(None);
        };
        // Its name is on disk once the table's is, or else by a sync of the directory for it alone.
        let log = self.host.newest_log.load(Ordering::Acquire);
        // Only flushes add to an empty store, so it stays empty meanwhile and deletes have nothing to hide.
        let added = self
            .write_table(sealed, view.levels.is_empty())
            .map_err(|e| self.host.health.poison_unless_full(e))?;
        let number = added.as_ref().map(|t| t.number);
        if number.is_none() {
            let dir = self.host.dir();
            let synced = self
                .host
                .io
                .sync_dir(dir)
                .state_unknown_context("sync", dir);
            synced.map_err(|e| self.host.health.poison_unless_full(e))?;
        }
        let engine_flushed = self.host.engine_behind();
        // A batch must not come back without what it holds for the attached engine, which only the log has.
        if engine_flushed.is_some()
            && let Err(e) = sync_logs(&*self.host.io, self.host.dir(), &sealed.logs)
        {
            if let Some(number) = number.filter(|_| e.is_transient()) {
                self.remove_table_file(number);
            }
            return Err(self.host.health.poison_unless_full(e));
        }
        let edit = Edit {
            log: Some(log),
            add: added.into_iter().map(|t| (0, t)).collect(),
            flushed: Some(sealed.last),
            engine: EngineEdit {
                flushed: engine_flushed,
                ..EngineEdit::default()
            },
            ..Edit::default()
        };
        let last = sealed.last;
        self.edit(edit, |view| drop(view.sealed.remove(0)))?;
        count(&self.counters.flushes, 1);
        Ok(Some(last))
    }

    fn write_table(
        &self,
        sealed: &SealedMemTable,
        drop_deletes: bool,
    ) -> Result<Option<TableMeta>> {
        let mut builder = self.new_table()?;
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
                    let mut provenance = Provenance::default();
                    provenance.edit.flushed = Some(sealed.last);
                    builder.finish(self.host.dir(), 0, &provenance).map(Some)
                }
            });
        match &written {
            Ok(Some(meta)) => count(&self.host.bytes_written, meta.bytes),
            _ => builder.abandon(),
        }
        written
    }
}

impl RowEngine {
    /// See [`Store::flush`](crate::Store::flush).
    pub(super) fn flush_all(&self) -> Result<()> {
        self.host.health.check_open()?;
        let mut log = self.host.log.lock();
        if !self.state.view.read().active.is_empty() {
            self.seal(&mut log)?;
        }
        let last = log.sequence;
        if !self.host.options.background {
            return self.flush_sealed(&mut log);
        }
        drop(log);
        let mut signals = self.signals.lock();
        let failures = signals.shortages;
        // Once: the thread that flushes goes on while there is something sealed, and the other one has nothing to do with it.
        self.signals.work.notify_all();
        loop {
            self.host.health.check_writable()?;
            if self
                .state
                .view()
                .sealed
                .first()
                .is_none_or(|s| s.last > last)
            {
                return Ok(());
            }
            if signals.shortages != failures {
                return Err(self.shortage(&signals));
            }
            if self.signals.is_stopping() {
                return Err(Error::invalid(self.host.dir(), "the store is being closed"));
            }
            self.signals.progress.wait(&mut signals);
        }
    }

    /// Flushes all sealed MemTables in this thread.
    pub(super) fn flush_sealed(&self, log: &mut LogTail) -> Result<()> {
        loop {
            match self.state.flush_oldest() {
                Ok(Some(last)) => {
                    self.signals.note_progress();
                    let gone = self.host.retire_logs(log, last);
                    let gone = gone.map_err(|e| self.host.health.poison_unless_full(e))?;
                    self.host.remove_logs(gone)?;
                }
                Ok(None) => return Ok(()),
                Err(e) => {
                    self.signals.note_failure(&e);
                    return Err(e);
                }
            }
        }
    }
}
