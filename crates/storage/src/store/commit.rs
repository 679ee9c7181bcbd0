//! Applying batches: log first, then the engines, then visible.
use super::Store;
use crate::engine::{GroupSummary, LogTail, PoisonOnPanic, QueuedBatch};
use crate::wal::{payload, record};
use crate::{Batch, Error, Result};
use std::sync::atomic::Ordering;

impl Store {
    /// Applies all of the batch or nothing; durable as the store's setting says.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: nothing was applied; delete something (such batches have a reserve) or make room, and try
    /// again. [`Error::Poisoned`] after a failed write: open the store again. [`Error::Io`]: the write failed; whether
    /// the batch is in the store shows when it is opened again.
    pub fn apply(&self, batch: Batch) -> Result<()> {
        let host = &*self.host;
        host.health.check_open()?;
        if batch.is_empty() {
            return Ok(());
        }
        let bytes = payload::bound(&batch.ops, &batch.entries);
        if bytes > record::MAX_PAYLOAD {
            return Err(Error::invalid(
                host.dir(),
                "batch larger than 1 GiB: split it",
            ));
        }
        let mut keyspaces = batch.ops.iter().map(|op| op.keyspace);
        keyspaces.try_for_each(|keyspace| keyspace.check(host.dir()))?;
        if !batch.entries.is_empty() && self.attached.get().is_none() {
            let reason = "the store has no engine for the batch's entries";
            return Err(Error::invalid(host.dir(), reason));
        }
        for engine in self.engines() {
            engine.make_room(&batch)?;
        }
        let load = GroupSummary {
            reclaiming: batch.is_reclaiming(),
            deletes: batch.ops.iter().any(|op| op.value.is_none()),
            bytes: bytes as u64,
        };
        let queued = host.queue.run(QueuedBatch::new(batch, load), |group| {
            self.commit_group(group)
        });
        let outcome = queued
            .outcome
            .unwrap_or_else(|| Err(host.health.poison_error()));
        for engine in self.engines() {
            engine.applied(load, &outcome);
        }
        outcome
    }

    /// Writes a group. On a full disk each batch is tried alone, because those that delete may still go;
    /// without descriptors too, because none of them has gone.
    fn commit_group(&self, group: &mut [QueuedBatch]) {
        // Before the log is free again: what it was in the middle of is not known.
        let mut log = self.host.log.lock();
        let _panic = PoisonOnPanic::new(&self.host.health);
        match self.write_group(&mut log, group) {
            Ok(()) => group.iter_mut().for_each(|m| m.outcome = Some(Ok(()))),
            Err(e) if e.is_transient() && group.len() > 1 => {
                for i in 0..group.len() {
                    let result = self.write_group(&mut log, &mut group[i..=i]);
                    group[i].outcome = Some(result);
                }
            }
            Err(e) => {
                // The first batch gets the cause; the others learn that the store is poisoned.
                let mut first = Some(e);
                for queued in group {
                    queued.outcome = Some(Err(first
                        .take()
                        .unwrap_or_else(|| self.host.health.poison_error())));
                }
            }
        }
    }

    fn write_group(&self, log: &mut LogTail, group: &mut [QueuedBatch]) -> Result<()> {
        let host = &*self.host;
        host.health.check_open()?;
        let load = GroupSummary {
            reclaiming: group.iter().all(|m| m.load.reclaiming),
            deletes: group.iter().any(|m| m.load.deletes),
            bytes: group.iter().map(|m| m.load.bytes).sum(),
        };
        for engine in self.engines() {
            engine.admit(log, load)?;
        }
        let first = log.sequence + 1;
        let logged = log.file.is_some();
        if logged {
            host.log_group(log, group, load.reclaiming)?;
        }
        for (number, queued) in (first..).zip(group.iter_mut()) {
            if !queued.batch.entries.is_empty() {
                host.last_entries.store(number, Ordering::Release);
            }
            for engine in self.engines() {
                engine.apply(number, &mut queued.batch);
            }
        }
        log.sequence += group.len() as u64;
        host.visible.store(log.sequence, Ordering::Release);
        if logged {
            self.rows.note_logged();
        }
        Ok(())
    }
}
