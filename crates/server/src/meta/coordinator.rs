//! The coordinator of a namespace operation. A plan of one member is one batch; one of several is a two-phase commit (an *intent*), from
//! the allocation of its number until its record is deleted. See `plan` for the protocol.
//!
//! # Invariants
//! 1. The batch with the intent record is the commit point; it is on disk before a step is asked for, and before what the
//!    operation holds is free for others.
//! 2. A committed intent is tried again until every member has done its steps, and its record goes only once they are on disk.
use super::attempt::{AttemptError, held};
use super::intents::{Intents, members};
use super::local::LocalNamespace;
use super::plan::OperationPlan;
use super::records::{self, Intent, RecordTag};
use super::requests::MemberCalls;
use super::steps::{ChangeSet, IntentStep, Precondition, leased_objects, names_given};
use crate::{Error, Fid, Member, Result};
use forebay_proto::intents::IntentId;
use forebay_proto::meta::{
    AbortIntent, FinishIntent, GetParent, LockDirectoryMoves, PrepareIntent, RecreateInodes,
    SyncIntents,
};
use forebay_storage::Batch;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Records that one batch deletes.
const DELETED_TOGETHER: usize = 1024;
/// More levels than any path can name; a longer walk means that the tree is damaged.
const MAX_TREE_DEPTH: usize = 1 << 20;

/// See the head of this file.
pub(crate) struct IntentCoordinator {
    pub local: Arc<LocalNamespace>,
    pub members: Arc<MemberCalls>,
    pub intents: Arc<Intents>,
}

impl IntentCoordinator {
    /// Makes the plan of a request of member `by` happen, all of it or nothing. Whether the open that it asks for was counted.
    pub fn run(&self, plan: &OperationPlan, by: Member) -> Result<bool, AttemptError> {
        let me = self.local.member();
        let changed = leased_objects(plan.preconditions_of(me), plan.steps_of(me));
        let leases = &self.local.inodes.leases;
        let _change = leases.begin_change(Some(by), changed);
        for name in names_given(plan.steps_of(me)) {
            leases.note_holder(name, by);
        }
        let others = plan.others(me);
        if others.is_empty() && plan.moves.is_empty() {
            return self.commit(None, plan, None, by);
        }
        let id = self.intents.begin()?;
        let intent = Intent {
            parts: others.iter().map(|m| (*m, plan.part_of(*m))).collect(),
            moves_directory: !plan.moves.is_empty(),
        };
        if let Err(stop) = self.decide(id, plan, &intent, by) {
            self.give_up(id, &intent);
            return Err(stop);
        }
        let ordered = match intent.parts.is_empty() {
            true => Ok(()),
            false => self.local.store.barrier(),
        };
        if let Err(e) = ordered {
            // The store is closed now; the next start finds out whether the decision is on disk.
            self.intents.queue_retry(id, intent);
            return Err(AttemptError::Fail(e.into()));
        }
        self.local.holds.release(id);
        self.finish(id, intent, Some(by));
        Ok(false)
    }

    /// Steps 1 to 3.
    fn decide(
        &self,
        id: IntentId,
        plan: &OperationPlan,
        intent: &Intent,
        by: Member,
    ) -> Result<(), AttemptError> {
        if intent.moves_directory {
            held(0, self.members.call(0, LockDirectoryMoves { intent: id })?)?;
            for (fid, parent) in &plan.moves {
                self.check_loop(*fid, *parent)?;
            }
        }
        let own = plan.preconditions_of(self.local.member());
        self.hold(id, own.cloned().collect())?;
        for (member, _) in &intent.parts {
            let preconditions: Vec<Precondition> =
                plan.preconditions_of(*member).cloned().collect();
            if !preconditions.is_empty() {
                let below = self.intents.below(*member);
                let request = PrepareIntent {
                    intent: id,
                    below,
                    preconditions,
                    by: Some(by),
                };
                held(*member, self.members.call(*member, request)?)?;
            }
        }
        self.commit(Some(id), plan, Some(intent), by).map(drop)
    }

    /// Holds own preconditions in memory until the commit; what they make is made with the commit.
    fn hold(&self, id: IntentId, preconditions: Vec<Precondition>) -> Result<(), AttemptError> {
        let _locks = self.local.lock_guards(&preconditions);
        let mut work = ChangeSet::new(&self.local);
        for precondition in &preconditions {
            work.require(Some(id), precondition)?;
        }
        self.local.holds.hold(id, preconditions);
        Ok(())
    }

