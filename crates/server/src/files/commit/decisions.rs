//! Decided commits: commits over several members that are decided (see `commit`) and not yet published by all of them.
//!
//! # Invariants
//! 1. A decision is in the store from the batch that decided until each of its members has published. It is on disk before any part
//!    is published if the commit has a sync, or if the file may have synced bytes.
//! 2. Of each file, at most one decided commit is unpublished at any one participant: a later commit with a part there waits.
//! 3. Decisions of a file are published in the order of their sequences, under its commit lock.
//! 4. The participants of a file are all members that ever got a part of it: its removal asks each of them.
use super::super::context::MemberContext;
use super::super::records::{self, CommitId};
use super::super::work_queue::WorkQueue;
use crate::outbox::{DisplacedRecord, Outbox};
use crate::{Fid, Member, Result, keys};
use forebay_proto::files::{PublishReply, PublishStaged};
use forebay_storage::{Batch, Store};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// One decided commit and the members that have not published it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct CommitDecision {
    pub id: CommitId,
    pub seq: u64,
    pub members: Vec<Member>,
    /// See `PriorState`. Not on disk: of an earlier run's it is taken for true.
    pub has_synced_bytes: bool,
    /// The sizes of the file before and after it, if it is to be noted. Not on disk: what an earlier run noted stays until it is used.
    pub longer: Option<Range<u64>>,
}

