//! The slices held here of other members' files: parts of commits are staged, then published or dropped.
//!
//! # Invariants
//! 1. A staged part is in the store (on disk if it was staged with a sync) and invisible. Three things remove it: `PublishStaged`;
//!    `RemoveSlices`; and the owner's answer about the commit, which is asked for by a reader of the slice, after a restart, at
//!    `DropStaged`, and after long silence. If the commit was decided, the part is published; if it never will be, the part is
//!    dropped.
//! 2. Publishing is one batch: it adds the extents, notes the bytes to free and the published sequence, and deletes the staged record. A
//!    sequence that is not above the published one was applied before; it is answered again, and changes nothing.
//! 3. All of a file's records and extents here change under its slice lock.
use super::commit::validated;
use super::context::MemberContext;
use super::records::{self, CommitId, PublishedRecord};
use super::slice_index::{PriorState, REMOVAL_STEP, SliceIndex};
use crate::{Fid, Member, Result, keys};
use forebay_index::Change;
use forebay_proto::files::{GetDecision, PublishReply, RemoveProgress};
use forebay_proto::placement::belongs;
use forebay_storage::{Batch, Store};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SLICE_LOCKS: usize = 64;

/// Batches that one `RemoveSlices` does, so that it is answered in time.
const REMOVAL_STEPS: usize = 32;

/// Which parts are staged here: the keys of the records on disk.
#[derive(Default)]
pub(super) struct StagedTable {
    files: Mutex<HashMap<Fid, Vec<(CommitId, Instant)>>>,
}

impl StagedTable {
    fn load(store: &Store) -> Result<StagedTable> {
        let table = StagedTable::default();
        for entry in keys::with_prefix(store, keys::STAGED, &[records::STAGED_CHANGES]) {
            table.add(CommitId::from_key(&entry?.0)?);
        }
        Ok(table)
    }
    fn add(&self, id: CommitId) {
        let mut files = self.files.lock();
        let list = files.entry(id.fid).or_default();
        if list.iter().all(|(known, _)| *known != id) {
            list.push((id, Instant::now()));
        }
    }
    fn remove(&self, id: CommitId) {
        let mut files = self.files.lock();
        if let Some(list) = files.get_mut(&id.fid) {
            list.retain(|(known, _)| *known != id);
            if list.is_empty() {
                files.remove(&id.fid);
            }
        }
    }
    fn forget(&self, fid: Fid) {
        self.files.lock().remove(&fid);
    }
    fn of(&self, fid: Fid) -> Vec<CommitId> {
        let files = self.files.lock();
        let staged = files.get(&fid).into_iter().flatten();
        staged.map(|(id, _)| *id).collect()
    }
    /// Those staged for at least `age`.
    pub fn older(&self, age: Duration) -> Vec<CommitId> {
        let files = self.files.lock();
        let old = files.values().flatten();
        let old = old.filter(|(_, since)| since.elapsed() >= age);
        old.map(|(id, _)| *id).collect()
    }
    /// No part is staged here.
    pub fn is_empty(&self) -> bool {
        self.files.lock().is_empty()
    }
}

/// See the head of this file.
pub(super) struct StagedParts {
    context: Arc<MemberContext>,
    slices: Arc<SliceIndex>,
    pub table: StagedTable,
    /// Serialise changes of the slices held for other members' files, by file.
    locks: Vec<Mutex<()>>,
}

impl StagedParts {
    pub fn load(context: Arc<MemberContext>, slices: Arc<SliceIndex>) -> Result<StagedParts> {
        Ok(StagedParts {
            table: StagedTable::load(&context.store)?,
            locks: (0..SLICE_LOCKS).map(|_| Mutex::new(())).collect(),
            context,
            slices,
        })
    }

