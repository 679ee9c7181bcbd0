//! Decisions: commits over several members that are decided (see `commit`) and not yet published by all of them.
//!
//! Invariants:
//! - A decision is on disk from the batch that decided until each of its members has published.
//! - Of one file, a member has at most one decision that it has not published: later commits with a part for it wait.
use super::Shared;
use super::proto::{FilesReply, FilesRequest};
use super::records::{self, CommitId};
use crate::{Fid, Member, Result, keys};
use forebay_storage::{Batch, Store};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::{Bound, Range};

/// One decided commit and the members that have not published it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub id: CommitId,
    pub seq: u64,
    pub members: Vec<Member>,
    /// See `commit::Before`. Not on disk: of an earlier run's it is taken for true.
    pub promised: bool,
    /// The sizes of the file before and after it, if it is to be noted. Not on disk: what an earlier run noted stays until it is used.
    pub longer: Option<Range<u64>>,
}

impl Decision {
    pub(super) fn put(&self, batch: &mut Batch) {
        batch.put(
            keys::DECISIONS,
            self.id.key(records::DECISION),
            records::decision_value(self.seq, &self.members),
        );
    }
    fn delete(&self, batch: &mut Batch) {
        batch.delete(keys::DECISIONS, self.id.key(records::DECISION));
    }
}

/// The decisions of this member's files: a copy in memory of what is on disk, by file, in sequence order.
#[derive(Default)]
pub(super) struct Decisions {
    files: Mutex<HashMap<Fid, Vec<Decision>>>,
}

impl Decisions {
    pub(super) fn load(store: &Store) -> Result<Decisions> {
        let decisions = Decisions::default();
        let (from, to) = ([records::DECISION], [records::DECISION + 1]);
        for entry in store.scan(
            keys::DECISIONS,
            Bound::Included(&from),
            Bound::Excluded(&to),
        ) {
            let (key, value) = entry?;
            let (seq, members) = records::decision_of(&value)?;
            decisions.add(Some(Decision {
                id: CommitId::from_key(&key)?,
                seq,
                members,
                promised: true,
                longer: None,
            }));
        }
        Ok(decisions)
    }
    pub(super) fn add(&self, decision: Option<Decision>) {
        let Some(decision) = decision else { return };
        let mut files = self.files.lock();
        let list = files.entry(decision.id.fid).or_default();
        let at = list.partition_point(|d| d.seq < decision.seq);
        list.insert(at, decision);
    }
    fn of(&self, fid: Fid) -> Vec<Decision> {
        self.files.lock().get(&fid).cloned().unwrap_or_default()
    }
    pub(super) fn find(&self, id: CommitId) -> Option<u64> {
        self.files
            .lock()
            .get(&id.fid)?
            .iter()
            .find(|d| d.id == id)
            .map(|d| d.seq)
    }
    fn set_members(&self, id: CommitId, members: &[Member]) {
        let mut files = self.files.lock();
        let Some(list) = files.get_mut(&id.fid) else {
            return;
        };
        list.retain(|d| d.id != id || !members.is_empty());
        list.iter_mut()
            .filter(|d| d.id == id)
            .for_each(|d| d.members = members.to_vec());
        if list.is_empty() {
            files.remove(&id.fid);
        }
    }
    /// Adds to `batch` the end of the file's decisions.
    pub(super) fn delete(&self, batch: &mut Batch, fid: Fid) {
        self.of(fid).iter().for_each(|d| d.delete(batch));
    }
    pub(super) fn has(&self, fid: Fid) -> bool {
        self.files.lock().contains_key(&fid)
    }
    pub(super) fn forget(&self, fid: Fid) {
        self.files.lock().remove(&fid);
    }
    pub(super) fn files(&self) -> Vec<Fid> {
        self.files.lock().keys().copied().collect()
    }
}

impl Shared {
    /// Publishes what is decided for the file, in sequence order, and drops the decisions that are done. Returns the
    /// members that could not be reached. The caller has the file's commit lock.
    ///
    /// `sync`: each part is on disk before its decision goes. Whoever publishes late says so: the commit may have been
    /// an fsync's, and a member that lost its part in a power cut, and finds no decision, would drop it.
    pub(super) fn settle(&self, fid: Fid, sync: bool) -> Result<Vec<Member>> {
        let mut unreached: Vec<Member> = Vec::new();
        for decision in self.decisions.of(fid) {
            let (mut left, mut added, mut freed) = (Vec::new(), 0, 0);
            for member in &decision.members {
                if unreached.contains(member) {
                    left.push(*member);
                    continue;
                }
                self.step("publish")?;
                match self.publish_at(&decision, *member, sync) {
                    Ok((a, f)) => {
                        added = u64::saturating_add(added, a);
                        freed = u64::saturating_add(freed, f);
                    }
                    Err(error) => {
                        tracing::warn!(fid = fid.0, seq = decision.seq, member, %error, "a commit is not published there yet; it will be retried");
                        left.push(*member);
                        unreached.push(*member);
                    }
                }
            }
            if left != decision.members {
                self.step("published")?;
                self.published(&decision, &left, added, freed)?;
            }
        }
        if !unreached.is_empty() {
            self.chores.retry_later();
        }
        Ok(unreached)
    }

    fn publish_at(&self, decision: &Decision, member: Member, sync: bool) -> Result<(u64, u64)> {
        let CommitId { fid, writer, token } = decision.id;
        let request = FilesRequest::Publish {
            fid,
            writer,
            token,
            seq: decision.seq,
            promised: decision.promised,
            sync,
        };
        match self.links.files(member, request)? {
            FilesReply::Published { added, freed } => Ok((added, freed)),
            FilesReply::Missing => {
                // The member promised to keep it; only a store set up to lose writes in a crash can have lost it.
                tracing::error!(
                    fid = fid.0,
                    seq = decision.seq,
                    member,
                    "this member lost its part of a commit; those bytes keep their older content"
                );
                Ok((0, 0))
            }
            other => Err(super::unexpected(member, &other)),
        }
    }

    /// Counts what members added and freed, and keeps the decision for those in `left` only.
    fn published(
        &self,
        decision: &Decision,
        left: &[Member],
        added: u64,
        freed: u64,
    ) -> Result<()> {
        let fid = decision.id.fid;
        let _inode = self.inodes.lock(fid);
        let mut inode = self.inodes.get(fid)?;
        inode.count(added, freed);
        let mut batch = super::reclaiming();
        self.inodes.put(&mut batch, fid, &inode);
        match left {
            [] => {
                decision.delete(&mut batch);
                self.note_end(&mut batch, decision);
            }
            _ => Decision {
                members: left.to_vec(),
                ..decision.clone()
            }
            .put(&mut batch),
        }
        self.store.apply(batch)?;
        self.decisions.set_members(decision.id, left);
        Ok(())
    }

    /// Notes durably that these members hold (or held) parts of the file: removal must ask each of them.
    pub(super) fn widen_span(&self, batch: &mut Batch, decision: &Decision) -> Result<()> {
        let fid = decision.id.fid;
        let mut span = self.span(fid)?;
        let before = span.len();
        span.extend(&decision.members);
        span.sort_unstable();
        span.dedup();
        if span.len() > before {
            batch.put(
                keys::DECISIONS,
                records::span_key(fid),
                records::span_value(&span),
            );
        }
        Ok(())
    }

    /// The members that ever got a part of the file.
    pub(super) fn span(&self, fid: Fid) -> Result<Vec<Member>> {
        match self.store.get(keys::DECISIONS, &records::span_key(fid))? {
            Some(value) => records::span_of(&value),
            None => Ok(Vec::new()),
        }
    }
}
