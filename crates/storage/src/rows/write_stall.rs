//! Sealing MemTables, and waiting for flushes and compactions while too many are sealed or level 0 is too long.
use super::RowEngine;
use super::signals::SignalState;
use super::state::count;
use super::view::{SealedMemTable, View};
use crate::engine::{GroupSummary, LogTail};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sealed MemTables that may wait for their flush before puts wait.
const SEALED_LIMIT: usize = 2;
/// Tables in level 0 at which puts wait for the compaction.
const LEVEL0_LIMIT: usize = 16;
/// A writer that waits for room looks again after this, woken or not.
const ROOM_WAIT: Duration = Duration::from_millis(100);

impl RowEngine {
    /// Seals the MemTable if it or its log file is full. Waits, and measures the wait, while too many are sealed or level 0 is too long.
    pub(super) fn seal_if_full(&self, log: &mut LogTail, group: GroupSummary) -> Result<()> {
        let options = &self.host.options;
        let long = log
            .file
            .as_ref()
            .is_some_and(|file| !file.is_reserve() && file.end() >= options.wal_bytes);
        if !long && self.state.view.read().active.bytes() < options.memtable_bytes {
            return Ok(());
        }
        let start = Instant::now();
        let mut stalled = false;
        let result = loop {
            if let Err(e) = self.host.health.check_open() {
                break Err(e);
            }
            if !options.background {
                self.work_inline(log);
            }
            if self.has_room() {
                match self.seal(log) {
                    Err(e) if e.is_transient() && group.reclaiming => break Ok(()),
                    result => break result,
                }
            }
            let mut signals = self.signals.lock();
            if signals.shortage.is_some() || self.is_full() || !options.background {
                self.signals.work.notify_all();
                if group.reclaiming && signals.beyond + group.bytes <= options.wal_reserve_bytes {
                    signals.beyond += group.bytes;
                    return Ok(());
                }
                break Err(self.shortage(&signals));
            }
            if !std::mem::replace(&mut stalled, true) {
                // Once: a thread that finds nothing to do tells those who wait, who would call it again.
                self.signals.work.notify_all();
            }
            self.signals.progress.wait_for(&mut signals, ROOM_WAIT);
        };
        if stalled {
            let nanos = start.elapsed().as_nanos() as u64;
            count(&self.state.counters.stall_nanos, nanos);
        }
        result
    }

    /// The error for a writer that waits for flushes or compactions which fail for now.
    pub(super) fn shortage(&self, signals: &SignalState) -> Error {
        let dir = self.host.dir();
        match &signals.shortage {
            Some(shortage) => shortage.clone().at(dir),
            None => Error::no_space(dir),
        }
    }

    fn has_room(&self) -> bool {
        let view = self.state.view();
        view.sealed.len() < SEALED_LIMIT
            && (view.levels.level(0).len() < LEVEL0_LIMIT || !self.compactor.is_due(&view))
    }

    /// Seals the active MemTable and begins a new log file.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoDescriptors`]: nothing changed.
    pub(super) fn seal(&self, log: &mut LogTail) -> Result<()> {
        let logs = self.host.end_log_file(log)?;
        let mut view = self.state.view.write();
        let mut sealed = view.sealed.clone();
        sealed.push(Arc::new(SealedMemTable {
            table: view.active.clone(),
            last: log.sequence,
            logs,
        }));
        *view = Arc::new(View {
            active: Arc::default(),
            sealed,
            levels: view.levels.clone(),
        });
        drop(view);
        if self.host.options.background {
            self.signals.wake();
        } else {
            self.work_inline(log);
        }
        Ok(())
    }
}
