//! Taking batches, and the loop of the background thread.
use super::super::block::BlockSplitter;
use super::super::memtable::{MemTable, Run};
use super::super::stats::count;
use super::compact::similar;
use super::view::{SealedMemTable, View};
use super::{EngineState, Signals, files};
use forebay_storage::{EngineEntry, Error, Result};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Sealed MemTables that may wait to be compressed before writers wait.
const SEALED_LIMIT: usize = 2;
/// MemTables, at most: sealed ones and the active one.
const MEMTABLES: usize = SEALED_LIMIT + 1;
/// Wait before work that failed for lack of space or descriptors is retried.
const SHORTAGE_RETRY: Duration = Duration::from_millis(250);
/// Similar runs that are merged though puts come.
const SIMILAR_RUNS: usize = 4;
/// After this time without a put, two runs are enough.
const PUTS_PAUSE: Duration = Duration::from_millis(50);

impl EngineState {
    /// Takes the entries of a batch.
    pub fn apply(&self, batch: u64, entries: &[EngineEntry]) {
        let runs: Option<Vec<Run>> = entries.iter().map(files::records).collect();
        let Some(runs) = runs else {
            // It was logged with a checksum, so a program wrote it so.
            let reason = "a log record of the index is none; use the version of Forebay that wrote it, or report this";
            self.fail(
                self.host
                    .health
                    .poison(Error::format(self.host.dir(), reason)),
            );
            return;
        };
        let puts: usize = runs.iter().map(|run| run.len()).sum();
        count(&self.shared.counters.puts, puts as u64);
        let full = self.coverage.apply(&runs, || self.take(batch, &runs));
        self.shared.cache.trim();
        if full {
            self.signals.wake();
        }
    }

    /// Lends to the cache what MemTables and compression buffer leave free in this state. A MemTable counts as full as soon as it holds
    /// anything, and the buffer twice, for its trees are merged to others; what it holds beyond its size is not lent either. Called under the
    /// lock under which the state is made.
    pub fn set_extra_budget(&self, view: &View) {
        let held = view.sealed.len() + usize::from(!view.active.is_empty());
        let memtables = MEMTABLES.saturating_sub(held);
        let (buffer, held) = (self.settings.buffer_bytes, view.buffer_bytes());
        let lent = memtables
            .saturating_mul(self.settings.memtable_bytes)
            .saturating_add(buffer.saturating_sub(held.saturating_mul(2)))
            .saturating_sub(held.saturating_sub(buffer));
        self.shared.cache.set_extra_budget(lent);
    }

    /// Makes records visible; whether that sealed the MemTable.
    fn take(&self, batch: u64, runs: &[Run]) -> bool {
        let mut view = self.view.write();
        let new = Arc::make_mut(&mut view);
        let first = new.active.is_empty();
        runs.iter().for_each(|run| new.active.insert(run.clone()));
        new.last = batch;
        let full = new.active.bytes() >= self.settings.memtable_bytes;
        if full {
            seal(new);
        }
        if first {
            self.set_extra_budget(new);
        }
        full
    }

    /// The state as of now, for reading: of few runs.
    pub fn view_to_read(&self) -> Arc<View> {
        let view = self.view.read().clone();
        if view.memtables().all(MemTable::is_compact) {
            return view;
        }
        drop(view);
        let mut view = self.view.write();
        Arc::make_mut(&mut view).compact();
        view.clone()
    }

    /// Waits until there is room for another batch.
    pub fn make_room(&self) -> Result<()> {
        if self.view.read().sealed.len() < SEALED_LIMIT {
            return Ok(());
        }
        let start = Instant::now();
        let result = if self.settings.background {
            self.wait_for_room()
        } else {
            let mut splitter = self.working.lock();
            self.run_due_work(&mut splitter)
        };
        let nanos = start.elapsed().as_nanos() as u64;
        count(&self.shared.counters.stall_nanos, nanos);
        result
    }

    /// Without a thread: the flush that was asked for is done by whoever has put.
    pub fn flush_in_caller(&self) {
        if self.settings.background || !self.signals.lock().flush_requested {
            return;
        }
        let mut splitter = self.working.lock();
        // The batch before is safe in the log. On a full disk it is tried again after the next one.
        if let Err(e) = self.run_due_work(&mut splitter) {
            tracing::debug!("the index could not be brought to disk: {e}");
        }
    }

    fn wait_for_room(&self) -> Result<()> {
        let mut signals = self.signals.lock();
        let mut asked = false;
        loop {
            self.host.health.check_writable()?;
            // While it stops, the store refuses the batch.
            if self.signals.is_stopping() || self.view.read().sealed.len() < SEALED_LIMIT {
                return Ok(());
            }
            // What was full before may have room now, and the compression buffer too.
            if let Some(shortage) = signals.shortage.as_ref().filter(|_| asked) {
                return Err(shortage.clone().at(self.host.dir()));
            }
            asked = true;
            self.signals.work.notify_all();
            self.signals.progress.wait(&mut signals);
        }
    }

