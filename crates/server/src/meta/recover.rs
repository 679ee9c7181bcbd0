//! What a member does at its start, and later from time to time: finish what was decided, take back what was not.
use super::{
    Meta,
    proto::{IntentId, MetaReply, MetaRequest},
    records,
    records::Tag,
    steps::Need,
};
use crate::{Error, Fid, Kind, Lamination, Layout, Result, inodes::Inode, keys};
use forebay_storage::Batch;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::ops::Bound;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A hold this old is asked about.
const OLD: Duration = Duration::from_secs(5);

impl Meta {
    /// From this store alone: the root if it is missing, and the holds of undecided or unfinished intents.
    pub(crate) fn load(&self) -> Result<()> {
        let root_is_missing = match self.inodes.find(Fid::ROOT) {
            Ok(root) => root.is_none(),
            // It is there. All that can be reached without it can be read.
            Err(error) if error.is_damage() => {
                tracing::error!(%error, "the root directory cannot be read; `forebay mount --salvage` and `forebay fsck --repair` can do without its record");
                false
            }
            Err(error) => return Err(error),
        };
        if self.member() == Fid::ROOT.owner() && root_is_missing {
            let mut batch = Batch::new();
            self.inodes.put(&mut batch, Fid::ROOT, &root(self.now()));
            self.apply(batch)?;
        }
        for (id, needs) in records::all::<Vec<Need>>(&self.store, Tag::Prepared)? {
            self.marks.hold(id, needs);
        }
        Ok(())
    }

    /// Finishes intents left by a crash, takes back what undecided ones of other members hold here, and removes dead
    /// directories. May call other members; runs after all members answer. What needs a member that does not
    /// answer waits for `tend`.
    ///
    /// # Errors
    /// When this member's own store fails.
    pub fn recover(&self) -> Result<()> {
        self.finish_left();
        self.resolve(Duration::ZERO);
        let mut dead = Vec::new();
        for item in self
            .store
            .scan(keys::ORPHANS, Bound::Unbounded, Bound::Unbounded)
        {
            let (key, _) = item?;
            let Ok(fid) = <[u8; 8]>::try_from(&key[..])
                .map(u64::from_be_bytes)
                .map(Fid)
            else {
                continue;
            };
            match self.inodes.find(fid) {
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
            match self.remove_dead(fid) {
                Err(error) if error.is_damage() => {
                    tracing::error!(fid = fid.0, %error, "a removed directory is not given back");
                }
                removed => removed?,
            }
        }
        Ok(())
    }

    /// One round of what is due in the background: intents that wait for a member or are to be forgotten, holds whose coordinator may be gone.
    pub fn tend(&self) {
        self.finish_left();
        if let Err(e) = self.forget_done() {
            tracing::warn!("finished intents cannot be forgotten: {e}");
        }
        self.resolve(OLD);
    }

    /// Committed operations that wait for a member that is down.
    pub fn unfinished(&self) -> usize {
        self.intents.left()
    }

    /// Asks the coordinators of old holds (and of the gate) whether they are still going on.
    fn resolve(&self, age: Duration) {
        let mut ids = self.marks.older(age);
        ids.extend(self.gate.holder());
        for id in ids {
            match self.is_live(id) {
                Ok(true) => {}
                Ok(false) => {
                    if let Err(e) = self.abort(id) {
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

    fn is_live(&self, id: IntentId) -> Result<bool> {
        let reply = self.call(id.coordinator, MetaRequest::Ask { intent: id })?;
        Ok(!matches!(reply, MetaReply::Live(false)))
    }
}

fn root(now: crate::Time) -> Inode {
    Inode {
        kind: Kind::Dir,
        mode: 0o755,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        nlink: 2,
        rdev: 0,
        size: 0,
        bytes: 0,
        atime: now,
        mtime: now,
        ctime: now,
        seq: 0,
        lamination: Lamination::None,
        parent: Fid::ROOT,
        dead: false,
        target: Vec::new(),
        layout: Layout::Fresh,
    }
}

/// The thread that calls `tend`. It stops with `stop`, or when dropped.
pub struct Tender {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Tender {
    /// Tends `meta` every `period`.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(meta: Arc<Meta>, period: Duration) -> Result<Tender> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = stop.clone();
        let run = move || {
            let mut stopped = signal.0.lock();
            while !*stopped {
                if signal.1.wait_for(&mut stopped, period).timed_out() {
                    MutexGuard::unlocked(&mut stopped, || meta.tend());
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("meta-tender".into())
            .spawn(run);
        let thread = thread.map_err(|e| {
            Error::Refused(format!(
                "cannot start a thread: {e}; raise the limit (ulimit -u)"
            ))
        })?;
        Ok(Tender {
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Stops the thread and waits for it; a round that has begun ends first.
    pub fn stop(&self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread was already printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Tender {
    fn drop(&mut self) {
        self.stop();
    }
}
