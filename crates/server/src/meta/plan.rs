//! The plan of an operation, and the protocol by which it happens: alone as one batch, or over several members as an intent
//! (`coordinator`, `participant`).
//!
//! The protocol of an intent, and why a crash at each point is safe:
//!
//! 1. The coordinator takes a number, the lock of directory moves (`directory_move_lock`) if directories move, and holds
//!    its own preconditions in memory.
//!    *Crash:* nothing is on disk but perhaps that lock; the next who wants it asks the coordinator, and it is free.
//! 2. `PrepareIntent` at each other member: it checks the preconditions, locks what they cover, and logs both with the prepared changes
//!    (an extra link, a new inode). The log is synced before the reply, unless all that is prepared is new inodes.
//!    *Crash:* there is no intent record; a member that meets such a hold asks the
//!    coordinator, learns that the intent is not live, and undoes it. Members also ask when they start.
//! 3. The commit point: one batch with the coordinator's own changes and the intent record. It is on disk before anything
//!    else is done, and before what the operation holds is free for others. *Crash after:* the record
//!    is found at the next start and the rest is done again.
//! 4. `FinishIntent` at each other member: its steps, the end of its holds and the marker land in one batch.
//!    *Crash:* repeated, and the marker keeps steps from being done twice (`applied`).
//! 5. The lock of directory moves is released. *Crash before:* 4 is repeated, with no effect.
//! 6. Later, for many intents at once: the members that took part bring their steps to disk, then the records are
//!    deleted (`intents`). *Crash before:* 4 is repeated where a power cut took it back.
//!
//! # A power cut, below durability `disk`
//! Each store comes back as a prefix of what was written to it, some longer than others.
//! - *The decision is lost:* it was not on disk, so no step was asked for. What members prepared is taken back as after any
//!   crash.
//! - *A member's steps are lost:* the record is there, because it goes only once they are on disk; 4 is repeated.
//! - *What a member prepared:* it is on disk before the decision, and with it all that it builds on: the inode that gets
//!   another name, the directory that is empty, renames before this one. Without that a repeated step would meet an older
//!   state: the file under another name.
//! - *A new inode* (a directory's, at another member) is not synced at prepare: it builds on nothing. The intent record contains it;
//!   recovery makes lost ones again, for all intents of all coordinators, before it runs any step.
//! - *Two coordinators* may move the same directory in turn, and the member with its inode prepares for neither. So a move ends only
//!   when that member has the new parent on disk.
//!
//! An operation sees another's result only after that one's holds are released, and they are released only once its decision is
//! on disk. So if a rename survives a power cut, all renames that it depended on do too.
use super::records::IntentPart;
use super::steps::{EntryTarget, IntentStep, Precondition};
use crate::{Fid, Kind, Member, Time};
use forebay_proto::meta::NewOpen;

/// One place in the tree.
#[derive(Clone, Copy)]
pub(crate) struct NameInDirectory<'a> {
    pub dir: Fid,
    pub name: &'a [u8],
}

/// An operation: what must be true, and what happens then. The member that runs it coordinates.
#[derive(Debug, Default)]
pub(crate) struct OperationPlan {
    pub preconditions: Vec<(Member, Precondition)>,
    pub steps: Vec<(Member, IntentStep)>,
    /// Directories that get another parent: `(directory, parent)`.
    pub moves: Vec<(Fid, Fid)>,
    /// The file that it makes here is open in the same step.
    pub open: Option<(Fid, NewOpen)>,
    /// It only takes away, so it works on a full disk.
    pub removal: bool,
}

impl OperationPlan {
    /// A plan that gives room back: it may use the space that a store keeps for that.
    pub fn removal() -> OperationPlan {
        OperationPlan {
            removal: true,
            ..OperationPlan::default()
        }
    }

    pub fn require(&mut self, precondition: Precondition) {
        self.preconditions
            .push((precondition.guard().owner(), precondition));
    }

    pub fn step(&mut self, step: IntentStep) {
        self.steps.push((step.guard().owner(), step));
    }

    /// Directory `fid` gets another parent.
    pub fn moves(&mut self, fid: Fid, parent: Fid) {
        self.moves.push((fid, parent));
    }

    /// The name, which names `is`, names `to` from then on; its directory is changed, and counts subdirectories anew.
    pub fn change_entry(
        &mut self,
        NameInDirectory { dir, name }: NameInDirectory<'_>,
        is: Option<EntryTarget>,
        to: Option<EntryTarget>,
        time: Time,
    ) {
        let name = name.to_vec();
        let links = |entry: EntryTarget| i32::from(entry.kind == Kind::Dir);
        self.require(Precondition::Entry {
            dir,
            name: name.clone(),
            is,
        });
        self.step(IntentStep::Entry { dir, name, to });
        self.step(IntentStep::UpdateDirectory {
            dir,
            links: to.map_or(0, links) - is.map_or(0, links),
            time,
        });
    }

    /// What a name named loses it: a file has one less, an empty directory is dead.
    pub fn remove(&mut self, EntryTarget { fid, kind }: EntryTarget, time: Time) {
        match kind {
            Kind::Dir => {
                self.require(Precondition::Empty { fid });
                self.step(IntentStep::MarkDead { fid, time });
            }
            _ => self.step(IntentStep::Drop { fid, time }),
        }
    }

    pub fn preconditions_of(&self, member: Member) -> impl Iterator<Item = &Precondition> + Clone {
        let of_member = self.preconditions.iter().filter(move |(m, _)| *m == member);
        of_member.map(|(_, precondition)| precondition)
    }

    pub fn steps_of(&self, member: Member) -> impl Iterator<Item = &IntentStep> + Clone {
        let of_member = self.steps.iter().filter(move |(m, _)| *m == member);
        of_member.map(|(_, step)| step)
    }

    /// What `member` has left to do once the plan is decided.
    pub fn part_of(&self, member: Member) -> IntentPart {
        let makes = self
            .preconditions_of(member)
            .filter(|precondition| precondition.makes());
        IntentPart {
            makes: makes.cloned().collect(),
            steps: self.steps_of(member).cloned().collect(),
        }
    }

    /// The other members that take part.
    pub fn others(&self, me: Member) -> Vec<Member> {
        let all = self
            .preconditions
            .iter()
            .map(|(m, _)| *m)
            .chain(self.steps.iter().map(|(m, _)| *m));
        let mut others: Vec<Member> = all.filter(|m| *m != me).collect();
        others.sort_unstable();
        others.dedup();
        others
    }
}