    /// Checks own preconditions and does own steps in one batch, with the intent record if there is one. Whether the open that the plan asks
    /// for was counted.
    fn commit(
        &self,
        id: Option<IntentId>,
        plan: &OperationPlan,
        intent: Option<&Intent>,
        by: Member,
    ) -> Result<bool, AttemptError> {
        let me = self.local.member();
        let (preconditions, steps) = (plan.preconditions_of(me), plan.steps_of(me));
        let held = preconditions.clone().map(Precondition::guard);
        let changed = steps.clone().map(IntentStep::guard);
        let locks = self.local.inodes.lock_many(held.chain(changed));
        let mut work = if plan.removal {
            ChangeSet::reclaiming(&self.local)
        } else {
            ChangeSet::new(&self.local)
        };
        for precondition in preconditions {
            work.require(id, precondition)?;
        }
        for step in steps {
            work.step(step)?;
        }
        if let (Some(id), Some(intent)) = (id, intent) {
            records::put(&mut work.batch, RecordTag::Intent, id, intent);
        }
        let after = work.apply_batch()?;
        let files = &self.local.files;
        let open = plan.open.filter(|_| id.is_none());
        let opened = open.is_some_and(|(fid, open)| files.open_new(fid, by, open));
        drop(locks);
        self.local.follow_up(after);
        Ok(opened)
    }

    /// The intent did not happen: releases what is held for it, as far as members can be reached; the others ask.
    fn give_up(&self, id: IntentId, intent: &Intent) {
        self.local.holds.release(id);
        let mut members: Vec<Member> = intent.parts.iter().map(|(m, _)| *m).collect();
        if intent.moves_directory && !members.contains(&0) {
            members.push(0);
        }
        for member in members {
            if let Err(e) = self.members.call(member, AbortIntent { intent: id }) {
                tracing::info!(
                    "member {member} will ask about intent {} itself: {e}",
                    id.number
                );
            }
        }
        self.intents.end(id);
    }

    /// Refuses to move directory `fid` under `parent` if `parent` lies in it. The caller has the lock of directory moves.
    ///
    /// # Errors
    /// `EINVAL` for a loop.
    fn check_loop(&self, fid: Fid, parent: Fid) -> Result<()> {
        let mut at = parent;
        for _ in 0..MAX_TREE_DEPTH {
            if at == fid {
                return Err(Errno::INVAL.into());
            }
            if at == Fid::ROOT {
                return Ok(());
            }
            at = self.members.call(at.owner(), GetParent { fid: at })?;
        }
        Err(Error::Corrupt(format!(
            "directory {parent:#x} has no way to the root; run `forebay fsck`"
        )))
    }

    /// Has every member do its steps of a committed intent; `forget_done` forgets it. What cannot be done now is left for
    /// `finish_left`; answers the first member that could not.
    fn finish(&self, id: IntentId, intent: Intent, by: Option<Member>) -> Option<Member> {
        let (mut done, mut left) = (intent.clone(), intent);
        let mut failed = None;
        left.parts.retain(|(member, part)| {
            let request = FinishIntent {
                intent: id,
                below: self.intents.below(*member),
                part: part.clone(),
                by,
            };
            let finished = self.members.call(*member, request);
            if let Err(e) = &finished {
                tracing::info!(
                    "intent {} waits for its last steps at member {member}: {e}",
                    id.number
                );
                failed = failed.or(Some(*member));
            }
            finished.is_err()
        });
        done.parts
            .retain(|(member, _)| left.parts.iter().all(|(m, _)| m != member));
        if left.moves_directory && failed.is_none() {
            // Only now: the next directory move must see the new parents.
            if let Err(e) = self.members.call(0, AbortIntent { intent: id }) {
                tracing::info!(
                    "intent {} waits for the lock of directory moves: {e}",
                    id.number
                );
                failed = Some(0);
            }
        }
        // First what is left: without it the intent would be over once the rest is on disk.
        if failed.is_some() {
            self.intents.queue_retry(id, left);
        }
        self.intents.done.lock().push((id, done));
        failed
    }

