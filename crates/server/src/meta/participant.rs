//! The part of a member in intents that others coordinate: it holds what they need, does its steps once, or takes back
//! what it made. See `plan` for the protocol.
//!
//! # Invariants
//! 1. What is held for a prepared intent is held durably, until its steps are done or it is given up.
//! 2. Steps land with the marker that they are done (`applied`), so that no message repeats them.
use super::applied::AppliedIntents;
use super::attempt::AttemptError;
use super::directory_move_lock::DirectoryMoveLock;
use super::local::{FollowUps, LocalNamespace};
use super::records::{self, IntentPart, RecordTag};
use super::steps::{ChangeSet, IntentStep, Precondition, leased_objects, names_given};
use crate::inodes::leases::LeaseChange;
use crate::{Error, Member, Result};
use forebay_proto::intents::IntentId;
use std::sync::Arc;

/// See the head of this file.
pub(crate) struct IntentParticipant {
    local: Arc<LocalNamespace>,
    applied: AppliedIntents,
    pub move_lock: DirectoryMoveLock,
}

impl IntentParticipant {
    /// From the store alone, with the holds of undecided or unfinished intents.
    pub fn open(local: Arc<LocalNamespace>) -> Result<IntentParticipant> {
        for (id, preconditions) in
            records::all::<Vec<Precondition>>(&local.store, RecordTag::Prepared)?
        {
            local.holds.hold(id, preconditions);
        }
        Ok(IntentParticipant {
            applied: AppliedIntents::open(&local.store)?,
            move_lock: DirectoryMoveLock::open(local.clone())?,
            local,
        })
    }

    /// What these change is leased to no kernel until the answer is dropped; `by`: see [`LeaseTable::begin_change`].
    ///
    /// [`LeaseTable::begin_change`]: crate::inodes::leases::LeaseTable::begin_change
    fn begin_change(
        &self,
        preconditions: &[Precondition],
        steps: &[IntentStep],
        by: Option<Member>,
    ) -> LeaseChange<'_> {
        let leases = &self.local.inodes.leases;
        leases.begin_change(by, leased_objects(preconditions.iter(), steps.iter()))
    }

    /// Checks preconditions and holds them durably.
    pub fn prepare(
        &self,
        id: IntentId,
        below: u64,
        preconditions: Vec<Precondition>,
        by: Option<Member>,
    ) -> Result<(), AttemptError> {
        self.applied.raise(id, below)?;
        // Names do not change yet, but links count from now on.
        let _change = self.begin_change(&preconditions, &[], by);
        let _locks = self.local.lock_guards(&preconditions);
        if self.applied.is_over(id) {
            // Who still waits for this answer would get the same one however often it asked.
            return Err(Error::Refused(format!(
                "intent {} of member {} is over at member {} already: a message came late, or the store of member {} was \
                 replaced by an older copy; if this goes on, put the newest copy back",
                id.number,
                id.coordinator,
                self.local.member(),
                id.coordinator
            ))
            .into());
        }
        let mut work = match preconditions.iter().all(Precondition::makes_nothing) {
            true => ChangeSet::reclaiming(&self.local),
            false => ChangeSet::new(&self.local),
        };
        for precondition in &preconditions {
            work.require(Some(id), precondition)?;
        }
        records::put(&mut work.batch, RecordTag::Prepared, id, &preconditions);
        work.apply_batch()?;
        let new = preconditions.iter().all(Precondition::makes);
        self.local.holds.hold(id, preconditions);
        if !new {
            // On disk before the decision: what is moved, linked or removed is as it is seen here.
            self.local.store.barrier()?;
        }
        Ok(())
    }

    /// At a start: what it made for a decided intent is there again.
    pub fn remake(&self, id: IntentId, below: u64, makes: Vec<Precondition>) -> Result<()> {
        self.applied.raise(id, below)?;
        let _locks = self.local.lock_guards(&makes);
        if self.applied.is_over(id) || self.local.holds.preconditions(id).is_some() {
            return Ok(());
        }
        let mut work = ChangeSet::reclaiming(&self.local);
        for precondition in &makes {
            work.remake(precondition);
        }
        records::put(&mut work.batch, RecordTag::Prepared, id, &makes);
        work.apply_batch()?;
        self.local.holds.hold(id, makes);
        Ok(())
    }

    /// The intent is decided; does its part once, and ends its holds.
    pub fn apply_part(
        &self,
        id: IntentId,
        below: u64,
        part: &IntentPart,
        by: Option<Member>,
    ) -> Result<()> {
        self.applied.raise(id, below)?;
        let held = self.local.holds.preconditions(id);
        let _change = self.begin_change(held.as_deref().unwrap_or_default(), &part.steps, by);
        for name in names_given(part.steps.iter()) {
            if let Some(by) = by {
                self.local.inodes.leases.note_holder(name, by);
            }
        }
        let preconditions = held.iter().flatten().chain(&part.makes);
        let guards = preconditions
            .map(Precondition::guard)
            .chain(part.steps.iter().map(IntentStep::guard));
        let locks = self.local.inodes.lock_many(guards);
        if self.applied.is_over(id) {
            return Ok(());
        }
        let mut work = ChangeSet::reclaiming(&self.local);
        if held.is_none() {
            for precondition in &part.makes {
                work.remake(precondition);
            }
        }
        for step in &part.steps {
            work.step(step)?;
        }
        let moves = part.steps.iter().any(IntentStep::moves);
        if held.is_some() {
            records::delete(&mut work.batch, RecordTag::Prepared, id);
        }
        records::put(&mut work.batch, RecordTag::Applied, id, &());
        let after = work.apply_batch()?;
        self.applied.insert(id);
        if moves {
            // Another coordinator may be next to move it.
            self.local.store.barrier()?;
        }
        self.local.holds.release(id);
        drop(locks);
        self.local.follow_up(after);
        self.applied.prune(&self.local, id.coordinator)
    }

    /// The intent did not happen, or is over. Takes back what it made here and ends its holds.
    pub fn abort(&self, id: IntentId) -> Result<()> {
        let after = match self.local.holds.preconditions(id) {
            None => FollowUps::default(),
            Some(preconditions) => {
                let _change = self.begin_change(&preconditions, &[], None);
                let _locks = self.local.lock_guards(&preconditions);
                let mut after = FollowUps::default();
                // What is held in memory only (by a coordinator) made nothing yet. What another thread took back
                // meanwhile must not be taken back again.
                if let Some(preconditions) =
                    records::get::<Vec<Precondition>>(&self.local.store, RecordTag::Prepared, id)?
                {
                    let mut work = ChangeSet::reclaiming(&self.local);
                    for precondition in &preconditions {
                        work.undo(precondition)?;
                    }
                    records::delete(&mut work.batch, RecordTag::Prepared, id);
                    after = work.apply_batch()?;
                }
                self.local.holds.release(id);
                after
            }
        };
        self.local.follow_up(after);
        self.move_lock.release(id)
    }
}
