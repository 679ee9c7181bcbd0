//! What is left when the last handle of a file is gone and its writes could not be published (a full disk, a member that
//! does not answer): a thread tries again, because no handle will.
//!
//! Invariants:
//! - A file that nothing here holds, but that has something to publish or closes to tell, is *left*: the table keeps it, and
//!   it is tried again after a while, and at once when a name was removed here.
//! - A left file without a name has no reader any more that could have seen its writes, and its close has failed. They are
//!   given back, and the owner hears of the closes, so that it can remove the file. Only a commit whose outcome is not known
//!   is asked about first: its bytes may belong to extents.
//! - Opens without an answer are closed from here, and unlocks without one sent again (`locks`).
//! - Bytes that nothing names and that a full disk did not let go are kept in mind here, and given back later.
use super::Delegate;
use super::commit::LayerCommitter;
use super::handles::OpenFileTable;
use super::locks::LockClient;
use super::open_file::OpenFile;
use super::opens::OpenClient;
use super::views::OwnerViews;
use crate::Result;
use crate::worker_thread::WorkerThread;
use forebay_data::LogRange;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The pause between two rounds over what is left: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

#[derive(Default)]
struct RetrySignals {
    /// There may be something left.
    left: bool,
    /// A round is wanted at once.
    now: bool,
}

/// See the head of this file.
#[derive(Default)]
pub(super) struct DeferredCloses {
    signals: Mutex<RetrySignals>,
    wake: Condvar,
    closing: AtomicBool,
    /// Bytes to give back that a full disk kept.
    unfreed: Mutex<Vec<LogRange>>,
    /// Held through a round.
    round: Mutex<()>,
    thread: WorkerThread,
}

impl DeferredCloses {
    /// Something is left: it is tried again after a pause.
    pub(super) fn add(&self) {
        self.signals.lock().left = true;
        self.wake.notify_all();
    }

    /// Room may have come, or a name gone: what is left, if anything, is tried again at once.
    pub(super) fn retry_now(&self) {
        let mut signals = self.signals.lock();
        if signals.left {
            signals.now = true;
            self.wake.notify_all();
        }
    }

    /// Bytes that could not be given back.
    pub(super) fn keep(&self, ranges: &[LogRange]) {
        self.unfreed.lock().extend_from_slice(ranges);
        self.add();
    }

    fn any(&self) -> bool {
        self.signals.lock().left
    }

    fn closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Waits until a round is due. `false`: the delegate stops.
    fn wait(&self, pause: Duration) -> bool {
        let mut signals = self.signals.lock();
        let mut due = None;
        loop {
            if self.closing() {
                return false;
            }
            if std::mem::take(&mut signals.now) {
                return true;
            }
            if !signals.left {
                self.wake.wait(&mut signals);
                continue;
            }
            let due = *due.get_or_insert_with(|| Instant::now() + pause);
            if self.wake.wait_until(&mut signals, due).timed_out() && !self.closing() {
                signals.now = false;
                return true;
            }
        }
    }
}

/// The thread.
fn run(delegate: &Weak<Delegate>, deferred: &DeferredCloses) {
    let mut pause = FIRST_PAUSE;
    while deferred.wait(pause) {
        let Some(delegate) = delegate.upgrade() else {
            return;
        };
        pause = match delegate.finisher.finish_deferred() {
            true => FIRST_PAUSE,
            false => (pause * 2).min(LONGEST_PAUSE),
        };
    }
}

impl Delegate {
    /// Starts the thread that finishes what is left.
    pub(super) fn start_retries(self: &Arc<Delegate>) -> Result<()> {
        let (weak, deferred) = (Arc::downgrade(self), self.deferred_closes.clone());
        let name = format!("delegate-{}", self.node.peers.member());
        self.deferred_closes
            .thread
            .start(name, move || run(&weak, &deferred))
    }

    /// Ends that thread, and those that fetch ahead. What is left stays as it is.
    pub(crate) fn stop_retries(&self) {
        if let Some(prefetch) = &self.prefetch {
            prefetch.stop();
        }
        let signals = self.deferred_closes.signals.lock();
        self.deferred_closes.closing.store(true, Ordering::Relaxed);
        self.deferred_closes.wake.notify_all();
        drop(signals);
        self.deferred_closes.thread.join();
    }
}

/// Brings to their end the files that nothing here holds.
pub(super) struct CloseFinisher {
    pub table: Arc<OpenFileTable>,
    pub views: Arc<OwnerViews>,
    pub committer: Arc<LayerCommitter>,
    pub locks: Arc<LockClient>,
    pub opens: Arc<OpenClient>,
    pub deferred_closes: Arc<DeferredCloses>,
    /// Every commit is on disk before it counts.
    pub always_sync: bool,
}

impl CloseFinisher {
    /// One round over all that is left. Whether some of it is finished now.
    pub fn finish_deferred(&self) -> bool {
        if !self.deferred_closes.any() {
            return false;
        }
        // Another round at work does as well.
        let Some(_round) = self.deferred_closes.round.try_lock() else {
            return false;
        };
        self.deferred_closes.signals.lock().left = false;
        let unfreed = std::mem::take(&mut *self.deferred_closes.unfreed.lock());
        let mut finished = !unfreed.is_empty();
        // What fails again is kept in mind again.
        self.committer.give_back(&unfreed);
        if !self.opens.close_lost() {
            self.deferred_closes.add();
        }
        if !self.locks.resend_all_unlocks() {
            self.deferred_closes.add();
        }
        for file in self.table.left() {
            if self.deferred_closes.closing() {
                break;
            }
            match self.finish(&file) {
                Ok(()) => finished = true,
                Err(e) => {
                    tracing::debug!(fid = file.fid.0, error = %e, "a closed file is not published yet; it will be tried again");
                    self.deferred_closes.add();
                }
            }
        }
        finished
    }

    /// Brings a left file to its end: published, or without a name and given back; then the owner hears of its closes.
    pub fn finish(&self, file: &Arc<OpenFile>) -> Result<()> {
        if self.is_nameless(file)? {
            self.abandon(file)?;
        }
        self.committer.publish(file, self.always_sync)?;
        self.opens.tell_closes(file)?;
        self.table.rest_if_done(file);
        Ok(())
    }

    /// Whether the file has lost its last name.
    pub fn is_nameless(&self, file: &OpenFile) -> Result<bool> {
        match self.views.ask_attr(file.fid) {
            Ok(attr) => Ok(attr.nlink == 0),
            Err(e) if e.errno() == Errno::STALE => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// Gives back what nobody can read any more: pending writes of a file that has no name, and no handle here.
    fn abandon(&self, file: &OpenFile) -> Result<()> {
        let _commit = file.commit_lock.lock();
        loop {
            let (layer, stuck) = {
                let mut state = file.state.lock();
                if state.handles > 0 {
                    return Ok(());
                }
                (std::mem::take(&mut state.pending), state.committing.clone())
            };
            self.committer.give_back(&layer.above(0));
            self.committer.give_back(&layer.dropped);
            let Some(attempt) = stuck else {
                return Ok(());
            };
            // If it certainly has not happened, its layer is pending again.
            let answered = self
                .committer
                .carry_out(file, &attempt, true, self.always_sync);
            if let Err(e) = answered
                && file.state.lock().committing.is_some()
            {
                return Err(e);
            }
        }
    }
}