    fn slice_lock(&self, fid: Fid) -> MutexGuard<'_, ()> {
        self.locks[(fid.0 ^ (fid.0 >> 48)) as usize % SLICE_LOCKS].lock()
    }

    pub fn stage(&self, id: CommitId, changes: &[Change], sync: bool) -> Result<()> {
        let owner = id.fid.owner();
        if owner == self.context.member()
            || !belongs(self.context.map(), owner, self.context.member(), changes)
        {
            return Err(Errno::INVAL.into());
        }
        validated(id, changes, &[], self.context.map().members)?;
        let mut batch = Batch::new();
        batch.put(
            keys::STAGED,
            id.key(records::STAGED_CHANGES),
            records::changes_value(changes)?,
        );
        {
            let _slice = self.slice_lock(id.fid);
            self.context.step("stage")?;
            self.context.store.apply(batch)?;
            self.table.add(id);
        }
        if sync {
            self.context.store.sync()?;
        }
        self.context.step("staged")
    }

    pub fn publish(
        &self,
        id: CommitId,
        seq: u64,
        has_synced_bytes: bool,
        sync: bool,
    ) -> Result<Option<PublishReply>> {
        let reply = {
            let _slice = self.slice_lock(id.fid);
            let last = self.last_published(id.fid)?;
            let staged = self
                .context
                .store
                .get(keys::STAGED, &id.key(records::STAGED_CHANGES))?;
            // This was promised when it was staged: it may use the room kept for freeing.
            let mut batch = Batch::reclaiming();
            batch.delete(keys::STAGED, id.key(records::STAGED_CHANGES));
            let reply = match staged {
                _ if seq <= last.seq => {
                    let (added, freed) = if seq == last.seq {
                        (last.added, last.freed)
                    } else {
                        (0, 0)
                    };
                    PublishReply { added, freed }
                }
                None => return Ok(None),
                Some(value) => {
                    let mut changes = records::changes_of(&value)?;
                    let before = PriorState {
                        size: None,
                        first: false,
                        has_synced_bytes,
                    };
                    let (added, freed) =
                        self.slices
                            .change(&mut batch, id.fid, &mut changes, seq, before, false)?;
                    let record = PublishedRecord { seq, added, freed };
                    batch.put(
                        keys::STAGED,
                        records::fid_key(records::STAGED_PUBLISHED, id.fid),
                        record.value(),
                    );
                    PublishReply { added, freed }
                }
            };
            self.context.step("apply staged")?;
            self.context.store.apply(batch)?;
            self.table.remove(id);
            reply
        };
        if sync {
            self.context.store.sync()?;
        }
        self.slices.batch_applied(id.fid, reply.freed);
        self.context.step("applied staged")?;
        Ok(Some(reply))
    }

    /// The writer gives a commit up. It may be wrong about its end (a lost answer), so the owner is asked first.
    pub fn give_up(&self, id: CommitId) -> Result<()> {
        if self.table.of(id.fid).contains(&id) {
            self.resolve(id, true)?;
        }
        Ok(())
    }

    /// Forgets a staged part that will never be published.
    fn drop_staged(&self, id: CommitId) -> Result<()> {
        let _slice = self.slice_lock(id.fid);
        if self.table.of(id.fid).contains(&id) {
            let mut batch = Batch::reclaiming();
            batch.delete(keys::STAGED, id.key(records::STAGED_CHANGES));
            self.context.store.apply(batch)?;
            self.table.remove(id);
        }
        Ok(())
    }

    /// Publishes what is staged here of the file and decided: so a reader sees all of each commit.
    pub fn publish_decided(&self, fid: Fid) -> Result<()> {
        let staged = self.table.of(fid);
        staged
            .into_iter()
            .try_for_each(|id| self.resolve(id, false))
    }

    /// Asks the owner what became of a staged part, and publishes it if it was decided. With `abort`, a commit not
    /// decided by now never will be, and the part is dropped.
    pub fn resolve(&self, id: CommitId, abort: bool) -> Result<()> {
        let CommitId { fid, writer, token } = id;
        let owner: Member = fid.owner();
        let request = GetDecision {
            fid,
            writer,
            token,
            abort,
        };
        match self.context.peers.call(owner, request)? {
            Some(seq) => self.publish(id, seq, true, false).map(|_| ()),
            None if abort => self.drop_staged(id),
            None => Ok(()),
        }
    }

    /// What was last published here for a file; zeros if nothing.
    pub fn last_published(&self, fid: Fid) -> Result<PublishedRecord> {
        match self.context.store.get(
            keys::STAGED,
            &records::fid_key(records::STAGED_PUBLISHED, fid),
        )? {
            Some(value) => PublishedRecord::of(&value),
            None => Ok(PublishedRecord::default()),
        }
    }

    /// A bounded share of the removal of all that is kept here of the file. `More`: ask again.
    pub fn remove(&self, fid: Fid) -> Result<RemoveProgress> {
        if fid.owner() == self.context.member() {
            return Err(Errno::INVAL.into());
        }
        let _slice = self.slice_lock(fid);
        for _ in 0..REMOVAL_STEPS {
            let mut batch = Batch::reclaiming();
            let last = self.slices.remove(&mut batch, fid, REMOVAL_STEP)? < REMOVAL_STEP;
            if last {
                let staged = records::fid_key(records::STAGED_CHANGES, fid);
                let store = &self.context.store;
                keys::delete_prefix(store, &mut batch, keys::STAGED, &staged)?;
                let published = records::fid_key(records::STAGED_PUBLISHED, fid);
                batch.delete(keys::STAGED, published);
            }
            self.context.step("remove slices")?;
            self.context.store.apply(batch)?;
            if last {
                // On disk before the owner forgets that there was a file.
                self.context.store.barrier()?;
                self.table.forget(fid);
                self.slices.outbox.wake();
                return Ok(RemoveProgress::Done);
            }
        }
        self.slices.outbox.wake();
        Ok(RemoveProgress::More)
    }
}
