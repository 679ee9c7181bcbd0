//! Applying batches: log first, then MemTable, then visible. Sealing full MemTables.
use super::core::{Core, PoisonOnPanic, Sealed, View, Writer};
use super::queue::Member;
use crate::wal::{payload, record};
use crate::{Batch, Error, Keyspace, Result, Shortage};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Core {
    /// See [`Store::apply`](crate::Store::apply).
    pub fn apply(&self, batch: Batch) -> Result<()> {
        self.usable()?;
        if batch.is_empty() {
            return Ok(());
        }
        let bytes = payload::bound(&batch.ops, &batch.side);
        if bytes > record::MAX_PAYLOAD {
            return Err(Error::invalid(
                self.dir(),
                "batch larger than 1 GiB: split it",
            ));
        }
        if batch
            .ops
            .iter()
            .any(|op| usize::from(op.keyspace.0) >= Keyspace::COUNT)
        {
            return Err(Error::invalid(self.dir(), "keyspace above 15"));
        }
        if !batch.side.is_empty() {
            match self.side() {
                Some(side) if !batch.is_reclaiming() => side.make_room()?,
                Some(_) => {}
                None => return Err(Error::invalid(self.dir(), "the store has no side")),
            }
        }
        let deletes = batch.ops.iter().any(|op| op.value.is_none());
        let reclaiming = batch.is_reclaiming();
        let member = self.queue.run(
            Member {
                batch,
                bytes,
                outcome: None,
            },
            |group| self.commit(group),
        );
        let outcome = member.outcome.unwrap_or_else(|| Err(self.poison_error()));
        self.note_room(&outcome, deletes, reclaiming);
        if let Some(side) = self.side().filter(|_| !self.options.background) {
            side.catch_up();
        }
        outcome
    }

    /// Remembers that the disk is full, and asks for space to be given back when there are deletes to do it with.
    fn note_room(&self, outcome: &Result<()>, deletes: bool, reclaiming: bool) {
        let full = matches!(outcome, Err(e) if e.is_no_space());
        if !full && !deletes && !self.full.load(Ordering::Relaxed) {
            return;
        }
        let mut signals = self.signals.lock();
        if full || outcome.is_ok() && !reclaiming {
            signals.full = full;
            self.full.store(full, Ordering::Relaxed);
        }
        // At the first refusal, then ever more seldom while it does not help.
        signals.pleas += u64::from(full || deletes && outcome.is_ok());
        if signals.full && signals.pleas >= 1 << signals.tries.min(10) {
            signals.reclaim = true;
            signals.pleas = 0;
            self.work.notify_all();
        }
        let now = signals.reclaim && !self.options.background;
        drop(signals);
        if now {
            self.reclaim();
        }
    }

    /// Writes a group. On a full disk each member is tried alone, because those that delete may still go;
    /// without descriptors too, because none of them has gone.
    fn commit(&self, group: &mut [Member]) {
        // Before the writer is free again: what it was in the middle of is not known.
        let mut writer = self.writer.lock();
        let _panic = PoisonOnPanic::new(self);
        match self.write_group(&mut writer, group) {
            Ok(()) => group.iter_mut().for_each(|m| m.outcome = Some(Ok(()))),
            Err(e) if e.is_transient() && group.len() > 1 => {
                for i in 0..group.len() {
                    let result = self.write_group(&mut writer, &mut group[i..=i]);
                    group[i].outcome = Some(result);
                }
            }
            Err(e) => {
                // The first member gets the cause; the others learn that the store is poisoned.
                let mut first = Some(e);
                for member in group {
                    member.outcome = Some(Err(first.take().unwrap_or_else(|| self.poison_error())));
                }
            }
        }
    }

    fn write_group(&self, writer: &mut Writer, group: &mut [Member]) -> Result<()> {
        self.usable()?;
        let reclaiming = group.iter().all(|m| m.batch.is_reclaiming());
        if !reclaiming && !self.has_spare()? {
            return Err(Error::NoSpace {
                path: self.dir().to_path_buf(),
            });
        }
        let bytes = group.iter().map(|m| m.bytes as u64).sum();
        self.make_room(writer, reclaiming, bytes)?;
        let first = writer.sequence + 1;
        if writer.log.is_some() {
            self.log_group(writer, group, reclaiming)?;
        }
        let active = self.view.read().active.clone();
        let side = self.side();
        let mut puts = 0;
        for (i, member) in group.iter_mut().enumerate() {
            puts += member.batch.ops.len() as u64;
            let number = first + i as u64;
            active.insert(number, std::mem::take(&mut member.batch.ops));
            if let Some(side) = side.as_ref().filter(|_| !member.batch.side.is_empty()) {
                self.side_last.store(number, Ordering::Release);
                side.apply(number, &member.batch.side);
            }
        }
        writer.sequence += group.len() as u64;
        self.visible.store(writer.sequence, Ordering::Release);
        self.count(&self.counters.puts, puts);
        if writer.log.is_some() && !self.grown.swap(true, Ordering::Relaxed) {
            // Once after each trim: the flush thread begins to wait for a pause.
            self.wake();
        }
        Ok(())
    }

    /// Seals the MemTable if it is full. Waits, and measures the wait, while too many are sealed or level 0 is too long.
    fn make_room(&self, writer: &mut Writer, reclaiming: bool, bytes: u64) -> Result<()> {
        let long = writer
            .log
            .as_ref()
            .is_some_and(|log| !log.is_reserve() && log.end() >= self.options.wal_bytes);
        if !long && self.view.read().active.bytes() < self.options.memtable_bytes {
            return Ok(());
        }
        let start = Instant::now();
        let mut stalled = false;
        let result = loop {
            if let Err(e) = self.usable() {
                break Err(e);
            }
            if !self.options.background {
                self.work_inline(writer);
            }
            if self.has_room() {
                match self.seal(writer) {
                    Err(e) if e.is_transient() && reclaiming => break Ok(()),
                    result => break result,
                }
            }
            let mut signals = self.signals.lock();
            if signals.shortage.is_some()
                || self.full.load(Ordering::Relaxed)
                || !self.options.background
            {
                self.work.notify_all();
                if reclaiming && signals.beyond + bytes <= self.options.wal_reserve_bytes {
                    signals.beyond += bytes;
                    return Ok(());
                }
                let shortage = signals.shortage.unwrap_or(Shortage::Space);
                break Err(shortage.error(self.dir()));
            }
            stalled = true;
            self.work.notify_all();
            self.progress
                .wait_for(&mut signals, Duration::from_millis(100));
        };
        if stalled {
            self.count(
                &self.counters.stall_nanos,
                start.elapsed().as_nanos() as u64,
            );
        }
        result
    }

    fn has_room(&self) -> bool {
        let view = self.view();
        if view.sealed.len() >= self.options.sealed_limit.max(1) {
            return false;
        }
        view.levels.level(0).len() < self.options.level0_limit || !self.compaction_due(&view)
    }

    /// Makes the active MemTable a sealed one, with a new log file behind it.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoDescriptors`]: nothing changed.
    pub fn seal(&self, writer: &mut Writer) -> Result<()> {
        // The reserve is left only for another one: until there is room, deletes of the next MemTable are logged
        // behind those of this one.
        let stay = match &writer.log {
            None => true,
            Some(log) => {
                log.is_reserve()
                    && !self
                        .renew_reserve()
                        .map_err(|e| self.poison_unless_full(e))?
            }
        };
        if !stay {
            self.next_log(writer)
                .map_err(|e| self.poison_unless_full(e))?;
        }
        let logged: u64 = writer.old.iter().map(|old| old.bytes).sum();
        if let Some(side) = self.side().filter(|_| logged >= 2 * self.options.wal_bytes) {
            side.hurry();
        }
        let mut view = self.view.write();
        let mut sealed = view.sealed.clone();
        let kept = writer.old.iter().filter_map(|old| old.unsynced.as_ref());
        let kept = kept.map(|(file, path)| (Arc::downgrade(file), path.clone()));
        let current = writer.log.iter().filter(|_| stay);
        let current = current.map(|log| (Arc::downgrade(&log.file()), log.path().to_path_buf()));
        sealed.push(Arc::new(Sealed {
            table: view.active.clone(),
            last: writer.sequence,
            logs: kept.chain(current).collect(),
        }));
        *view = Arc::new(View {
            active: Arc::default(),
            sealed,
            levels: view.levels.clone(),
        });
        drop(view);
        if self.options.background {
            self.wake();
        } else {
            self.work_inline(writer);
        }
        Ok(())
    }
}
