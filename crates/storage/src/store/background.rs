//! The two background threads: one flushes, one compacts. Neither sleeps through work: conditions are looked at
//! under the `signals` lock, which everybody takes who makes one true and wakes. If one panics, the store is poisoned, so
//! that nobody waits for it.
use super::core::{Core, PoisonOnPanic, Signals, Writer};
use crate::table::TableMeta;
use crate::wal::writer::LogWriter;
use crate::{Error, Shortage};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long to wait for the writer before looking for other work.
pub const PATIENCE: Duration = Duration::from_millis(10);
/// How long to wait before what failed for want of room or descriptors is tried again.
const FULL: Duration = Duration::from_millis(250);

impl Core {
    /// Work got on: whoever waits looks again.
    pub fn note_progress(&self) {
        let mut signals = self.signals.lock();
        signals.shortage = None;
        signals.beyond = 0;
        self.progress.notify_all();
        self.work.notify_all();
    }

    /// Work failed: whoever waits looks again.
    pub fn note_failure(&self, error: &Error) {
        let mut signals = self.signals.lock();
        if let Some(shortage) = Shortage::of(error) {
            signals.shortage = Some(shortage);
            signals.shortages += 1;
        }
        self.progress.notify_all();
    }

    /// Does all flushes and compactions that are due in this thread, which holds the writer.
    pub fn work_inline(&self, writer: &mut Writer) {
        if self.flush_sealed(writer).is_err() {
            return;
        }
        loop {
            match self.compact_due() {
                Ok(true) => self.note_progress(),
                Ok(false) => return,
                Err(e) => return self.note_failure(&e),
            }
        }
    }

    fn flush_loop(&self) {
        let _panic = PoisonOnPanic::new(self);
        let mut flushed = None;
        let mut trimmed = false;
        while !self.stopping() {
            let mut full = false;
            match self.flush_oldest() {
                Ok(Some(last)) => {
                    flushed = Some(last);
                    self.note_progress();
                }
                Ok(None) => {}
                Err(e) => {
                    self.note_failure(&e);
                    full = e.is_transient();
                    if !full {
                        return;
                    }
                }
            }
            // Who waits for room holds the writer, and may wait for the next flush: try again after that.
            if let Some(last) = flushed
                && let Some(mut writer) = self.writer.try_lock_for(PATIENCE)
            {
                flushed = None;
                let gone = self.retire_logs(&mut writer, last);
                drop(writer);
                if let Err(e) = gone.and_then(|gone| self.remove_logs(gone)) {
                    self.note_failure(&self.poison_unless_full(e));
                }
            }
            let mut signals = self.signals.lock();
            if self.stopping() {
                return;
            }
            // Not in the `match` itself: a view held while sleeping would keep removed tables on the disk.
            let idle = self.view().sealed.is_empty();
            match (idle, full) {
                (true, _) if flushed.is_none() => {
                    if std::mem::take(&mut trimmed) && self.mostly_deleted() {
                        signals.shrink = true;
                        self.work.notify_all();
                    }
                    if !self.wait_for_pause(&mut signals) {
                        continue;
                    }
                    drop(signals);
                    trimmed = self.trim();
                }
                (false, true) => drop(self.work.wait_for(&mut signals, FULL)),
                _ => {}
            }
        }
    }

    /// Waits for work. Whether there was none, nor a batch, for some time, since one came.
    fn wait_for_pause(&self, signals: &mut MutexGuard<'_, Signals>) -> bool {
        if !self.grown.load(Ordering::Relaxed) {
            self.work.wait(signals);
            return false;
        }
        let before = self.visible.load(Ordering::Acquire);
        let waited = self.work.wait_for(signals, self.options.idle);
        waited.timed_out() && self.visible.load(Ordering::Acquire) == before && !self.stopping()
    }

    /// While nothing else is to do: brings what the log holds to table files, the side's too, so that its files go. `false` if it is short.
    fn trim(&self) -> bool {
        let Some(mut writer) = self.writer.try_lock_for(PATIENCE) else {
            return false;
        };
        // Before the log is looked at: a batch behind this makes it true again.
        self.grown.store(false, Ordering::Relaxed);
        let logs = writer.old.iter().map(|old| old.bytes);
        let logs: u64 = logs.chain(writer.log.as_ref().map(LogWriter::end)).sum();
        if logs == 0 || logs < self.options.wal_bytes / 32 {
            return false;
        }
        if let Err(e) = self.seal(&mut writer) {
            self.note_failure(&e);
            return false;
        }
        if let Some(side) = self.side() {
            side.hurry();
        }
        true
    }

    /// Whether deletes are half of the entries of all tables, or more.
    fn mostly_deleted(&self) -> bool {
        let view = self.view();
        let sum = |of: fn(&TableMeta) -> u64| view.levels.all().map(|t| of(t.meta())).sum::<u64>();
        let deletes = sum(|t| t.deletes);
        deletes > 0 && 2 * deletes >= sum(|t| t.entries)
    }

    fn compact_loop(&self) {
        let _panic = PoisonOnPanic::new(self);
        while !self.stopping() {
            if self.signals.lock().reclaim {
                self.reclaim();
            }
            let shrink = std::mem::take(&mut self.signals.lock().shrink);
            let result = match shrink {
                true => self.compact_all().map(|()| false),
                false => self.compact_due(),
            };
            let full = matches!(&result, Err(e) if e.is_transient());
            let reclaims = matches!(&result, Err(e) if e.is_no_space());
            match result {
                Ok(true) => {
                    self.note_progress();
                    continue;
                }
                Ok(false) => {}
                Err(e) => {
                    self.note_failure(&e);
                    if !full {
                        return;
                    }
                }
            }
            let mut signals = self.signals.lock();
            if self.stopping() {
                return;
            }
            if full {
                // Next time with the spare room, which makes even a whole merge possible step by step.
                let patience = FULL * (1 << signals.tries.min(6));
                self.work.wait_for(&mut signals, patience);
                signals.reclaim |= reclaims;
            } else if !signals.reclaim
                && !signals.shrink
                && !self.compaction_due_without(&self.view(), &signals.damaged)
            {
                self.work.wait(&mut signals);
            }
        }
    }

    /// Ends both threads and waits for them.
    pub fn stop(&self, threads: Vec<JoinHandle<()>>) {
        {
            let _signals = self.signals.lock();
            self.stop.store(true, Ordering::Release);
            self.work.notify_all();
            self.progress.notify_all();
        }
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!(store = %self.dir().display(), "a background thread panicked");
            }
        }
    }
}

/// Starts the threads.
pub fn start(core: &Arc<Core>) -> std::io::Result<Vec<JoinHandle<()>>> {
    if !core.options.background {
        return Ok(Vec::new());
    }
    let flush = core.clone();
    let compact = core.clone();
    let flush = std::thread::Builder::new()
        .name("store-flush".into())
        .spawn(move || flush.flush_loop())?;
    match std::thread::Builder::new()
        .name("store-compact".into())
        .spawn(move || compact.compact_loop())
    {
        Ok(compact) => Ok(vec![flush, compact]),
        Err(e) => {
            core.stop(vec![flush]);
            Err(e)
        }
    }
}
