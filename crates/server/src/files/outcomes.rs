//! Which recent commits happened, so that a retried request answers the same. A failed commit leaves no trace and may be
//! tried again.
//!
//! In memory the last [`REMEMBERED`] commits; on disk, for writers on other members, the last commit of each (file,
//! writer) as a receipt, until the writer has closed the file. The own member's delegate dies with this process, so it
//! cannot retry what only the disk would remember.
use super::Shared;
use super::records::{CommitId, receipt_of};
use crate::{Result, keys};
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;

const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// The sequences of recent commits.
pub(super) struct Outcomes {
    recent: Mutex<LruCache<CommitId, u64>>,
}

impl Default for Outcomes {
    fn default() -> Outcomes {
        Outcomes {
            recent: Mutex::new(LruCache::new(REMEMBERED)),
        }
    }
}

impl Outcomes {
    pub(super) fn remember(&self, id: CommitId, seq: u64) {
        self.recent.lock().put(id, seq);
    }
    fn recall(&self, id: CommitId) -> Option<u64> {
        self.recent.lock().get(&id).copied()
    }
}

impl Shared {
    /// The sequence of the commit, if it is known to have happened.
    pub(super) fn recall(&self, id: CommitId) -> Result<Option<u64>> {
        let known = self.outcomes.recall(id).or_else(|| self.decisions.find(id));
        if known.is_some() {
            return Ok(known);
        }
        if id.writer == self.member() {
            return Ok(None);
        }
        let Some(value) = self.store.get(keys::DECISIONS, &id.receipt_key())? else {
            return Ok(None);
        };
        let (token, seq) = receipt_of(&value)?;
        Ok((token == id.token).then_some(seq))
    }
}