    /// At a start, before any member finishes an intent: what the members made for those that a crash left is there.
    pub fn remake_left(&self) {
        for (id, intent) in self.intents.take_retries() {
            for (member, part) in &intent.parts {
                if part.makes.is_empty() {
                    continue;
                }
                let request = RecreateInodes {
                    intent: id,
                    below: self.intents.below(*member),
                    makes: part.makes.clone(),
                };
                if let Err(e) = self.members.call(*member, request) {
                    tracing::info!("intent {} waits for member {member}: {e}", id.number);
                }
            }
            self.intents.queue_retry(id, intent);
        }
    }

    /// Forgets the intents of which every member has its steps on disk: asks for that, once for all of them. Of those with a
    /// member that does not answer that member's part stays for another time.
    ///
    /// # Errors
    /// When this member's own store fails.
    pub fn forget_done(&self) -> Result<()> {
        let _upkeep = self.intents.upkeep.lock();
        // Parts of one intent that were done at different times are forgotten together: one alone does not tell that it is over.
        let mut done: BTreeMap<u64, (IntentId, Intent)> = BTreeMap::new();
        for (id, parts) in std::mem::take(&mut *self.intents.done.lock()) {
            match done.get_mut(&id.number) {
                Some((_, all)) => all.parts.extend(parts.parts),
                None => drop(done.insert(id.number, (id, parts))),
            }
        }
        let done: Vec<(IntentId, Intent)> = done.into_values().collect();
        let asked: BTreeSet<Member> = done.iter().flat_map(|(_, done)| members(done)).collect();
        let mut unsure = BTreeSet::new();
        for member in asked {
            if let Err(e) = self.members.call(member, SyncIntents) {
                tracing::info!(
                    "finished intents are not forgotten before member {member} answers: {e}"
                );
                unsure.insert(member);
            }
        }
        for (at, some) in done.chunks(DELETED_TOGETHER).enumerate() {
            let mut batch = Batch::reclaiming();
            let mut over = Vec::new();
            for (id, done) in some {
                let (mut rest, left) = (done.clone(), self.intents.left_of(*id));
                rest.parts.retain(|(member, _)| unsure.contains(member));
                let wait = left.is_some() || !rest.parts.is_empty();
                let unchanged = rest.parts.len() == done.parts.len();
                if wait && !unchanged {
                    let mut record = rest.clone();
                    record
                        .parts
                        .extend(left.into_iter().flat_map(|left| left.parts));
                    records::put(&mut batch, RecordTag::Intent, *id, &record);
                } else if !wait {
                    records::delete(&mut batch, RecordTag::Intent, *id);
                }
                over.push((*id, rest, wait));
            }
            if let Err(e) = self.local.apply(batch) {
                // Writing a record twice is writing it once.
                let again = done[at * DELETED_TOGETHER..].iter().cloned();
                self.intents.done.lock().extend(again);
                return Err(e);
            }
            for (id, rest, wait) in over {
                if !wait {
                    self.intents.end(id);
                    continue;
                }
                let left = self.intents.left_of(id);
                let concerned = members(&rest).into_iter();
                let concerned = concerned.chain(left.iter().flat_map(members)).collect();
                self.intents.set_remaining_members(id, concerned);
                if !rest.parts.is_empty() {
                    self.intents.done.lock().push((id, rest));
                }
            }
        }
        Ok(())
    }

    /// Tries all committed intents again that wait for it. No step is asked for before the decision is on disk: the sync that
    /// should have brought it there may have failed (`plan`).
    pub fn finish_left(&self) {
        let _upkeep = self.intents.upkeep.lock();
        let left = self.intents.take_retries();
        if left.is_empty() {
            return;
        }
        if let Err(e) = self.local.store.barrier() {
            tracing::info!("decided intents wait for a sync of this store: {e}");
            for (id, intent) in left {
                self.intents.queue_retry(id, intent);
            }
            return;
        }
        let mut down = BTreeSet::new();
        for (id, intent) in left {
            if intent.parts.iter().any(|(member, _)| down.contains(member)) {
                // One wait for a member that does not answer is enough in a round.
                self.intents.queue_retry(id, intent);
            } else if let Some(member) = self.finish(id, intent, None) {
                down.insert(member);
            }
        }
    }
}
