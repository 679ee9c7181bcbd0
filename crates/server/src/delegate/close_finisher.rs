//! Finishes files whose last handle is closed but whose writes could not be published (a full disk, a member that does not answer):
//! a thread retries, since no handle will.
//!
//! Invariants:
//! - A file without handles that has unpublished writes or unsent closes is *unfinished*: it stays in the table. It is retried
//!   after a pause, and at once when a name was removed here.
//! - An unfinished file without a name has no reader that could still see its writes. So they are dropped, their log bytes are
//!   freed, and the closes are reported, so that the owner can remove the file. A commit whose outcome is unknown is resolved
//!   first: its bytes may belong to extents.
//! - Opens without a reply are closed from here, and unlocks without a reply are sent again (`lock_sessions`).
use super::commit::LayerCommitter;
use super::context::DelegateContext;
use super::deferred_close::DeferredCloses;
use super::locks::LockClient;
use super::open_file::OpenFile;
use super::opens::OpenClient;
use crate::Result;
use rustix::io::Errno;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The pause between two rounds over what is unfinished: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Brings to their end the files that nothing here holds.
pub(super) struct CloseFinisher {
    pub ctx: Arc<DelegateContext>,
    pub committer: Arc<LayerCommitter>,
    pub locks: Arc<LockClient>,
    pub opens: Arc<OpenClient>,
}

impl CloseFinisher {
    /// Starts the thread that finishes what is unfinished, until [`DeferredCloses::stop`].
    pub fn start(self: &Arc<CloseFinisher>) -> Result<()> {
        let (weak, deferred) = (Arc::downgrade(self), self.ctx.deferred_closes.clone());
        let thread = &self.ctx.deferred_closes.thread;
        let name = format!("delegate-{}", self.ctx.member());
        thread.start(name, move || run(&weak, &deferred))
    }

    /// One round over all that is unfinished. Whether some of it is finished now.
    pub fn finish_deferred(&self) -> bool {
        if !self.ctx.deferred_closes.any() {
            return false;
        }
        // Another round at work does as well.
        let Some(_round) = self.ctx.deferred_closes.round.try_lock() else {
            return false;
        };
        self.ctx.deferred_closes.begin_round();
        let unfreed = std::mem::take(&mut *self.ctx.deferred_closes.unfreed.lock());
        let mut finished = !unfreed.is_empty();
        // What fails again is kept in mind again.
        self.committer.free_bytes(&unfreed);
        if !self.opens.close_lost() {
            self.ctx.deferred_closes.add();
        }
        if !self.locks.sessions.resend_all_unlocks() {
            self.ctx.deferred_closes.add();
        }
        for file in self.ctx.table.unfinished() {
            if self.ctx.deferred_closes.closing() {
                break;
            }
            match self.finish(&file) {
                Ok(()) => finished = true,
                Err(e) => {
                    tracing::debug!(fid = file.fid.0, error = %e, "a closed file is not published yet; it will be tried again");
                    self.ctx.deferred_closes.add();
                }
            }
        }
        finished
    }

    /// Finishes an unfinished file: publishes it, or frees its bytes if it has no name; then the owner hears of its closes.
    pub fn finish(&self, file: &Arc<OpenFile>) -> Result<()> {
        if self.is_nameless(file)? {
            self.abandon(file)?;
        }
        self.committer.publish(file)?;
        self.opens.tell_closes(file)?;
        self.ctx.table.move_to_idle_if_unused(file);
        Ok(())
    }

    /// Whether the file has lost its last name.
    pub fn is_nameless(&self, file: &OpenFile) -> Result<bool> {
        match self.ctx.ask_attr(file.fid) {
            Ok(attr) => Ok(attr.nlink == 0),
            Err(e) if e.errno() == Errno::STALE => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// Frees what nobody can read any more: pending writes of a file that has no name, and no handle here.
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
            self.committer.free_bytes(&layer.above(0));
            self.committer.free_bytes(&layer.dropped);
            let Some(attempt) = stuck else {
                return Ok(());
            };
            // If it certainly has not happened, its layer is pending again.
            let sync = self.ctx.always_sync;
            let answered = self.committer.send_attempt(file, &attempt, true, sync);
            if let Err(e) = answered
                && file.state.lock().committing.is_some()
            {
                return Err(e);
            }
        }
    }
}

/// The thread.
fn run(finisher: &Weak<CloseFinisher>, deferred: &DeferredCloses) {
    let mut pause = FIRST_PAUSE;
    while deferred.wait(pause) {
        let Some(finisher) = finisher.upgrade() else {
            return;
        };
        pause = match finisher.finish_deferred() {
            true => FIRST_PAUSE,
            false => (pause * 2).min(LONGEST_PAUSE),
        };
    }
}
