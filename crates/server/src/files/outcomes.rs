//! How recent commits ended, so that a retried request answers the same.
//!
//! In memory the last [`REMEMBERED`] commits; on disk, for writers on other members, the last commit of each (file,
//! writer) as a receipt, until the writer has closed the file. The own member's delegate dies with this process, so it
//! cannot retry what only the disk would remember.
use super::Shared;
use super::records::{CommitId, receipt_of};
use crate::{Error, Result, keys};
use lru::LruCache;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::num::NonZeroUsize;

const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// How a commit ended, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done(u64),
    Failed(Errno),
    Stale,
}

impl Outcome {
    pub(super) fn of(error: &Error) -> Outcome {
        match error {
            Error::Stale => Outcome::Stale,
            other => Outcome::Failed(other.errno()),
        }
    }
    pub(super) fn seq(self) -> Result<u64> {
        match self {
            Outcome::Done(seq) => Ok(seq),
            Outcome::Failed(errno) => Err(errno.into()),
            Outcome::Stale => Err(Error::Stale),
        }
    }
}

pub(super) struct Outcomes {
    recent: Mutex<LruCache<CommitId, Outcome>>,
}

impl Default for Outcomes {
    fn default() -> Outcomes {
        Outcomes {
            recent: Mutex::new(LruCache::new(REMEMBERED)),
        }
    }
}

impl Outcomes {
    pub(super) fn remember(&self, id: CommitId, outcome: Outcome) {
        self.recent.lock().put(id, outcome);
    }
    fn recall(&self, id: CommitId) -> Option<Outcome> {
        self.recent.lock().get(&id).copied()
    }
}

impl Shared {
    /// How the commit ended, if it is known to have ended.
    pub(super) fn recall(&self, id: CommitId) -> Result<Option<Outcome>> {
        if let Some(outcome) = self.outcomes.recall(id) {
            return Ok(Some(outcome));
        }
        if id.writer == self.member() {
            return Ok(None);
        }
        let Some(value) = self.store.get(keys::DECISIONS, &id.receipt_key())? else {
            return Ok(None);
        };
        let (token, seq) = receipt_of(&value)?;
        Ok((token == id.token).then_some(Outcome::Done(seq)))
    }
}
