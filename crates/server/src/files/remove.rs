//! Removing files without a name at the file's owner: a small one that nobody holds open at once, in the batch that takes
//! its last name; any other in the background, in steps that a crash may cut anywhere.
//!
//! At once: all that is kept of the file is here and little, so one batch removes it. The caller has the inode's lock until
//! that batch has landed, and no one has the file's commit lock: nobody opens, changes or commits it meanwhile.
//!
//! In the background: the other members' slices first (each member in steps, idempotent), then the own slices, and in the last batch
//! extended attributes, the records of commits, the inode and the orphan record. Until that batch the orphan record
//! stands, and recovery starts again; what is already gone is not missed.
use super::Shared;
use super::busy::BusyGuard;
use super::proto::{FilesReply, FilesRequest};
use super::records;
use crate::inodes::Inode;
use crate::meta::Removal;
use crate::{Error, Fid, Layout, Result, keys};
use bytes::Bytes;
use forebay_storage::{Batch, Keyspace};
use rustix::io::Errno;
use std::ops::Bound;

/// Extents removed by one batch.
const STEP: usize = 512;
/// A file with as many extents is removed in the background.
const FEW: usize = 64;
/// Batches that one `Remove` request does, so that it is answered in time.
const STEPS: usize = 32;

/// A file whose removal is in a batch that has not landed yet. Dropped before, nothing has happened.
struct AtOnce<'a> {
    shared: &'a Shared,
    fid: Fid,
    /// Whether the batch gives bytes back.
    freed: bool,
    _busy: BusyGuard<'a>,
}

impl Removal for AtOnce<'_> {
    fn landed(self: Box<Self>) {
        self.shared.opens.forget(self.fid);
        self.shared.promises.forget(self.fid);
        self.shared.tables.forget(self.fid);
        if self.freed {
            self.shared.outbox.wake();
        }
    }
}

impl Shared {
    /// Adds to `batch` the removal of all that is kept of a file that loses its last name in it. The caller has the inode's
    /// lock until the batch has landed. `None`, and nothing added: this file is removed in the background.
    pub(super) fn remove_at_once<'a>(
        &'a self,
        fid: Fid,
        inode: &Inode,
        batch: &mut Batch,
    ) -> Result<Option<Box<dyn Removal + 'a>>> {
        if self.opens.known(fid) {
            return Ok(None);
        }
        // Whoever has it may be calling other members; it is not waited for with an inode's lock.
        let Some(busy) = self.busy.try_lock(fid) else {
            return Ok(None);
        };
        // Nothing was ever published with sequence 0.
        let content = inode.seq > 0 || inode.bytes > 0;
        let mut all = super::reclaiming();
        let mut removed = Vec::new();
        if content {
            if self.decisions.has(fid) || !self.span(fid)?.is_empty() {
                return Ok(None);
            }
            removed = self.index.remove(&mut all, fid.0, FEW)?;
            if removed.len() == FEW {
                return Ok(None);
            }
        }
        let mut freed = !removed.is_empty();
        self.outbox.add(&mut all, &removed);
        if inode.layout == Layout::Patterned {
            if self.table(fid)?.parts() > FEW {
                return Ok(None);
            }
            freed |= self.remove_patterns(&mut all, fid)?;
        }
        self.delete_records(&mut all, fid)?;
        batch.extend(all);
        Ok(Some(Box::new(AtOnce {
            shared: self,
            fid,
            freed,
            _busy: busy,
        })))
    }

    /// Adds to `batch` the end of the inode, its extended attributes and the records of its commits.
    fn delete_records(&self, batch: &mut Batch, fid: Fid) -> Result<()> {
        self.delete_prefix(batch, keys::XATTRS, &fid.0.to_be_bytes())?;
        let history = records::fid_key(records::HISTORY, fid);
        self.delete_prefix(batch, keys::DECISIONS, &history)?;
        self.inodes.delete(batch, fid);
        Ok(())
    }

    /// Removes the file if it has no name and nobody holds it open.
    pub(super) fn remove_file(&self, fid: Fid) -> Result<()> {
        let _busy = self.busy(fid)?;
        let patterned = {
            let _inode = self.inodes.lock(fid);
            let patterned = match self.inodes.get(fid) {
                Ok(inode) if inode.nlink > 0 => return self.forget_orphan(fid),
                Ok(inode) => inode.layout == Layout::Patterned,
                Err(Error::Posix(Errno::STALE)) => return self.forget_orphan(fid),
                Err(error) => return Err(error),
            };
            if !self.opens.start_removing(fid) {
                return Ok(());
            }
            patterned
        };
        let span = self.span(fid)?;
        if !span.is_empty() {
            // That it has no name is on disk before any of its content goes at another member.
            self.store.barrier()?;
        }
        for member in span {
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
        let mut freed = false;
        loop {
            let removed = self.index.remove(&mut batch, fid.0, STEP)?;
            self.outbox.add(&mut batch, &removed);
            freed |= !removed.is_empty();
            if removed.len() < STEP {
                break;
            }
            self.step("remove own")?;
            self.store
                .apply(std::mem::replace(&mut batch, super::reclaiming()))?;
        }
        {
            // Held to the end: a lamination must not write patterns anew behind the look at them.
            let _inode = self.inodes.lock(fid);
            if patterned {
                freed |= self.remove_patterns(&mut batch, fid)?;
            }
            self.delete_records(&mut batch, fid)?;
            self.decisions.delete(&mut batch, fid);
            batch.delete(keys::ORPHANS, Bytes::copy_from_slice(&fid.0.to_be_bytes()));
            self.step("remove inode")?;
            self.store.apply(batch)?;
        }
        self.decisions.forget(fid);
        self.tables.forget(fid);
        self.opens.forget(fid);
        self.promises.forget(fid);
        if freed {
            self.outbox.wake();
        }
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
                // On disk before the owner forgets that there was a file.
                self.store.barrier()?;
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

    /// Adds to `batch` the removal of every key that starts with `prefix`, which ends with a fid.
    pub(super) fn delete_prefix(
        &self,
        batch: &mut Batch,
        keyspace: Keyspace,
        prefix: &[u8],
    ) -> Result<()> {
        let end = keys::behind(prefix);
        let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        // Without the upper end a scan would step over the deletes of all files behind this one.
        for entry in self.store.scan(keyspace, Bound::Included(prefix), to) {
            batch.delete(keyspace, entry?.0);
        }
        Ok(())
    }
}
