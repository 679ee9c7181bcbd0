//! The outcomes of recent commits, so that a repeated request gets the same answer. Of a commit that failed nothing is kept: it may be
//! tried again.
//!
//! - *In memory*: the last [`REMEMBERED`] commits.
//! - *On disk*: a receipt of the last commit of each (file, writer on another member). It is deleted when the writer has closed the file,
//!   or when the whole service restarts. The local delegate needs none: it ends with this process, so it never repeats a request
//!   after a restart.
//!
//! # Invariants
//! 1. A commit is either decided or given up, never both: both decisions and abort records (which say that the commit is
//!    never decided) are written under the inode's lock.
//! 2. A receipt is written in the batch of its commit, and deleted only if no newer commit of its writer has taken its place.
use super::super::context::MemberContext;
use super::super::records::{
    self, CommitId, FILE_COMMIT_RECORDS, is_receipt, receipt_key, receipt_of,
};
use super::super::work_queue::{ClosedReceipt, RECEIPTS_PER_SWEEP};
use super::decisions::DecidedCommits;
use crate::{Fid, Member, Result, keys};
use forebay_storage::Batch;
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::Arc;

// Of a constant, so it is the compiler that would find it to be zero.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// See the head of this file.
pub(in super::super) struct CommitOutcomes {
    context: Arc<MemberContext>,
    decided: Arc<DecidedCommits>,
    recent: Mutex<LruCache<CommitId, u64>>,
}

impl CommitOutcomes {
    pub fn new(context: Arc<MemberContext>, decided: Arc<DecidedCommits>) -> CommitOutcomes {
        CommitOutcomes {
            context,
            decided,
            recent: Mutex::new(LruCache::new(REMEMBERED)),
        }
    }

    /// Adds to `batch`, that of the commit, its receipt, if the writer may ask for it after a restart.
    pub fn put_receipt(&self, batch: &mut Batch, id: CommitId, seq: u64) {
        if id.writer != self.context.member() {
            batch.put(
                keys::DECISIONS,
                id.receipt_key(),
                records::receipt_value(id.token, seq),
            );
        }
    }

    /// The batch of the commit has landed.
    pub fn batch_applied(&self, id: CommitId, seq: u64) {
        self.recent.lock().put(id, seq);
    }

    /// The sequence of the commit, if it is known to have happened.
    pub fn sequence_of(&self, id: CommitId) -> Result<Option<u64>> {
        let recent = self.recent.lock().get(&id).copied();
        let known = recent.or_else(|| self.decided.sequence_of(id));
        if known.is_some() || id.writer == self.context.member() {
            return Ok(known);
        }
        let receipt = self.context.store.get(keys::DECISIONS, &id.receipt_key())?;
        let Some(value) = receipt else {
            return Ok(None);
        };
        let (token, seq) = receipt_of(&value)?;
        Ok((token == id.token).then_some(seq))
    }

    /// Whether a member was told that this commit never happens. The caller has the inode's lock.
    pub fn is_given_up(&self, id: CommitId) -> Result<bool> {
        let record = self.context.store.get(keys::DECISIONS, &id.abort_key())?;
        Ok(record.is_some())
    }

    /// The sequence of a decided commit. With `abort`, `None` is a promise, kept on disk, that it never will be decided.
    pub fn decision(&self, id: CommitId, abort: bool) -> Result<Option<u64>> {
        // Commits decide under the inode's lock, so none slips between the look and the promise.
        let _inode = self.context.inodes.lock(id.fid);
        if let Some(seq) = self.sequence_of(id)? {
            return Ok(Some(seq));
        }
        // A removed file: no commit will find it.
        let removed = self.context.inodes.find(id.fid)?.is_none();
        if abort && !removed {
            // Small, and it lets a member give room back.
            let mut batch = Batch::reclaiming();
            batch.put(keys::DECISIONS, id.abort_key(), records::abort_value());
            self.context.store.apply(batch)?;
        }
        Ok(None)
    }

    /// The token of the writer's last commit of the file, if there is a receipt.
    pub fn receipt(&self, fid: Fid, writer: Member) -> Result<Option<u64>> {
        let key = receipt_key(fid, writer);
        let value = self.context.store.get(keys::DECISIONS, &key)?;
        value.map(|v| Ok(receipt_of(&v)?.0)).transpose()
    }

    /// Deletes receipts, each if it is still that of its token: a newer one may be asked for again.
    pub fn sweep(&self, receipts: &[ClosedReceipt]) -> Result<()> {
        receipts
            .chunks(RECEIPTS_PER_SWEEP)
            .try_for_each(|some| self.sweep_batch(some))
    }

    fn sweep_batch(&self, receipts: &[ClosedReceipt]) -> Result<()> {
        // A commit writes its receipt under the inode's lock.
        let _inodes = self.context.inodes.lock_many(receipts.iter().map(|r| r.0));
        let mut batch = Batch::reclaiming();
        for &(fid, writer, token) in receipts {
            if self.receipt(fid, writer)? == Some(token) {
                batch.delete(keys::DECISIONS, receipt_key(fid, writer));
            }
        }
        self.apply(batch)
    }

    /// Deletes all receipts: no writer of before is left that could ask again.
    pub fn forget_writers(&self) -> Result<()> {
        let mut batch = Batch::reclaiming();
        for entry in keys::with_prefix(&self.context.store, keys::DECISIONS, &[FILE_COMMIT_RECORDS])
        {
            let (key, _) = entry?;
            if !is_receipt(&key) {
                continue;
            }
            batch.delete(keys::DECISIONS, key);
            if batch.len() >= RECEIPTS_PER_SWEEP {
                self.apply(std::mem::replace(&mut batch, Batch::reclaiming()))?;
            }
        }
        self.apply(batch)
    }

    fn apply(&self, batch: Batch) -> Result<()> {
        match batch.is_empty() {
            true => Ok(()),
            false => Ok(self.context.store.apply(batch)?),
        }
    }

    /// Adds to `batch` the end of all records of the file's commits.
    pub fn delete(&self, batch: &mut Batch, fid: Fid) -> Result<()> {
        let history = records::fid_key(FILE_COMMIT_RECORDS, fid);
        keys::delete_prefix(&self.context.store, batch, keys::DECISIONS, &history)
    }
}
