//! Staged parts at a slice owner: kept durably, invisible, until the file's owner publishes or drops them.
//!
//! Invariants:
//! - A staged part goes only by `Publish`, by `Remove`, or when the owner is asked (after a restart, for `Drop`, or after
//!   long silence) and says that the commit was decided (then it is published here) or never will be.
//! - Publishing is one batch: extents, freed bytes, the published sequence, the staged record's end. A sequence not
//!   above the published one was applied before, and is only answered.
use super::Shared;
use super::commit::Before;
use super::parts::belongs;
use super::proto::{FilesReply, FilesRequest};
use super::records::{self, CommitId, PublishedRecord};
use crate::{Fid, Member, Result, keys};
use forebay_index::Change;
use forebay_storage::{Batch, Store};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

/// A part staged for longer has probably lost its writer; the background thread asks the owner.
const ABANDONED: Duration = Duration::from_secs(60);

/// Which parts are staged here: the keys of the records on disk.
#[derive(Default)]
pub(super) struct StagedTable {
    files: Mutex<HashMap<Fid, Vec<(CommitId, Instant)>>>,
}

impl StagedTable {
    pub(super) fn load(store: &Store) -> Result<StagedTable> {
        let table = StagedTable::default();
        let (from, to) = ([records::STAGED_CHANGES], [records::STAGED_CHANGES + 1]);
        for entry in store.scan(keys::STAGED, Bound::Included(&from), Bound::Excluded(&to)) {
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
    pub(super) fn forget(&self, fid: Fid) {
        self.files.lock().remove(&fid);
    }
    pub(super) fn of(&self, fid: Fid) -> Vec<CommitId> {
        self.files
            .lock()
            .get(&fid)
            .map(|l| l.iter().map(|(id, _)| *id).collect())
            .unwrap_or_default()
    }
    pub(super) fn all(&self) -> Vec<CommitId> {
        self.files
            .lock()
            .values()
            .flatten()
            .map(|(id, _)| *id)
            .collect()
    }
    pub(super) fn abandoned(&self) -> Vec<CommitId> {
        self.files
            .lock()
            .values()
            .flatten()
            .filter(|(_, since)| since.elapsed() > ABANDONED)
            .map(|(id, _)| *id)
            .collect()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.files.lock().is_empty()
    }
}

impl Shared {
    pub(super) fn stage(&self, id: CommitId, changes: &[Change], sync: bool) -> Result<FilesReply> {
        let owner = id.fid.owner();
        if owner == self.member() || !belongs(self.map(), owner, self.member(), changes) {
            return Err(Errno::INVAL.into());
        }
        self.contents(id, changes, &[])?;
        let mut batch = Batch::new();
        batch.put(
            keys::STAGED,
            id.key(records::STAGED_CHANGES),
            records::changes_value(changes),
        );
        {
            let _slice = self.slice_lock(id.fid);
            self.step("stage")?;
            self.store.apply(batch)?;
            self.staged.add(id);
        }
        if sync {
            self.store.sync()?;
        }
        self.step("staged")?;
        Ok(FilesReply::Done)
    }

    pub(super) fn publish(
        &self,
        id: CommitId,
        seq: u64,
        promised: bool,
        sync: bool,
    ) -> Result<FilesReply> {
        let reply = {
            let _slice = self.slice_lock(id.fid);
            let last = self.last_published(id.fid)?;
            let staged = self
                .store
                .get(keys::STAGED, &id.key(records::STAGED_CHANGES))?;
            // This was promised when it was staged: it may use the room kept for giving back.
            let mut batch = super::reclaiming();
            batch.delete(keys::STAGED, id.key(records::STAGED_CHANGES));
            let reply = match staged {
                _ if seq <= last.seq => {
                    let (added, freed) = if seq == last.seq {
                        (last.added, last.freed)
                    } else {
                        (0, 0)
                    };
                    FilesReply::Published { added, freed }
                }
                None => return Ok(FilesReply::Missing),
                Some(value) => {
                    let mut changes = records::changes_of(&value)?;
                    let before = Before {
                        size: None,
                        promised,
                    };
                    let (added, freed) =
                        self.change(&mut batch, id.fid, &mut changes, seq, before, false)?;
                    let record = PublishedRecord { seq, added, freed };
                    batch.put(
                        keys::STAGED,
                        records::fid_key(records::STAGED_PUBLISHED, id.fid),
                        record.value(),
                    );
                    FilesReply::Published { added, freed }
                }
            };
            self.step("apply staged")?;
            self.store.apply(batch)?;
            self.staged.remove(id);
            reply
        };
        if sync {
            self.store.sync()?;
        }
        let freed = matches!(reply, FilesReply::Published { freed, .. } if freed > 0);
        if freed || self.outbox.holds(id.fid) {
            self.outbox.wake();
        }
        self.step("applied staged")?;
        Ok(reply)
    }

    /// The writer gives a commit up. It may be wrong about its end (a lost answer), so the owner is asked first.
    pub(super) fn give_up(&self, id: CommitId) -> Result<FilesReply> {
        if self.staged.of(id.fid).contains(&id) {
            self.resolve(id, true)?;
        }
        Ok(FilesReply::Done)
    }

    /// Forgets a staged part that will never be published.
    fn drop_staged(&self, id: CommitId) -> Result<()> {
        let _slice = self.slice_lock(id.fid);
        if self.staged.of(id.fid).contains(&id) {
            let mut batch = super::reclaiming();
            batch.delete(keys::STAGED, id.key(records::STAGED_CHANGES));
            self.store.apply(batch)?;
            self.staged.remove(id);
        }
        Ok(())
    }

    /// Asks the owner what became of a staged part, and publishes it if it was decided. With `abort`, a commit not
    /// decided by now never will be, and the part is dropped.
    pub(super) fn resolve(&self, id: CommitId, abort: bool) -> Result<()> {
        let CommitId { fid, writer, token } = id;
        let owner: Member = fid.owner();
        match self.links.files(
            owner,
            FilesRequest::Decision {
                fid,
                writer,
                token,
                abort,
            },
        )? {
            FilesReply::Decision(Some(seq)) => self.publish(id, seq, true, false).map(|_| ()),
            FilesReply::Decision(None) if abort => self.drop_staged(id),
            FilesReply::Decision(None) => Ok(()),
            other => Err(super::unexpected(owner, &other)),
        }
    }

    /// What was last published here for a file; zeros if nothing.
    pub(super) fn last_published(&self, fid: Fid) -> Result<PublishedRecord> {
        match self.store.get(
            keys::STAGED,
            &records::fid_key(records::STAGED_PUBLISHED, fid),
        )? {
            Some(value) => PublishedRecord::of(&value),
            None => Ok(PublishedRecord::default()),
        }
    }
}
