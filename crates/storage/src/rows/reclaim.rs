//! Reclaims space on a full disk. Two reserves make that possible: `RESERVE` has room in the log for deletes (`wal/reserve`).
//! `SPARE` (`compaction_reserve`) is removed to make room for flushing and compacting them, which drops the deleted rows.
use super::RowEngine;
use super::background::LOG_WAIT;
use crate::Result;
use crate::engine::GroupSummary;
use std::sync::atomic::Ordering;

impl RowEngine {
    /// Whether the last put found no room.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Notes that the disk is full, and has space reclaimed if there are deletes.
    pub(super) fn note_room(&self, load: GroupSummary, outcome: &Result<()>) {
        let full = matches!(outcome, Err(e) if e.is_no_space());
        if !full && !load.deletes && !self.is_full() {
            return;
        }
        let mut signals = self.signals.lock();
        if full || outcome.is_ok() && !load.reclaiming {
            self.full.store(full, Ordering::Relaxed);
        }
        // At the first refusal, then ever more seldom while it does not help.
        signals.requests += u64::from(full || load.deletes && outcome.is_ok());
        if self.is_full() && signals.requests >= 1 << signals.tries.min(10) {
            signals.reclaim = true;
            signals.requests = 0;
            self.signals.work.notify_all();
        }
        let now = signals.reclaim && !self.host.options.background;
        drop(signals);
        if now {
            self.reclaim();
        }
    }

    /// The disk is full and there are deletes: frees the reserve, flushes and compacts, so that deleted rows are removed, and
    /// creates the reserve again.
    pub(super) fn reclaim(&self) {
        let one = self.spare.lock();
        self.signals.lock().reclaim = false;
        let result = self.try_reclaim();
        drop(one);
        let mut signals = self.signals.lock();
        if matches!(result, Ok(true)) {
            signals.tries = 0;
            self.full.store(false, Ordering::Relaxed);
        } else {
            signals.tries += 1;
        }
        drop(signals);
        match result {
            Ok(_) => self.signals.note_progress(),
            Err(e) => self.signals.note_failure(&e),
        }
    }

    /// Whether puts are accepted again, as far as the compaction reserve is concerned.
    fn try_reclaim(&self) -> Result<bool> {
        self.spare.release()?;
        let done = self.shrink();
        // What failed for want of room has freed its room: nobody else may have it before the spare room.
        let renewed = self.spare.renew()?;
        Ok(done? && renewed)
    }

    /// Flushes, purges and compacts. `false`: another thread holds the log's end, perhaps waiting for this one; to be retried.
    fn shrink(&self) -> Result<bool> {
        // Who waits for room holds the log's end, perhaps for a compaction of this very thread.
        let Some(mut log) = self.host.log.try_lock_for(LOG_WAIT) else {
            self.signals.lock().reclaim = true;
            return Ok(false);
        };
        if !self.state.view.read().active.is_empty() {
            self.seal(&mut log)?;
        }
        self.flush_sealed(&mut log)?;
        drop(log);
        self.compactor.purge_hidden()?;
        self.compactor.compact_all()?;
        Ok(true)
    }
}
