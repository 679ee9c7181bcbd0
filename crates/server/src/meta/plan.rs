//! How an operation happens: alone as one batch, or over several members as an intent.
//!
//! The protocol of an intent, and why a crash at each point is safe:
//!
//! 1. The coordinator takes a number, the gate if directories move, and holds its own needs in memory.
//!    *Crash:* nothing is on disk but perhaps the gate; the next who wants it asks the coordinator, and it is free.
//! 2. `Prepare` at each other member: needs are checked and held there, durably, with what they make (a link more, a new
//!    inode), on disk unless that is all new. *Crash:* there is no intent record; whoever meets what is held asks the coordinator, hears that the
//!    intent is not live, and takes it back. Members also ask when they start.
//! 3. The commit point: one batch with the coordinator's own changes and the intent record. It is on disk before anything
//!    else is done, and before what the operation holds is free for others. *Crash after:* the record
//!    is found at the next start and the rest is done again.
//! 4. `Finish` at each other member: its steps, the end of its holds and the marker land in one batch.
//!    *Crash:* repeated, and the marker keeps steps from being done twice (`applied`).
//! 5. The gate is given back. *Crash before:* 4 is repeated, with no effect.
//! 6. Later, for many intents at once: the members that took part bring their steps to disk, then the records are
//!    deleted (`intents`). *Crash before:* 4 is repeated where a power cut took it back.
//!
//! # A power cut, below durability `disk`
//! Each store comes back as a beginning of what was written to it, some longer than others.
//! - *The decision is lost:* it was not on disk, so no step was asked for. What members prepared is taken back as after any crash.
//! - *A member's steps are lost:* the record is there, because it goes only once they are on disk; 4 is repeated.
//! - *What a member prepared:* it is on disk before the decision, and with it all that it builds on: the inode that gets another name, the
//!   directory that is empty, renames before this one. Without that a repeated step would meet an older state: the file under another name.
//! - *A new inode* (a directory's, at another member) builds on nothing, so `mkdir` saves that sync: the intent
//!   holds the inode, and it is made again if it is lost, for all intents of all coordinators before any step.
//! - *Two coordinators* may move a directory one after the other, and its inode's member prepared for neither: its new parent
//!   is on disk there before the first is over.
//!
//! An operation builds only on what others decided before: their decisions are on disk, because they
//! free what they hold only then. So no later rename is known of without the earlier ones.
use super::{
    Meta, Stop,
    proto::{IntentId, MetaRequest},
    records,
    records::{Intent, Part, Tag},
    reply_stop,
    steps::{After, Need, Step, Work},
};
use crate::{Error, Fid, Member, Result};

/// An operation: what must be true, and what happens then. The member that runs it coordinates.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    needs: Vec<(Member, Need)>,
    steps: Vec<(Member, Step)>,
    /// Directories that get another parent: `(directory, parent)`.
    moves: Vec<(Fid, Fid)>,
    /// It only takes away, so it works on a full disk.
    removal: bool,
}

impl Plan {
    /// A plan that gives room back: it may use the space that a store keeps for that.
    pub fn removal() -> Plan {
        Plan {
            removal: true,
            ..Plan::default()
        }
    }

    pub fn need(&mut self, need: Need) {
        self.needs.push((need.guard().owner(), need));
    }

    pub fn step(&mut self, step: Step) {
        self.steps.push((step.guard().owner(), step));
    }

    /// Directory `fid` gets another parent.
    pub fn moves(&mut self, fid: Fid, parent: Fid) {
        self.moves.push((fid, parent));
    }

    fn needs_of(&self, member: Member) -> Vec<Need> {
        self.needs
            .iter()
            .filter(|(m, _)| *m == member)
            .map(|(_, need)| need.clone())
            .collect()
    }

    fn steps_of(&self, member: Member) -> Vec<Step> {
        self.steps
            .iter()
            .filter(|(m, _)| *m == member)
            .map(|(_, step)| step.clone())
            .collect()
    }

    /// What `member` has left to do once the plan is decided.
    fn part_of(&self, member: Member) -> Part {
        let mut makes = self.needs_of(member);
        makes.retain(Need::makes);
        Part {
            makes,
            steps: self.steps_of(member),
        }
    }