impl CommitDecision {
    fn put(&self, batch: &mut Batch) {
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

/// The decided commits of this member's files.
pub(in super::super) struct DecidedCommits {
    context: Arc<MemberContext>,
    outbox: Arc<Outbox>,
    work: Arc<WorkQueue>,
    /// A copy of what is on disk, by file, in sequence order.
    files: Mutex<HashMap<Fid, Vec<CommitDecision>>>,
}

impl DecidedCommits {
    pub fn load(
        context: Arc<MemberContext>,
        outbox: Arc<Outbox>,
        work: Arc<WorkQueue>,
    ) -> Result<DecidedCommits> {
        let decided = DecidedCommits {
            files: Mutex::new(read(&context.store)?),
            context,
            outbox,
            work,
        };
        Ok(decided)
    }

    /// Adds to `batch`, that of the commit, its decision.
    pub fn put(&self, batch: &mut Batch, decision: &CommitDecision) -> Result<()> {
        decision.put(batch);
        self.note_end(batch, decision)?;
        self.widen_participants(batch, decision)
    }

    /// The batch of the decision has landed.
    pub fn batch_applied(&self, decision: CommitDecision) {
        insert(&mut self.files.lock(), decision);
    }

    fn of(&self, fid: Fid) -> Vec<CommitDecision> {
        self.files.lock().get(&fid).cloned().unwrap_or_default()
    }

    /// The sequence of a commit that is decided and not published everywhere.
    pub fn sequence_of(&self, id: CommitId) -> Option<u64> {
        let files = self.files.lock();
        let mut decisions = files.get(&id.fid)?.iter();
        decisions.find(|d| d.id == id).map(|d| d.seq)
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
    pub fn delete(&self, batch: &mut Batch, fid: Fid) {
        self.of(fid).iter().for_each(|d| d.delete(batch));
    }

    /// Whether a commit of the file is not published everywhere.
    pub fn has(&self, fid: Fid) -> bool {
        self.files.lock().contains_key(&fid)
    }

    /// The file is gone.
    pub fn forget(&self, fid: Fid) {
        self.files.lock().remove(&fid);
    }

    /// The files with decisions.
    pub fn files(&self) -> Vec<Fid> {
        self.files.lock().keys().copied().collect()
    }

    /// Publishes what is decided for the file, in sequence order, and drops the decisions that are done. Returns the
    /// members that could not be reached. The caller has the file's commit lock.
    ///
    /// `sync`: each part is on disk before its decision goes. Whoever publishes late says so: the commit may have been
    /// an fsync's, and a member that lost its part in a power cut, and finds no decision, would drop it.
    pub fn publish(&self, fid: Fid, sync: bool) -> Result<Vec<Member>> {
        let mut unreached: Vec<Member> = Vec::new();
        for decision in self.of(fid) {
            let (mut left, mut added, mut freed) = (Vec::new(), 0, 0);
            for member in &decision.members {
                if unreached.contains(member) {
                    left.push(*member);
                    continue;
                }
                self.context.step("publish")?;
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
                self.context.step("published")?;
                self.record_published(&decision, &left, added, freed)?;
            }
        }
        if !unreached.is_empty() {
            self.work.retry_later();
        }
        Ok(unreached)
    }

    fn publish_at(
        &self,
        decision: &CommitDecision,
        member: Member,
        sync: bool,
    ) -> Result<(u64, u64)> {
        let CommitId { fid, writer, token } = decision.id;
        let request = PublishStaged {
            fid,
            writer,
            token,
            seq: decision.seq,
            has_synced_bytes: decision.has_synced_bytes,
            sync,
        };
        match self.context.peers.call(member, request)? {
            Some(PublishReply { added, freed }) => Ok((added, freed)),
            None => {
                // The member promised to keep it; only a store set up to lose writes in a crash can have lost it.
                tracing::error!(
                    fid = fid.0,
                    seq = decision.seq,
                    member,
                    "this member lost its part of a commit; those bytes keep their older content"
                );
                Ok((0, 0))
            }
        }
    }

    /// Counts what members added and freed, and keeps the decision for those in `left` only.
    fn record_published(
        &self,
        decision: &CommitDecision,
        left: &[Member],
        added: u64,
        freed: u64,
    ) -> Result<()> {
        let fid = decision.id.fid;
        let _inode = self.context.inodes.lock(fid);
        let mut inode = self.context.inodes.get(fid)?;
        inode.count(added, freed);
        let mut batch = Batch::reclaiming();
        self.context.inodes.put(&mut batch, fid, &inode);
        match left {
            [] => {
                decision.delete(&mut batch);
                self.note_end(&mut batch, decision)?;
            }
            _ => CommitDecision {
                members: left.to_vec(),
                ..decision.clone()
            }
            .put(&mut batch),
        }
        self.context.store.apply(batch)?;
        self.set_members(decision.id, left);
        Ok(())
    }

    /// A commit without a sync makes the file longer, and other members have parts. Should a power cut take those, only
    /// this member knows the end that the file had. Written in the batch of the decision, and once more when all have published,
    /// because a sync of all members in between drops the first record.
    fn note_end(&self, batch: &mut Batch, decision: &CommitDecision) -> Result<()> {
        let Some(longer) = &decision.longer else {
            return Ok(());
        };
        let members = decision.members.iter().copied();
        self.outbox
            .displaced
            .note_writers(members.chain([decision.id.writer]));
        let held = DisplacedRecord {
            fid: decision.id.fid,
            size: Some(longer.start),
            seq: decision.seq,
            extents: Vec::new(),
            beside: vec![(longer.end - 1, 1)],
        };
        self.outbox.displaced.record(batch, &held)
    }

    /// Adds the decision's members to the participants of the file.
    fn widen_participants(&self, batch: &mut Batch, decision: &CommitDecision) -> Result<()> {
        let fid = decision.id.fid;
        let mut participants = self.participants(fid)?;
        let before = participants.len();
        participants.extend(&decision.members);
        participants.sort_unstable();
        participants.dedup();
        if participants.len() > before {
            batch.put(
                keys::DECISIONS,
                records::participants_key(fid),
                records::participants_value(&participants),
            );
        }
        Ok(())
    }

    /// The members that ever got a part of the file.
    pub fn participants(&self, fid: Fid) -> Result<Vec<Member>> {
        match self
            .context
            .store
            .get(keys::DECISIONS, &records::participants_key(fid))?
        {
            Some(value) => records::participants_of(&value),
            None => Ok(Vec::new()),
        }
    }
}

/// The decisions that the store has.
fn read(store: &Store) -> Result<HashMap<Fid, Vec<CommitDecision>>> {
    let mut files = HashMap::new();
    for entry in keys::with_prefix(store, keys::DECISIONS, &[records::DECISION]) {
        let (key, value) = entry?;
        let (seq, members) = records::decision_of(&value)?;
        let decision = CommitDecision {
            id: CommitId::from_key(&key)?,
            seq,
            members,
            has_synced_bytes: true,
            longer: None,
        };
        insert(&mut files, decision);
    }
    Ok(files)
}

fn insert(files: &mut HashMap<Fid, Vec<CommitDecision>>, decision: CommitDecision) {
    let list = files.entry(decision.id.fid).or_default();
    let at = list.partition_point(|d| d.seq < decision.seq);
    list.insert(at, decision);
}
