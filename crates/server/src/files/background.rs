//! The background work of the content side: removes files without a name, publishes what could not be published, asks
//! about staged parts whose writer has gone, and sweeps receipts of closed files.
//!
//! After a restart, once all members answer, the same is begun:
//! - A part staged here: its owner says whether it was decided. If so it is published; if not, the owner promises that
//!   it never will be, and it is dropped.
//! - A decision left here: published again where it was not, then dropped.
//! - Files without a name: nobody holds them open any more, so they are removed, in the background.
//!
//! A member that cannot be reached leaves its part for later.
use super::commit::{CommitLocks, CommitOutcomes, DecidedCommits};
use super::context::MemberContext;
use super::removal::Remover;
use super::slice_index::SliceIndex;
use super::staged::StagedParts;
use super::work_queue::WorkQueue;
use crate::Result;
use forebay_data::SpaceSignal;
use std::sync::Arc;

/// Does what is in the queue. See the head of this file.
pub(super) struct BackgroundWorker {
    pub context: Arc<MemberContext>,
    pub work: Arc<WorkQueue>,
    pub locks: Arc<CommitLocks>,
    pub slices: Arc<SliceIndex>,
    pub staged: Arc<StagedParts>,
    pub decided: Arc<DecidedCommits>,
    pub outcomes: Arc<CommitOutcomes>,
    pub remover: Arc<Remover>,
    /// Writers of this node that wait for space.
    pub space_freed: Arc<SpaceSignal>,
}

impl BackgroundWorker {
    /// What a restart has to do.
    ///
    /// # Errors
    /// When the own store fails.
    pub fn recover(&self) -> Result<()> {
        let orphans = self.context.orphans()?;
        for id in self.staged.all() {
            if let Err(error) = self.staged.resolve(id, true) {
                tracing::warn!(fid = id.fid.0, token = id.token, %error, "what became of a staged commit is not known yet");
                self.work.retry_later();
            }
        }
        for fid in self.decided.files() {
            if !orphans.contains(&fid) {
                let _commit = self.locks.lock(fid)?;
                match self.decided.publish(fid, true) {
                    Err(error) if error.is_damage() => {
                        tracing::error!(fid = fid.0, %error, "a decided commit is not published everywhere; the next start tries again");
                    }
                    published => drop(published?),
                }
            }
        }
        orphans.into_iter().for_each(|fid| self.work.remove(fid));
        self.slices.wake_outbox();
        Ok(())
    }

    /// The background thread: rounds until the queue is closed.
    pub fn run(&self) {
        while self.work.wait(!self.staged.is_empty()) {
            self.run_round();
            self.space_freed.notify();
        }
    }

    /// One round of all that is to be done.
    pub fn run_round(&self) {
        let retry = self.work.begin_round();
        self.remove_files();
        if let Err(error) = self.outcomes.sweep(&self.work.take_receipts()) {
            tracing::warn!(%error, "receipts of commits were not swept; they cost a little room");
        }
        if retry {
            for fid in self.decided.files() {
                if let Some(_commit) = self.locks.try_lock(fid)
                    && let Err(error) = self.decided.publish(fid, true)
                {
                    tracing::warn!(fid = fid.0, %error, "a decided commit is still not published everywhere");
                }
            }
        }
        for id in self.staged.abandoned() {
            if let Err(error) = self.staged.resolve(id, true) {
                tracing::warn!(fid = id.fid.0, token = id.token, %error, "what became of a staged commit is still not known");
            }
        }
    }

    fn remove_files(&self) {
        let mut failed = Vec::new();
        while let Some(fid) = self.work.next_removal() {
            if let Err(error) = self.remover.remove(fid) {
                tracing::warn!(fid = fid.0, %error, "a file without a name is not removed yet; it will be retried");
                failed.push(fid);
            }
        }
        self.work.removals_failed(failed);
    }
}
