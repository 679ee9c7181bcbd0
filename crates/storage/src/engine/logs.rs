//! The log files of an open store: appending groups of batches, going on to the next file, using the reserve when the
//! disk is full, removing files after a flush, syncing.
//!
//! Batches are in the log in the order of their numbers, file after file; a log file is removed only once all engines hold its
//! batches in files.
use super::host::{EngineHost, LogTail};
use super::queue::QueuedBatch;
use crate::manifest::{Edit, OpenState};
use crate::options::Durability;
use crate::wal::{OldLog, payload, record, reserve, writer::WalWriter};
use crate::{EngineEdit, Error, File, Io, IoContext, Result, names};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// A log file whose batches may not be on disk yet, and its path. One that is gone was synced, or is superfluous: held open, it would keep its
/// space on the disk, which may be what a flush waits for.
pub(crate) type UnsyncedLog = (Weak<dyn File>, PathBuf);

impl LogTail {
    /// Brings the names of new log files to disk.
    pub(crate) fn sync_directory(&mut self, io: &dyn Io, dir: &Path) -> Result<()> {
        if self.directory_synced != self.directory_changed {
            io.sync_dir(dir).state_unknown_context("sync", dir)?;
            self.directory_synced = self.directory_changed;
        }
        Ok(())
    }
}

/// Brings log files to disk, with their names.
pub(crate) fn sync_logs(io: &dyn Io, dir: &Path, logs: &[UnsyncedLog]) -> Result<()> {
    for (file, path) in logs {
        if let Some(file) = file.upgrade() {
            file.sync().state_unknown_context("sync", path)?;
        }
    }
    io.sync_dir(dir).state_unknown_context("sync", dir)
}

impl EngineHost {
    /// Appends the group to the log, in the reserve if need be, and syncs it at durability `disk`. The log's name is on disk
    /// before its first record then, so that what may fail for want of a descriptor fails while nothing has changed.
    pub(crate) fn log_group(
        &self,
        tail: &mut LogTail,
        group: &[QueuedBatch],
        reclaiming: bool,
    ) -> Result<()> {
        let mut result = self.append(tail, group, reclaiming);
        if matches!(&result, Err(e) if e.is_no_space()) && reclaiming && self.use_reserve(tail)? {
            result = self.append(tail, group, true);
        }
        result.map_err(|e| self.health.poison_unless_full(e))?;
        if self.options.durability == Durability::Disk {
            let last = tail.sequence + group.len() as u64;
            let sealed = match &mut tail.file {
                Some(log) => log.sync().and_then(|()| log.seal(last)),
                None => Ok(()),
            };
            sealed.map_err(|e| self.health.poison(e))?;
            self.synced.fetch_max(last, Ordering::AcqRel);
        }
        Ok(())
    }

    fn append(&self, tail: &mut LogTail, group: &[QueuedBatch], reclaiming: bool) -> Result<()> {
        if self.options.durability == Durability::Disk {
            tail.sync_directory(&*self.io, self.dir())?;
        }
        let LogTail {
            file,
            buffer,
            sequence,
            ..
        } = tail;
        let Some(current) = file else { return Ok(()) };
        let synced = self.synced.load(Ordering::Acquire);
        let encode = |buffer: &mut Vec<u8>, number| {
            buffer.clear();
            for (i, queued) in group.iter().enumerate() {
                record::write(buffer, number, *sequence + 1 + i as u64, synced, |out| {
                    payload::encode(out, &queued.batch.ops, &queued.batch.entries)
                });
            }
        };
        encode(buffer, current.number);
        if current.is_reserve() && !(reclaiming && current.fits(buffer.len())) {
            // The disk was full. Go on as usual if it has room for a reserve and the batch again.
            if !self.renew_reserve()? {
                return Err(Error::no_space(&current.path));
            }
            self.next_log(tail)?;
            return self.append(tail, group, reclaiming);
        }
        current.append(buffer)?;
        let written = buffer.len() as u64;
        self.bytes_written.fetch_add(written, Ordering::Relaxed);
        if buffer.capacity() > 4 << 20 {
            *buffer = Vec::new();
        }
        Ok(())
    }

