//! The two background threads: one flushes, one compacts. Neither sleeps through work: conditions are looked at
//! under the `signals` lock, which everybody takes who makes one true and wakes. If one panics, the store is poisoned, so
//! that nobody waits for it.
use super::core::{Core, PoisonOnPanic, Writer};
use crate::{Error, Shortage};
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
                (true, _) if flushed.is_none() => self.work.wait(&mut signals),
                (false, true) => drop(self.work.wait_for(&mut signals, FULL)),
                _ => {}
            }
        }
    }

    fn compact_loop(&self) {
        let _panic = PoisonOnPanic::new(self);
        while !self.stopping() {
            if self.signals.lock().reclaim {
                self.reclaim();
            }
            let result = self.compact_due();
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
