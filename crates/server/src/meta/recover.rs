//! Recovery of a member at its start, and later from time to time: finishes what was decided, takes back what was not.
use super::coordinator::IntentCoordinator;
use super::local::LocalNamespace;
use super::participant::IntentParticipant;
use super::requests::MemberCalls;
use crate::worker_thread::WorkerThread;
use crate::{Fid, Kind, Result, Time, inodes::Inode, keys};
use forebay_proto::meta::AskIntent;
use forebay_storage::Batch;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

/// A hold this old is asked about.
const HOLD_QUERY_AGE: Duration = Duration::from_secs(5);

/// Finishes and takes back. See the head of this file.
pub(crate) struct IntentRecovery {
    pub local: Arc<LocalNamespace>,
    pub members: Arc<MemberCalls>,
    pub participant: Arc<IntentParticipant>,
    pub coordinator: Arc<IntentCoordinator>,
}

impl IntentRecovery {
    /// Finishes intents left by a crash, takes back what undecided ones of other members hold here, and removes dead
    /// directories. May call other members; runs after all members answer. What needs a member that does not
    /// answer waits for `retry_unfinished`.
    ///
    /// # Errors
    /// When this member's own store fails.
    pub fn recover(&self) -> Result<()> {
        self.coordinator.finish_left();
        self.ask_about_holds(Duration::ZERO);
        let mut dead = Vec::new();
        for fid in keys::orphans(&self.local.store) {
            let fid = fid?;
            match self.local.inodes.find(fid) {
                Ok(inode) if inode.as_ref().is_none_or(|i| i.kind == Kind::Dir) => dead.push(fid),
                Ok(_) => {}
                // What has no name takes room until it can be read again.
                Err(error) if error.is_damage() => {
                    tracing::error!(fid = fid.0, %error, "what was removed is not given back");
                }
                Err(error) => return Err(error),
            }
        }
        for fid in dead {
            match self.local.remove_dead(fid) {
                Err(error) if error.is_damage() => {
                    tracing::error!(fid = fid.0, %error, "a removed directory is not given back");
                }
                removed => removed?,
            }
        }
        Ok(())
    }

    /// One round of what is due in the background: intents that wait for a member or are to be forgotten, holds whose coordinator may be gone.
    pub fn retry_unfinished(&self) {
        self.coordinator.finish_left();
        if let Err(e) = self.coordinator.forget_done() {
            tracing::warn!("finished intents cannot be forgotten: {e}");
        }
        self.ask_about_holds(HOLD_QUERY_AGE);
    }

    /// Asks the coordinators of old holds (and of the lock of directory moves) whether they are still going on.
    fn ask_about_holds(&self, age: Duration) {
        let mut ids = self.local.holds.older(age);
        ids.extend(self.participant.move_lock.holder());
        for id in ids {
            let coordinator = id.coordinator;
            match self.members.call(coordinator, AskIntent { intent: id }) {
                Ok(true) => {}
                Ok(false) => {
                    if let Err(e) = self.participant.abort(id) {
                        tracing::warn!("intent {id:?} cannot be taken back yet: {e}");
                    }
                }
                Err(e) => tracing::info!(
                    "member {} cannot say yet what became of {id:?}: {e}",
                    id.coordinator
                ),
            }
        }
    }
}

/// Makes the root directory if this is its owner and there is none.
pub(crate) fn make_root(local: &LocalNamespace) -> Result<()> {
    let root_is_missing = match local.inodes.find(Fid::ROOT) {
        Ok(root) => root.is_none(),
        // It is there. All that can be reached without it can be read.
        Err(error) if error.is_damage() => {
            tracing::error!(%error, "the root directory cannot be read; `forebay mount --salvage` and `forebay fsck --repair` can do without its record");
            false
        }
        Err(error) => return Err(error),
    };
    if local.member() == Fid::ROOT.owner() && root_is_missing {
        let mut batch = Batch::new();
        local.inodes.put(&mut batch, Fid::ROOT, &root(local.now()));
        local.apply(batch)?;
    }
    Ok(())
}

fn root(now: Time) -> Inode {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    Inode {
        parent: Fid::ROOT,
        ..Inode::new(Kind::Dir, 0o755, uid.as_raw(), gid.as_raw(), now)
    }
}

/// The thread that calls `retry_unfinished`. It stops with `stop`, or when dropped.
pub struct IntentRecoveryThread {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: WorkerThread,
}

impl IntentRecoveryThread {
    /// Works every `period`.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(crate) fn start(
        recovery: Arc<IntentRecovery>,
        period: Duration,
    ) -> Result<IntentRecoveryThread> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = stop.clone();
        let thread = WorkerThread::default();
        thread.start("meta-recovery".into(), move || {
            let mut stopped = signal.0.lock();
            while !*stopped {
                if signal.1.wait_for(&mut stopped, period).timed_out() {
                    MutexGuard::unlocked(&mut stopped, || recovery.retry_unfinished());
                }
            }
        })?;
        Ok(IntentRecoveryThread { stop, thread })
    }

    /// Stops the thread and waits for it; a round that has begun ends first.
    pub fn stop(&self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        self.thread.join();
    }
}

impl Drop for IntentRecoveryThread {
    fn drop(&mut self) {
        self.stop();
    }
}