    /// After a flush: takes the log files that it made superfluous out of the books, and leaves the reserve if
    /// it can. The caller removes the files with [`remove_logs`](EngineHost::remove_logs), best without the log.
    ///
    /// Nothing goes that another engine does not hold in its files.
    pub(crate) fn retire_logs(&self, tail: &mut LogTail, flushed: u64) -> Result<Vec<u64>> {
        let flushed = flushed.min(self.manifest.lock().state().engine_flushed);
        if tail.file.as_ref().is_some_and(WalWriter::is_reserve) && self.renew_reserve()? {
            match self.next_log(tail) {
                // No room yet: it stays in the reserve, and what is superfluous goes all the same.
                Err(e) if !e.is_transient() => return Err(e),
                _ => {}
            }
        }
        // The one that the manifest names stays until it names another: if it were missing, batches would be.
        let named = self.manifest.lock().state().log;
        let stays = |old: &OldLog| old.last > flushed || Some(old.number) == named;
        let gone = tail.old.iter().filter(|old| !stays(old));
        let gone = gone.map(|old| old.number).collect();
        tail.old.retain(stays);
        self.synced.fetch_max(flushed, Ordering::AcqRel);
        Ok(gone)
    }

    /// After the attached engine has brought entries into files: removes the log files that are superfluous now.
    pub(crate) fn retire_flushed(&self) -> Result<()> {
        let flushed = self.manifest.lock().state().flushed;
        let gone = self.retire_logs(&mut self.log.lock(), flushed);
        self.remove_logs(gone.map_err(|e| self.health.poison_unless_full(e))?)
    }

    /// The last thing that is written: that the store is closed, after which batch; and log files that are superfluous then are removed.
    /// `rows_flushed`: no row is in memory only.
    ///
    /// # Errors
    /// A failed write. Without room the store is closed all the same, and the next open takes it for one that was killed.
    pub(crate) fn end_log(&self, rows_flushed: bool) -> Result<()> {
        self.health.check_writable()?;
        let mut tail = self.log.lock();
        let last = tail.sequence;
        // Batches that brought nothing for an engine are in its files as well.
        let behind = self.engine_behind();
        let flushed = {
            let mut manifest = self.manifest.lock();
            let edit = Edit {
                next_file: self.next_file.load(Ordering::Relaxed),
                flushed: rows_flushed.then_some(last),
                engine: EngineEdit {
                    flushed: Some(behind.unwrap_or(last)),
                    ..EngineEdit::default()
                },
                mark: Some(OpenState::Closed(last)),
                ..Edit::default()
            };
            match manifest.append(edit) {
                Err(e) if e.is_transient() => return Ok(()),
                appended => appended.map_err(|e| self.health.poison(e))?,
            }
            manifest.state().flushed_by_all()
        };
        if flushed < last {
            return Ok(());
        }
        let logs = tail.old.drain(..).map(|old| old.number);
        let mut logs: Vec<u64> = logs.collect();
        logs.extend(tail.file.take().map(|log| log.number));
        drop(tail);
        self.remove_logs(logs)
    }

    /// Removes retired log files.
    pub(crate) fn remove_logs(&self, numbers: Vec<u64>) -> Result<()> {
        for number in numbers {
            let path = names::log(self.dir(), number);
            let removed = self.io.remove(&path).context("remove", &path);
            removed.map_err(|e| self.health.poison_unless_full(e))?;
        }
        Ok(())
    }

    /// Makes sure that there is a reserve to go on in when the disk is full. `false` if there is no room for one.
    fn renew_reserve(&self) -> Result<bool> {
        reserve::ensure(
            &*self.io,
            self.dir(),
            names::RESERVE,
            self.options.wal_reserve_bytes,
        )
    }

    /// Starts a new log file after the current one.
    pub(crate) fn next_log(&self, tail: &mut LogTail) -> Result<()> {
        let log = WalWriter::create(&*self.io, self.dir(), self.new_number())?;
        self.replace_log(tail, log);
        Ok(())
    }

