//! The two background threads: one flushes, one compacts.
//!
//! Invariants: no wake-up is lost, because conditions are changed and checked under the `signals` lock. If a thread panics, the
//! store is poisoned, so that nobody waits for it.
use super::RowEngine;
use super::signals::SignalState;
use crate::engine::{LogTail, PoisonOnPanic};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long to wait for the end of the log before looking for other work.
pub(super) const LOG_WAIT: Duration = Duration::from_millis(10);
/// Wait before a flush that failed for lack of space or descriptors is retried.
const SHORTAGE_RETRY: Duration = Duration::from_millis(250);

impl RowEngine {
    /// Does all flushes and compactions that are due in this thread, which holds the end of the log.
    pub(super) fn work_inline(&self, log: &mut LogTail) {
        if self.flush_sealed(log).is_err() {
            return;
        }
        loop {
            match self.compactor.compact_due() {
                Ok(true) => self.signals.note_progress(),
                Ok(false) => return,
                Err(e) => return self.signals.note_failure(&e),
            }
        }
    }

    fn flush_loop(&self) {
        let _panic = PoisonOnPanic::new(&self.host.health);
        let mut flushed = None;
        let mut trimmed = false;
        while !self.signals.is_stopping() {
            let mut full = false;
            match self.state.flush_oldest() {
                Ok(Some(last)) => {
                    flushed = Some(last);
                    self.signals.note_progress();
                }
                Ok(None) => {}
                Err(e) => {
                    self.signals.note_failure(&e);
                    full = e.is_transient();
                    if !full {
                        return;
                    }
                }
            }
            // Who waits for room holds the log's end, and may wait for the next flush: try again after that.
            if let Some(last) = flushed
                && let Some(mut log) = self.host.log.try_lock_for(LOG_WAIT)
            {
                flushed = None;
                let gone = self.host.retire_logs(&mut log, last);
                drop(log);
                if let Err(e) = gone.and_then(|gone| self.host.remove_logs(gone)) {
                    self.signals
                        .note_failure(&self.host.health.poison_unless_full(e));
                }
            }
            let mut signals = self.signals.lock();
            if self.signals.is_stopping() {
                return;
            }
            // Not in the `match` itself: a view held while sleeping would keep removed tables on the disk.
            let idle = self.state.view().sealed.is_empty();
            match (idle, full) {
                (true, _) if flushed.is_none() => {
                    if std::mem::take(&mut trimmed) && self.state.view().levels.are_mostly_deletes()
                    {
                        signals.shrink = true;
                        self.signals.work.notify_all();
                    }
                    if !self.wait_for_pause(&mut signals) {
                        continue;
                    }
                    drop(signals);
                    trimmed = self.trim();
                }
                (false, true) => drop(self.signals.work.wait_for(&mut signals, SHORTAGE_RETRY)),
                _ => {}
            }
        }
    }

    /// Waits for work. `true`: the log has grown since the last trim, and there has been no work and no batch for the idle time.
    fn wait_for_pause(&self, signals: &mut MutexGuard<'_, SignalState>) -> bool {
        if !self.grown.load(Ordering::Relaxed) {
            self.signals.work.wait(signals);
            return false;
        }
        let visible = || self.host.visible.load(Ordering::Acquire);
        let before = visible();
        let waited = self.signals.work.wait_for(signals, self.host.options.idle);
        waited.timed_out() && visible() == before && !self.signals.is_stopping()
    }

    /// While there is no other work: flushes all engines, so that log files can be removed. `false`: the log is too short for that.
    fn trim(&self) -> bool {
        let Some(mut log) = self.host.log.try_lock_for(LOG_WAIT) else {
            return false;
        };
        // Before the log is looked at: a batch after this makes it true again.
        self.grown.store(false, Ordering::Relaxed);
        let logged = log.bytes();
        if logged == 0 || logged < self.host.options.wal_bytes / 32 {
            return false;
        }
        if let Err(e) = self.seal(&mut log) {
            self.signals.note_failure(&e);
            return false;
        }
        self.host
            .health
            .for_each_engine(|engine| engine.request_flush());
        true
    }

    fn compact_loop(&self) {
        let _panic = PoisonOnPanic::new(&self.host.health);
        while !self.signals.is_stopping() {
            if self.signals.lock().reclaim {
                self.reclaim();
            }
            let shrink = std::mem::take(&mut self.signals.lock().shrink);
            let result = match shrink {
                true => self.compactor.compact_all().map(|()| false),
                false => self.compactor.compact_due(),
            };
            let full = matches!(&result, Err(e) if e.is_transient());
            let reclaims = matches!(&result, Err(e) if e.is_no_space());
            match result {
                Ok(true) => {
                    self.signals.note_progress();
                    continue;
                }
                Ok(false) => {}
                Err(e) => {
                    self.signals.note_failure(&e);
                    if !full {
                        return;
                    }
                }
            }
            let mut signals = self.signals.lock();
            if self.signals.is_stopping() {
                return;
            }
            if full {
                // Next time with the spare room, which makes even a whole merge possible step by step.
                let wait = SHORTAGE_RETRY * (1 << signals.tries.min(6));
                self.signals.work.wait_for(&mut signals, wait);
                signals.reclaim |= reclaims;
            } else if !signals.reclaim
                && !signals.shrink
                && !self.compactor.is_due(&self.state.view())
            {
                // Who waits for a compaction that was given up waits no longer.
                self.signals.progress.notify_all();
                self.signals.work.wait(&mut signals);
            }
        }
    }

    /// Starts the threads, if the engine works in threads.
    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        if !self.host.options.background {
            return Ok(());
        }
        let (flushing, compacting) = (self.clone(), self.clone());
        self.signals
            .spawn("store-flush", move || flushing.flush_loop())
            .and_then(|()| {
                let compact = move || compacting.compact_loop();
                self.signals.spawn("store-compact", compact)
            })
            .inspect_err(|_| self.signals.stop(self.host.dir()))
    }
}
