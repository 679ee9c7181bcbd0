//! Removing files without a name, in the background at the file's owner, in steps that a crash may cut anywhere.
//!
//! Order: the other members' slices first (each member in steps, idempotent), then the own slices, and in the last batch
//! extended attributes, the records of commits, the inode and the orphan record. Until that batch the orphan record
//! stands, and recovery starts again; what is already gone is not missed.
use super::Shared;
use super::proto::{FilesReply, FilesRequest};
use super::records;
use crate::{Error, Fid, Result, keys};
use bytes::Bytes;
use forebay_storage::{Batch, Keyspace};
use rustix::io::Errno;
use std::ops::Bound;

/// Extents removed by one batch.
const STEP: usize = 512;
/// Batches that one `Remove` request does, so that it is answered in time.
const STEPS: usize = 32;

impl Shared {
    /// Removes the file if it has no name and nobody holds it open.
    pub(super) fn remove_file(&self, fid: Fid) -> Result<()> {
        let _busy = self.busy.lock(fid);
        {
            let _inode = self.inodes.lock(fid);
            match self.inodes.get(fid) {
                Ok(inode) if inode.nlink > 0 => return self.forget_orphan(fid),
                Ok(_) => {}
                Err(Error::Posix(Errno::STALE)) => return self.forget_orphan(fid),
                Err(error) => return Err(error),
            }
            if !self.opens.start_removing(fid) {
                return Ok(());
            }
        }
        for member in self.span(fid)? {
            self.step("remove elsewhere")?;
            loop {
                match self.links.files(member, FilesRequest::Remove { fid })? {
                    FilesReply::Done => break,
                    FilesReply::More => {}
                    other => return Err(super::unexpected(member, &other)),
                }
            }
        }
        let mut batch = super::reclaiming();
        loop {
            let removed = self.index.remove(&mut batch, fid.0, STEP)?;
            self.outbox.add(&mut batch, &removed);
            if removed.len() < STEP {
                break;
            }
            self.step("remove own")?;
            self.store
                .apply(std::mem::replace(&mut batch, super::reclaiming()))?;
        }
        self.delete_prefix(&mut batch, keys::XATTRS, &fid.0.to_be_bytes())?;
        let history = records::fid_key(records::HISTORY, fid);
        self.delete_prefix(&mut batch, keys::DECISIONS, &history)?;
        self.decisions.delete(&mut batch, fid);
        self.inodes.delete(&mut batch, fid);
        batch.delete(keys::ORPHANS, Bytes::copy_from_slice(&fid.0.to_be_bytes()));
        self.step("remove inode")?;
        {
            let _inode = self.inodes.lock(fid);
            self.store.apply(batch)?;
        }
        self.decisions.forget(fid);
        self.opens.forget(fid);
        self.outbox.wake();
        Ok(())
    }

    /// At a slice owner: a bounded share of the removal of all that is kept here of the file. `More`: ask again.
    pub(super) fn remove_slices(&self, fid: Fid) -> Result<FilesReply> {
        if fid.owner() == self.member() {
            return Err(Errno::INVAL.into());
        }
        let _slice = self.slice_lock(fid);
        for _ in 0..STEPS {
            let mut batch = super::reclaiming();
            let removed = self.index.remove(&mut batch, fid.0, STEP)?;
            self.outbox.add(&mut batch, &removed);
            let last = removed.len() < STEP;
            if last {
                self.delete_prefix(
                    &mut batch,
                    keys::STAGED,
                    &records::fid_key(records::STAGED_CHANGES, fid),
                )?;
                batch.delete(
                    keys::STAGED,
                    records::fid_key(records::STAGED_PUBLISHED, fid),
                );
            }
            self.step("remove slices")?;
            self.store.apply(batch)?;
            if last {
                self.staged.forget(fid);
                self.outbox.wake();
                return Ok(FilesReply::Done);
            }
        }
        self.outbox.wake();
        Ok(FilesReply::More)
    }

    /// The orphan record of a file that has a name, or is gone already.
    fn forget_orphan(&self, fid: Fid) -> Result<()> {
        let mut batch = super::reclaiming();
        batch.delete(keys::ORPHANS, Bytes::copy_from_slice(&fid.0.to_be_bytes()));
        Ok(self.store.apply(batch)?)
    }

    /// Adds to `batch` the removal of every key that starts with `prefix`.
    pub(super) fn delete_prefix(
        &self,
        batch: &mut Batch,
        keyspace: Keyspace,
        prefix: &[u8],
    ) -> Result<()> {
        for entry in self
            .store
            .scan(keyspace, Bound::Included(prefix), Bound::Unbounded)
        {
            let (key, _) = entry?;
            if !key.starts_with(prefix) {
                break;
            }
            batch.delete(keyspace, key);
        }
        Ok(())
    }
}