    /// Ends the log file with the MemTable that is sealed, and asks engines for a flush if files after it are long. Returns the files that
    /// may not be on disk yet.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoDescriptors`]: nothing changed. Anything else has poisoned the store.
    pub(crate) fn end_log_file(&self, tail: &mut LogTail) -> Result<Vec<UnsyncedLog>> {
        // The reserve is left only for another one: until there is room, deletes of the next MemTable are logged
        // after those of this one.
        let stay = match &tail.file {
            None => true,
            Some(log) => {
                log.is_reserve()
                    && !self
                        .renew_reserve()
                        .map_err(|e| self.health.poison_unless_full(e))?
            }
        };
        if !stay {
            self.next_log(tail)
                .map_err(|e| self.health.poison_unless_full(e))?;
        }
        let logged: u64 = tail.old.iter().map(|old| old.bytes).sum();
        if logged >= 2 * self.options.wal_bytes {
            self.health.for_each_engine(|engine| engine.request_flush());
        }
        let kept = tail.old.iter().filter_map(|old| old.unsynced.as_ref());
        let kept = kept.map(|(file, path)| (Arc::downgrade(file), path.clone()));
        let current = tail.file.iter().filter(|_| stay);
        let current =
            current.map(|log| (Arc::downgrade(&log.file.clone()), log.path.to_path_buf()));
        Ok(kept.chain(current).collect())
    }

    /// Goes on in this file.
    fn replace_log(&self, tail: &mut LogTail, log: WalWriter) {
        self.newest_log.store(log.number, Ordering::Release);
        if let Some(old) = tail.file.replace(log) {
            let unsynced = Some((old.file.clone(), old.path.to_path_buf()));
            tail.old.push(OldLog {
                last: tail.sequence,
                unsynced,
                ..OldLog::new(old.number, old.end())
            });
        }
        tail.directory_changed += 1;
    }

    /// Goes on in the reserve. `false` if it is used up.
    fn use_reserve(&self, tail: &mut LogTail) -> Result<bool> {
        let taken = reserve::take(&*self.io, self.dir(), self.new_number())
            .map_err(|e| self.health.poison_unless_full(e))?;
        let Some(log) = taken else { return Ok(false) };
        tracing::warn!(store = %self.dir().display(), "disk full: deletes go on in the log's reserve");
        self.replace_log(tail, log);
        self.health
            .for_each_engine(|engine| engine.log_in_reserve());
        Ok(true)
    }

    /// Brings the log to disk through a batch, which readers of the store may not see yet, and through all that they see. There is a log.
    pub(crate) fn sync_through(&self, batch: u64) -> Result<()> {
        self.health.check_open()?;
        let wanted = self.visible.load(Ordering::Acquire).max(batch);
        let _one = self.syncing.lock();
        // Another thread's sync may have failed meanwhile.
        self.health.check_open()?;
        if self.synced.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        let (mut files, last, changed, mark) = {
            let tail = self.log.lock();
            let mut files: Vec<_> = tail.old.iter().filter_map(|o| o.unsynced.clone()).collect();
            files.extend(
                tail.file
                    .iter()
                    .map(|l| (l.file.clone(), l.path.to_path_buf())),
            );
            let changed =
                (tail.directory_changed != tail.directory_synced).then_some(tail.directory_changed);
            let mark = tail.file.as_ref().map(|l| (l.number, l.end()));
            (files, tail.sequence, changed, mark)
        };
        for (file, path) in files.drain(..) {
            file.sync()
                .map_err(|e| self.health.poison(Error::state_unknown("sync", &path, e)))?;
        }
        if changed.is_some() {
            let synced = self.io.sync_dir(self.dir());
            let synced = synced.state_unknown_context("sync", self.dir());
            synced.map_err(|e| self.health.poison_unless_full(e))?;
        }
        self.synced.fetch_max(last, Ordering::AcqRel);
        let mut tail = self.log.lock();
        tail.directory_synced = tail.directory_synced.max(changed.unwrap_or(0));
        for old in tail.old.iter_mut().filter(|o| o.last <= last) {
            old.unsynced = None;
        }
        match &mut tail.file {
            Some(log) if Some((log.number, log.end())) == mark => {
                log.seal(last).map_err(|e| self.health.poison(e))
            }
            _ => Ok(()),
        }
    }
}
