//! Background work on file content: removes files without a name, publishes decided commits that could not be published,
//! asks about staged parts whose writer is gone, and deletes receipts of closed files.
//!
//! After a restart, once all members answer, the same is begun:
//! - A part staged here: its owner says whether it was decided. If so it is published; if not, the owner promises that
//!   it never will be, and it is dropped.
//! - A decision left here: published again where it was not, then deleted.
//! - Files without a name: after a restart none is open, so they are removed, in the background.
//!
//! A member that cannot be reached leaves its part for later.
use super::components::FileComponents;
use super::removal::FileRemover;
use super::staged::StagedParts;
use crate::{Fid, Result, keys};
use forebay_data::SpaceSignal;
use std::sync::Arc;
use std::time::Duration;

/// A part staged for longer has probably lost its writer: the owner is asked.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// Does what is in the queue. See the head of this file.
pub(super) struct BackgroundWorker {
    pub components: Arc<FileComponents>,
    pub staged: Arc<StagedParts>,
    pub remover: Arc<FileRemover>,
    /// Writers of this node that wait for space.
    pub space_freed: Arc<SpaceSignal>,
}

impl BackgroundWorker {
    /// What a restart has to do.
    ///
    /// # Errors
    /// When the own store fails.
    pub fn recover(&self) -> Result<()> {
        let orphans: Vec<Fid> =
            keys::orphans(&self.components.context.store).collect::<Result<_>>()?;
        for id in self.staged.table.older(Duration::ZERO) {
            if let Err(error) = self.staged.resolve(id, true) {
                tracing::warn!(fid = id.fid.0, token = id.token, %error, "what became of a staged commit is not known yet");
                self.components.work.retry_later();
            }
        }
        for fid in self.components.decided.files() {
            if !orphans.contains(&fid) {
                let _commit = self.components.locks.lock(fid)?;
                match self.components.decided.publish(fid, true) {
                    Err(error) if error.is_damage() => {
                        tracing::error!(fid = fid.0, %error, "a decided commit is not published everywhere; the next start tries again");
                    }
                    published => drop(published?),
                }
            }
        }
        orphans
            .into_iter()
            .for_each(|fid| self.components.work.remove(fid));
        self.components.slices.outbox.wake();
        Ok(())
    }

    /// The background thread: rounds until the queue is closed.
    pub fn run(&self) {
        while self.components.work.wait(!self.staged.table.is_empty()) {
            self.run_round();
            self.space_freed.notify();
        }
    }

    /// One round of all that is to be done.
    pub fn run_round(&self) {
        let retry = self.components.work.begin_round();
        self.remove_files();
        if let Err(error) = self
            .components
            .outcomes
            .sweep(&self.components.work.take_receipts())
        {
            tracing::warn!(%error, "receipts of commits were not swept; they cost a little room");
        }
        if retry {
            for fid in self.components.decided.files() {
                if let Some(_commit) = self.components.locks.try_lock(fid)
                    && let Err(error) = self.components.decided.publish(fid, true)
                {
                    tracing::warn!(fid = fid.0, %error, "a decided commit is still not published everywhere");
                }
            }
        }
        for id in self.staged.table.older(ABANDONED_AFTER) {
            if let Err(error) = self.staged.resolve(id, true) {
                tracing::warn!(fid = id.fid.0, token = id.token, %error, "what became of a staged commit is still not known");
            }
        }
    }

    fn remove_files(&self) {
        let mut failed = Vec::new();
        while let Some(fid) = self.components.work.next_removal() {
            if let Err(error) = self.remover.remove(fid) {
                tracing::warn!(fid = fid.0, %error, "a file without a name is not removed yet; it will be retried");
                failed.push(fid);
            }
        }
        self.components.work.removals_failed(failed);
    }
}
