//! Which recent commits happened, so that a retried request answers the same. A failed commit leaves no trace and may be
//! tried again.
//!
//! In memory the last [`REMEMBERED`] commits; on disk, for writers on other members, the last commit of each (file,
//! writer) as a receipt, until the writer has closed the file, or a start at which no writer lives. The own member's delegate dies with this process, so it
//! cannot retry what only the disk would remember.
use super::Shared;
use super::records::{CommitId, HISTORY, is_receipt, receipt_key, receipt_of};
use crate::{Fid, Member, Result, keys};
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::ops::Bound;

/// Receipts deleted by one batch.
pub(super) const SWEEP: usize = 256;

// Of a constant, so it is the compiler that would find it to be zero.
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

    /// The token of the writer's last commit of the file, if there is a receipt.
    pub(super) fn receipt(&self, fid: Fid, writer: Member) -> Result<Option<u64>> {
        let value = self.store.get(keys::DECISIONS, &receipt_key(fid, writer))?;
        value.map(|v| Ok(receipt_of(&v)?.0)).transpose()
    }

    /// Deletes receipts, each if it is still that of this token: a newer one may be asked for again.
    pub(super) fn delete_receipts(&self, receipts: &[(Fid, Member, u64)]) -> Result<()> {
        // A commit writes its receipt under the inode's lock.
        let _inodes = self.inodes.lock_many(receipts.iter().map(|r| r.0));
        let mut batch = super::reclaiming();
        for &(fid, writer, token) in receipts {
            if self.receipt(fid, writer)? == Some(token) {
                batch.delete(keys::DECISIONS, receipt_key(fid, writer));
            }
        }
        match batch.is_empty() {
            true => Ok(()),
            false => Ok(self.store.apply(batch)?),
        }
    }

    /// Deletes all receipts: no writer of before is left that could ask again.
    pub(super) fn forget_writers(&self) -> Result<()> {
        let mut batch = super::reclaiming();
        for entry in self.store.scan(
            keys::DECISIONS,
            Bound::Included(&[HISTORY][..]),
            Bound::Unbounded,
        ) {
            let (key, _) = entry?;
            if !is_receipt(&key) {
                continue;
            }
            batch.delete(keys::DECISIONS, key);
            if batch.len() >= SWEEP {
                self.store
                    .apply(std::mem::replace(&mut batch, super::reclaiming()))?;
            }
        }
        match batch.is_empty() {
            true => Ok(()),
            false => Ok(self.store.apply(batch)?),
        }
    }
}
