//! The log files of a store at work: appending groups of batches, the next file, the reserve of a full disk, files that
//! are superfluous after a flush, syncing.
//!
//! Batches are in the log in the order of their numbers, file after file; a log file goes only when both the store's tables and
//! the side's hold all its batches.
use super::core::{Core, OldLog, Writer};
use super::queue::Member;
use crate::manifest::{Edit, Mark};
use crate::options::Durability;
use crate::wal::{payload, record, reserve, writer::LogWriter};
use crate::{Error, Result, SideEdit, names};
use std::sync::atomic::Ordering;

impl Core {
    /// Appends the group to the log, in the reserve if need be, and syncs it at durability `disk`. The log's name is on disk
    /// before its first record then, so that what may fail for want of a descriptor fails while nothing has changed.
    pub fn log_group(&self, writer: &mut Writer, group: &[Member], reclaiming: bool) -> Result<()> {
        let mut result = self.append(writer, group, reclaiming);
        if matches!(&result, Err(e) if e.is_no_space()) && reclaiming && self.use_reserve(writer)? {
            result = self.append(writer, group, true);
        }
        result.map_err(|e| self.poison_unless_full(e))?;
        if self.options.durability == Durability::Disk {
            let last = writer.sequence + group.len() as u64;
            let sealed = match &mut writer.log {
                Some(log) => log.sync().and_then(|()| log.seal(last)),
                None => Ok(()),
            };
            sealed.map_err(|e| self.poison(e))?;
            self.synced.fetch_max(last, Ordering::AcqRel);
        }
        Ok(())
    }

    fn append(&self, writer: &mut Writer, group: &[Member], reclaiming: bool) -> Result<()> {
        if self.options.durability == Durability::Disk {
            self.sync_directory(writer)?;
        }
        let Writer {
            log,
            buffer,
            sequence,
            ..
        } = writer;
        let Some(current) = log else { return Ok(()) };
        let synced = self.synced.load(Ordering::Acquire);
        let encode = |buffer: &mut Vec<u8>, number| {
            buffer.clear();
            for (i, member) in group.iter().enumerate() {
                record::write(buffer, number, *sequence + 1 + i as u64, synced, |out| {
                    payload::encode(out, &member.batch.ops, &member.batch.side)
                });
            }
        };
        encode(buffer, current.number());
        if current.is_reserve() && !(reclaiming && current.fits(buffer.len())) {
            // The disk was full. Go on as usual if it has room for a reserve and the batch again.
            if !self.renew_reserve()? {
                return Err(Error::NoSpace {
                    path: current.path().to_path_buf(),
                });
            }
            self.next_log(writer)?;
            return self.append(writer, group, reclaiming);
        }
        current.append(buffer)?;
        self.count(&self.counters.bytes_written, buffer.len() as u64);
        if buffer.capacity() > 4 << 20 {
            *buffer = Vec::new();
        }
        Ok(())
    }

    /// After a flush: takes the log files that it made superfluous out of the books, and leaves the reserve if
    /// it can. The caller removes the files with [`remove_logs`](Core::remove_logs), best without the writer.
    ///
    /// Nothing goes that the side does not hold in its files.
    pub fn retire_logs(&self, writer: &mut Writer, flushed: u64) -> Result<Vec<u64>> {
        let flushed = flushed.min(self.side_flushed());
        if writer.log.as_ref().is_some_and(LogWriter::is_reserve) && self.renew_reserve()? {
            match self.next_log(writer) {
                // No room yet: it stays in the reserve, and what is superfluous goes all the same.
                Err(e) if !e.is_transient() => return Err(e),
                _ => {}
            }
        }
        // The one that the manifest names stays until it names another: if it were missing, batches would be.
        let named = self.manifest.lock().state().log;
        let stays = |old: &OldLog| old.last > flushed || Some(old.number) == named;
        let gone = writer.old.iter().filter(|old| !stays(old));
        let gone = gone.map(|old| old.number).collect();
        writer.old.retain(stays);
        self.synced.fetch_max(flushed, Ordering::AcqRel);
        Ok(gone)
    }

    /// After the side has brought entries into files: removes the log files that are superfluous now.
    pub fn retire_flushed(&self) -> Result<()> {
        let flushed = self.manifest.lock().state().flushed;
        let gone = self.retire_logs(&mut self.writer.lock(), flushed);
        self.remove_logs(gone.map_err(|e| self.poison_unless_full(e))?)
    }