    /// The other members that take part.
    fn others(&self, me: Member) -> Vec<Member> {
        let all = self
            .needs
            .iter()
            .map(|(m, _)| *m)
            .chain(self.steps.iter().map(|(m, _)| *m));
        let mut others: Vec<Member> = all.filter(|m| *m != me).collect();
        others.sort_unstable();
        others.dedup();
        others
    }
}

impl Meta {
    /// Makes the plan happen, all of it or nothing.
    pub(crate) fn run(&self, plan: &Plan) -> Result<(), Stop> {
        let me = self.member();
        let others = plan.others(me);
        if others.is_empty() && plan.moves.is_empty() {
            return self.commit(None, plan, None);
        }
        let id = self.intents.begin()?;
        let intent = Intent {
            parts: others.iter().map(|m| (*m, plan.part_of(*m))).collect(),
            gate: !plan.moves.is_empty(),
        };
        if let Err(stop) = self.decide(id, plan, &intent) {
            self.give_up(id, &intent);
            return Err(stop);
        }
        let ordered = match intent.parts.is_empty() {
            true => Ok(()),
            false => self.store.barrier(),
        };
        if let Err(e) = ordered {
            // The store is closed now; the next start finds out whether the decision is on disk.
            self.intents.leave(id, intent);
            return Err(Stop::Fail(e.into()));
        }
        self.marks.release(id);
        self.finish(id, intent);
        Ok(())
    }

    /// Steps 1 to 3.
    fn decide(&self, id: IntentId, plan: &Plan, intent: &Intent) -> Result<(), Stop> {
        if intent.gate {
            reply_stop(0, self.call(0, MetaRequest::Gate { intent: id })?)?;
            for (fid, parent) in &plan.moves {
                self.check_loop(*fid, *parent)?;
            }
        }
        self.hold(id, &plan.needs_of(self.member()))?;
        for (member, _) in &intent.parts {
            let needs = plan.needs_of(*member);
            if !needs.is_empty() {
                let below = self.intents.below(*member);
                reply_stop(
                    *member,
                    self.call(
                        *member,
                        MetaRequest::Prepare {
                            intent: id,
                            below,
                            needs,
                        },
                    )?,
                )?;
            }
        }
        self.commit(Some(id), plan, Some(intent))
    }

    /// Holds own needs in memory until the commit; what they make is made with the commit.
    fn hold(&self, id: IntentId, needs: &[Need]) -> Result<(), Stop> {
        let _locks = self.inodes.lock_many(needs.iter().map(Need::guard));
        let mut work = Work::new(self);
        for need in needs {
            work.need(Some(id), need)?;
        }
        self.marks.hold(id, needs.to_vec());
        Ok(())
    }

    /// Checks own needs and does own steps in one batch, with the intent record if there is one.
    fn commit(
        &self,
        id: Option<IntentId>,
        plan: &Plan,
        intent: Option<&Intent>,
    ) -> Result<(), Stop> {
        let me = self.member();
        let needs = plan
            .needs
            .iter()
            .filter(|(m, _)| *m == me)
            .map(|(_, need)| need);
        let steps = plan
            .steps
            .iter()
            .filter(|(m, _)| *m == me)
            .map(|(_, step)| step);
        let locks = self.inodes.lock_many(
            needs
                .clone()
                .map(Need::guard)
                .chain(steps.clone().map(Step::guard)),
        );
        let mut work = if plan.removal {
            Work::reclaiming(self)
        } else {
            Work::new(self)
        };
        for need in needs {
            work.need(id, need)?;
        }
        for step in steps {
            work.step(step)?;
        }
        if let (Some(id), Some(intent)) = (id, intent) {
            records::put(&mut work.batch, Tag::Intent, id, intent);
        }
        let after = work.land()?;
        drop(locks);
        self.settle(after);
        Ok(())
    }

    /// The intent did not happen: gives back what is held for it, as far as members can be reached; the others ask.
    fn give_up(&self, id: IntentId, intent: &Intent) {
        self.marks.release(id);
        let mut members: Vec<Member> = intent.parts.iter().map(|(m, _)| *m).collect();
        if intent.gate && !members.contains(&0) {
            members.push(0);
        }
        for member in members {
            if let Err(e) = self.call(member, MetaRequest::Abort { intent: id }) {
                tracing::info!(
                    "member {member} will ask about intent {} itself: {e}",
                    id.number
                );
            }
        }
        self.intents.end(id);
    }