    /// Notes a failure, which has poisoned the store if it is no shortage; whoever waits looks again.
    pub fn fail(&self, error: Error) {
        let mut signals = self.signals.lock();
        if error.is_transient() {
            signals.shortage = Some(error);
        } else {
            tracing::error!(store = %self.host.dir().display(), "the index writes no more: {error}");
        }
        self.signals.progress.notify_all();
    }

    /// Does whatever is due.
    pub fn run_due_work(&self, splitter: &mut BlockSplitter) -> Result<()> {
        while self.do_next(splitter)? {}
        Ok(())
    }

    /// Does what is most urgent; `false` if nothing is due. A failure other than a want of room or descriptors poisons the store: without this
    /// work memory would grow without end.
    fn do_next(&self, splitter: &mut BlockSplitter) -> Result<bool> {
        self.host.health.check_writable()?;
        self.step(splitter)
            .map_err(|e| self.host.health.poison_unless_full(e))
    }

    fn step(&self, splitter: &mut BlockSplitter) -> Result<bool> {
        let room = self.view.read().has_room(&self.settings);
        if room && self.compress_oldest(splitter)? || self.merge_trees(false, splitter)? {
            return Ok(true);
        }
        let requested = std::mem::take(&mut self.signals.lock().flush_requested);
        if requested || self.view.read().is_buffer_full(&self.settings) {
            let flushed = if requested {
                self.flush_all(splitter)
            } else {
                self.flush_buffer(splitter)
            };
            if flushed.is_err() {
                self.signals.lock().flush_requested |= requested;
            }
            return flushed.map(|()| true);
        }
        let quiet = !self.settings.background || self.is_quiet();
        let runs = if quiet { 2 } else { SIMILAR_RUNS };
        Ok(self.compact_due(runs, splitter)? || self.merge_trees(true, splitter)?)
    }

    fn puts(&self) -> u64 {
        self.shared.counters.puts.load(Ordering::Relaxed)
    }

    /// Whether no put has come since it was last said that none comes.
    fn is_quiet(&self) -> bool {
        self.signals.lock().quiet == Some(self.puts())
    }

    /// Waits for something to do. If that is only a merge of runs, not for longer than it takes to see that no puts come.
    fn wait_for_work(&self, signals: &mut MutexGuard<'_, Signals>) {
        let puts = self.puts();
        let unreadable = self.unreadable.numbers();
        let waiting = similar(&self.view.read().disk, &unreadable).is_some();
        if !waiting || signals.quiet == Some(puts) {
            self.signals.work.wait(signals);
        } else if self.signals.work.wait_for(signals, PUTS_PAUSE).timed_out() && puts == self.puts()
        {
            signals.quiet = Some(puts);
        }
    }

    /// The thread of the engine.
    pub fn work_loop(&self) {
        let _panic = FailOnPanic(self);
        loop {
            let done = {
                let mut splitter = self.working.lock();
                self.do_next(&mut splitter)
            };
            let mut full = false;
            match done {
                Ok(true) => {
                    let mut signals = self.signals.lock();
                    signals.shortage = None;
                    self.signals.progress.notify_all();
                    if self.signals.is_stopping() {
                        return;
                    }
                    continue;
                }
                Ok(false) => {}
                Err(e) => {
                    full = e.is_transient();
                    self.fail(e);
                    if !full {
                        return;
                    }
                }
            }
            let mut signals = self.signals.lock();
            if self.signals.is_stopping() {
                return;
            }
            // What is due becomes so under this lock, or before it was taken.
            let idle = !signals.flush_requested && self.view.read().sealed.is_empty();
            if full {
                self.signals.work.wait_for(&mut signals, SHORTAGE_RETRY);
            } else if idle {
                self.wait_for_work(&mut signals);
            }
        }
    }
}

/// If the thread of the engine panics, the store is poisoned, so that nobody waits for it.
struct FailOnPanic<'a>(&'a EngineState);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let host = &self.0.host;
            let reason =
                "the thread of the index panicked; start the service again, and report this";
            let panicked = Error::format(host.dir(), reason);
            self.0.fail(host.health.poison(panicked));
        }
    }
}

/// Makes the active MemTable a sealed one.
pub fn seal(view: &mut View) {
    if !view.active.is_empty() {
        view.sealed.push(SealedMemTable {
            table: std::mem::take(&mut view.active),
            last: view.last,
        });
    }
}