    /// The last thing that is written: that the store is closed, after which batch; and log files that are superfluous then are removed.
    ///
    /// # Errors
    /// A failed write. Without room the store is closed all the same, and the next open takes it for one that was killed.
    pub fn end_log(&self) -> Result<()> {
        self.usable_for_work()?;
        let mut writer = self.writer.lock();
        let last = writer.sequence;
        let view = self.view();
        // Batches without entries for one of both are in its files as well.
        let own = view.active.is_empty() && view.sealed.is_empty();
        let flushed = {
            let mut manifest = self.manifest.lock();
            let side_flushed = manifest.state().side_flushed;
            let side = self.side_last.load(Ordering::Acquire) <= side_flushed;
            let edit = Edit {
                next_file: self.next_file.load(Ordering::Relaxed),
                flushed: own.then_some(last),
                side: SideEdit {
                    flushed: Some(if side { last } else { side_flushed }),
                    ..SideEdit::default()
                },
                mark: Some(Mark::Closed(last)),
                ..Edit::default()
            };
            match manifest.append(edit) {
                Err(e) if e.is_transient() => return Ok(()),
                appended => appended.map_err(|e| self.poison(e))?,
            }
            manifest.state().flushed.min(manifest.state().side_flushed)
        };
        if flushed < last {
            return Ok(());
        }
        let logs = writer.old.drain(..).map(|old| old.number);
        let mut logs: Vec<u64> = logs.collect();
        logs.extend(writer.log.take().map(|log| log.number()));
        drop(writer);
        self.remove_logs(logs)
    }

    /// Removes retired log files.
    pub fn remove_logs(&self, numbers: Vec<u64>) -> Result<()> {
        for number in numbers {
            let path = names::log(self.dir(), number);
            let removed = self
                .io()
                .remove(&path)
                .map_err(|e| Error::io("remove", &path, e));
            removed.map_err(|e| self.poison_unless_full(e))?;
        }
        Ok(())
    }

    /// Makes sure that there is a reserve to go on in when the disk is full. `false` if there is no room for one.
    pub fn renew_reserve(&self) -> Result<bool> {
        reserve::ensure(
            self.io(),
            self.dir(),
            names::RESERVE,
            self.options.wal_reserve_bytes,
        )
    }

    /// Starts a new log file behind the current one.
    pub fn next_log(&self, writer: &mut Writer) -> Result<()> {
        let log = LogWriter::create(self.io(), self.dir(), self.new_number())?;
        self.replace_log(writer, log);
        Ok(())
    }

    /// Goes on in this file.
    pub fn replace_log(&self, writer: &mut Writer, log: LogWriter) {
        self.newest_log.store(log.number(), Ordering::Release);
        if let Some(old) = writer.log.replace(log) {
            let unsynced = Some((old.file(), old.path().to_path_buf()));
            writer.old.push(OldLog {
                number: old.number(),
                last: writer.sequence,
                bytes: old.end(),
                harmless: Vec::new(),
                unsynced,
            });
        }
        writer.directory_changed += 1;
    }

    /// Goes on in the reserve. `false` if it is used up.
    fn use_reserve(&self, writer: &mut Writer) -> Result<bool> {
        let taken = reserve::take(self.io(), self.dir(), self.new_number())
            .map_err(|e| self.poison_unless_full(e))?;
        let Some(log) = taken else { return Ok(false) };
        tracing::warn!(store = %self.dir().display(), "disk full: deletes go on in the log's reserve");
        self.replace_log(writer, log);
        let mut signals = self.signals.lock();
        signals.full = true;
        self.full.store(true, Ordering::Relaxed);
        Ok(true)
    }

    /// Brings the names of new log files to disk.
    pub fn sync_directory(&self, writer: &mut Writer) -> Result<()> {
        if writer.directory_synced != writer.directory_changed {
            self.io()
                .sync_dir(self.dir())
                .map_err(|e| Error::hard("sync", self.dir(), e))?;
            writer.directory_synced = writer.directory_changed;
        }
        Ok(())
    }

    /// See [`Store::sync`](crate::Store::sync).
    pub fn sync(&self) -> Result<()> {
        self.sync_through(0)
    }

    /// The same, and through a batch that the side has already and readers of the store may not see yet.
    pub fn sync_through(&self, batch: u64) -> Result<()> {
        if self.options.durability == Durability::None {
            return self.flush();
        }
        self.usable()?;
        let wanted = self.visible.load(Ordering::Acquire).max(batch);
        let _one = self.syncing.lock();
        if self.synced.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        let (mut files, last, changed, mark) = {
            let writer = self.writer.lock();
            let mut files: Vec<_> = writer
                .old
                .iter()
                .filter_map(|o| o.unsynced.clone())
                .collect();
            files.extend(
                writer
                    .log
                    .iter()
                    .map(|l| (l.file(), l.path().to_path_buf())),
            );
            let changed = (writer.directory_changed != writer.directory_synced)
                .then_some(writer.directory_changed);
            let mark = writer.log.as_ref().map(|l| (l.number(), l.end()));
            (files, writer.sequence, changed, mark)
        };
        for (file, path) in files.drain(..) {
            file.sync()
                .map_err(|e| self.poison(Error::hard("sync", &path, e)))?;
        }
        if changed.is_some() {
            self.io()
                .sync_dir(self.dir())
                .map_err(|e| self.poison_unless_full(Error::hard("sync", self.dir(), e)))?;
        }
        self.synced.fetch_max(last, Ordering::AcqRel);
        let mut writer = self.writer.lock();
        writer.directory_synced = writer.directory_synced.max(changed.unwrap_or(0));
        for old in writer.old.iter_mut().filter(|o| o.last <= last) {
            old.unsynced = None;
        }
        match &mut writer.log {
            Some(log) if Some((log.number(), log.end())) == mark => {
                log.seal(last).map_err(|e| self.poison(e))
            }
            _ => Ok(()),
        }
    }
}