    /// At another member: checks needs and holds them durably.
    pub(crate) fn prepare(&self, id: IntentId, below: u64, needs: Vec<Need>) -> Result<(), Stop> {
        self.applied.raise(id, below)?;
        let _locks = self.inodes.lock_many(needs.iter().map(Need::guard));
        if self.applied.is_over(id) {
            // Who still waits for this answer would get the same one however often it asked.
            return Err(Error::Refused(format!(
                "intent {} of member {} is over at member {} already: a message came late, or the store of member {} was \
                 replaced by an older copy; if this goes on, put the newest copy back",
                id.number,
                id.coordinator,
                self.member(),
                id.coordinator
            ))
            .into());
        }
        let mut work = match needs.iter().all(Need::makes_nothing) {
            true => Work::reclaiming(self),
            false => Work::new(self),
        };
        for need in &needs {
            work.need(Some(id), need)?;
        }
        records::put(&mut work.batch, Tag::Prepared, id, &needs);
        work.land()?;
        let new = needs.iter().all(Need::makes);
        self.marks.hold(id, needs);
        if !new {
            // On disk before the decision: what is moved, linked or removed is as it is seen here.
            self.store.barrier()?;
        }
        Ok(())
    }

    /// At another member, at a start: what it made for a decided intent is there again.
    pub(crate) fn remake(&self, id: IntentId, below: u64, makes: Vec<Need>) -> Result<()> {
        self.applied.raise(id, below)?;
        let _locks = self.inodes.lock_many(makes.iter().map(Need::guard));
        if self.applied.is_over(id) || self.marks.needs(id).is_some() {
            return Ok(());
        }
        let mut work = Work::reclaiming(self);
        for need in &makes {
            work.remake(need);
        }
        records::put(&mut work.batch, Tag::Prepared, id, &makes);
        work.land()?;
        self.marks.hold(id, makes);
        Ok(())
    }

    /// At another member: the intent is decided; does its part once, and ends its holds.
    pub(crate) fn apply_part(&self, id: IntentId, below: u64, part: &Part) -> Result<()> {
        self.applied.raise(id, below)?;
        let held = self.marks.needs(id);
        let needs = held.iter().flatten().chain(&part.makes);
        let guards = needs
            .map(Need::guard)
            .chain(part.steps.iter().map(Step::guard));
        let locks = self.inodes.lock_many(guards);
        if self.applied.is_over(id) {
            return Ok(());
        }
        let mut work = Work::reclaiming(self);
        if held.is_none() {
            for need in &part.makes {
                work.remake(need);
            }
        }
        for step in &part.steps {
            work.step(step)?;
        }
        let moves = part.steps.iter().any(Step::moves);
        if held.is_some() {
            records::delete(&mut work.batch, Tag::Prepared, id);
        }
        records::put(&mut work.batch, Tag::Applied, id, &());
        let after = work.land()?;
        self.applied.insert(id);
        if moves {
            // Another coordinator may be next to move it.
            self.store.barrier()?;
        }
        self.marks.release(id);
        drop(locks);
        self.settle(after);
        self.applied.prune(self, id.coordinator)
    }

    /// At another member: the intent did not happen, or is over. Takes back what it made here and ends its holds.
    pub(crate) fn abort(&self, id: IntentId) -> Result<()> {
        let after = match self.marks.needs(id) {
            None => After::default(),
            Some(needs) => {
                let _locks = self.inodes.lock_many(needs.iter().map(Need::guard));
                let mut after = After::default();
                // What is held in memory only (by a coordinator) made nothing yet. What another thread took back
                // meanwhile must not be taken back again.
                if let Some(needs) = records::get::<Vec<Need>>(&self.store, Tag::Prepared, id)? {
                    let mut work = Work::reclaiming(self);
                    for need in &needs {
                        work.undo(need)?;
                    }
                    records::delete(&mut work.batch, Tag::Prepared, id);
                    after = work.land()?;
                }
                self.marks.release(id);
                after
            }
        };
        self.settle(after);
        self.leave_gate(id)
    }
}
