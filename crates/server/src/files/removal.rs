//! Removing files without a name, at the file's owner: a small one that is not open at once, in the batch that takes its last
//! name; any other in the background, in steps that a crash may cut anywhere.
//!
//! At once: all that is kept of the file is here and little, so one batch removes it. The caller has the inode's lock until
//! that batch is applied, and the file's commit lock is free: so the file is not opened, changed or committed meanwhile.
//!
//! In the background: the other members' slices first (each member in steps, idempotent), then the own slices, and in the last
//! batch extended attributes, the records of commits, the inode and the orphan record. Until that batch the orphan record
//! stands, and recovery starts again; what is already gone is not missed.
use super::commit::CommitLock;
use super::components::FileComponents;
use super::hook::PreparedRemoval;
use super::slice_index::REMOVAL_STEP;
use crate::inodes::Inode;
use crate::{Error, ExtentLayout, Fid, Result, keys};
use forebay_proto::files::{RemoveProgress, RemoveSlices};
use forebay_storage::Batch;
use rustix::io::Errno;
use std::sync::Arc;

/// A file with as many extents, or patterns, is removed in the background.
const SMALL_FILE_EXTENTS: usize = 64;

/// Removes files. See the head of this file.
pub(super) struct FileRemover {
    pub components: Arc<FileComponents>,
}

/// A file whose removal is in a batch that has not landed yet. Dropped before, nothing has happened.
struct RemovalInBatch<'a> {
    remover: &'a FileRemover,
    fid: Fid,
    /// Whether the batch frees bytes.
    freed: bool,
    _commit: CommitLock<'a>,
}

impl PreparedRemoval for RemovalInBatch<'_> {
    fn batch_applied(self: Box<Self>) {
        self.remover.forget(self.fid, self.freed);
    }
}

impl FileRemover {
    /// Adds to `batch` the removal of all that is kept of a file that loses its last name in it. The caller has the inode's
    /// lock until the batch has landed. `None`, and nothing added: this file is removed in the background.
    pub fn remove_at_once<'a>(
        &'a self,
        fid: Fid,
        inode: &Inode,
        batch: &mut Batch,
    ) -> Result<Option<Box<dyn PreparedRemoval + 'a>>> {
        if self.components.opens.known(fid) {
            return Ok(None);
        }
        // Whoever has it may be calling other members; it is not waited for with an inode's lock.
        let Some(commit) = self.components.locks.try_lock(fid) else {
            return Ok(None);
        };
        // Nothing was ever published with sequence 0.
        let content = inode.seq > 0 || inode.bytes > 0;
        let mut all = Batch::reclaiming();
        let mut freed = false;
        if content {
            if self.components.decided.has(fid)
                || !self.components.decided.participants(fid)?.is_empty()
            {
                return Ok(None);
            }
            let removed = self
                .components
                .slices
                .remove(&mut all, fid, SMALL_FILE_EXTENTS)?;
            if removed == SMALL_FILE_EXTENTS {
                return Ok(None);
            }
            freed = removed > 0;
        }
        if inode.layout == ExtentLayout::Patterned {
            if self.components.patterns.count_segments(fid)? > SMALL_FILE_EXTENTS {
                return Ok(None);
            }
            freed |= self.components.patterns.remove(&mut all, fid)?;
        }
        self.delete_records(&mut all, fid)?;
        batch.extend(all);
        Ok(Some(Box::new(RemovalInBatch {
            remover: self,
            fid,
            freed,
            _commit: commit,
        })))
    }

    /// Adds to `batch` the end of the inode, its extended attributes and the records of its commits.
    fn delete_records(&self, batch: &mut Batch, fid: Fid) -> Result<()> {
        let store = &self.components.context.store;
        keys::delete_prefix(store, batch, keys::XATTRS, &fid.0.to_be_bytes())?;
        self.components.context.inodes.delete(batch, fid);
        self.components.outcomes.delete(batch, fid)
    }

    /// The batch that removes the file has landed. `freed`: it frees bytes.
    fn forget(&self, fid: Fid, freed: bool) {
        self.components.decided.forget(fid);
        self.components.patterns.tables.forget(fid);
        self.components.opens.forget(fid);
        self.components.sequences.synced.forget(fid);
        if freed {
            self.components.slices.outbox.wake();
        }
    }

    /// Removes the file if it has no name and nobody holds it open.
    pub fn remove(&self, fid: Fid) -> Result<()> {
        let inodes = &self.components.context.inodes;
        let _commit = self.components.locks.lock(fid)?;
        let patterned = {
            let _inode = inodes.lock(fid);
            let patterned = match inodes.get(fid) {
                Ok(inode) if inode.nlink > 0 => return self.forget_orphan(fid),
                Ok(inode) => inode.layout == ExtentLayout::Patterned,
                Err(Error::Posix(Errno::STALE)) => return self.forget_orphan(fid),
                Err(error) => return Err(error),
            };
            if !self.components.opens.start_removing(fid) {
                return Ok(());
            }
            patterned
        };
        self.remove_elsewhere(fid)?;
        let mut batch = Batch::reclaiming();
        let mut freed = false;
        loop {
            let removed = self
                .components
                .slices
                .remove(&mut batch, fid, REMOVAL_STEP)?;
            freed |= removed > 0;
            if removed < REMOVAL_STEP {
                break;
            }
            self.components.context.step("remove own")?;
            let full = std::mem::replace(&mut batch, Batch::reclaiming());
            self.components.context.store.apply(full)?;
        }
        {
            // Held to the end: a lamination must not write patterns anew behind the look at them.
            let _inode = inodes.lock(fid);
            if patterned {
                freed |= self.components.patterns.remove(&mut batch, fid)?;
            }
            self.delete_records(&mut batch, fid)?;
            self.components.decided.delete(&mut batch, fid);
            inodes.delete_orphan(&mut batch, fid);
            self.components.context.step("remove inode")?;
            self.components.context.store.apply(batch)?;
        }
        self.forget(fid, freed);
        Ok(())
    }

    /// Has every member that ever got a part of the file remove what it has.
    fn remove_elsewhere(&self, fid: Fid) -> Result<()> {
        let participants = self.components.decided.participants(fid)?;
        if !participants.is_empty() {
            // That it has no name is on disk before any of its content goes at another member.
            self.components.context.store.barrier()?;
        }
        for member in participants {
            self.components.context.step("remove elsewhere")?;
            loop {
                match self
                    .components
                    .context
                    .peers
                    .call(member, RemoveSlices { fid })?
                {
                    RemoveProgress::Done => break,
                    RemoveProgress::More => {}
                }
            }
        }
        Ok(())
    }

    /// The orphan record of a file that has a name, or is gone already.
    fn forget_orphan(&self, fid: Fid) -> Result<()> {
        let mut batch = Batch::reclaiming();
        self.components
            .context
            .inodes
            .delete_orphan(&mut batch, fid);
        Ok(self.components.context.store.apply(batch)?)
    }
}
