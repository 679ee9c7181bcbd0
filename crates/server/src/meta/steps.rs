//! The small changes that every namespace operation is made of, and the change set that turns them into one batch.
//!
//! A [`Precondition`] is checked and may say no; a [`IntentStep`] is done after the decision and must always succeed. Both name
//! inodes and entries of one member only.
use super::attempt::AttemptError;
use super::entries;
use super::local::{FollowUps, LocalNamespace, check_not_removed};
use crate::inodes::{Inode, leases::LeasedObject};
use crate::{Fid, Kind, Result};
use forebay_storage::Batch;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

pub use forebay_proto::intents::{EntryTarget, IntentId, IntentStep, Precondition};

/// Most names of one file.
pub const LINK_MAX: u32 = 65_000;

/// What of these preconditions and steps of one member may be leased to kernels.
pub(crate) fn leased_objects<'a>(
    preconditions: impl Iterator<Item = &'a Precondition>,
    steps: impl Iterator<Item = &'a IntentStep>,
) -> impl Iterator<Item = LeasedObject<'a>> {
    let of_precondition = |precondition: &'a Precondition| match precondition {
        Precondition::Entry {
            dir,
            name,
            is: Some(is),
        } if is.kind == Kind::Dir => Some(LeasedObject::Entry(*dir, name)),
        Precondition::Link { fid, .. } | Precondition::Name { fid, .. } => {
            Some(LeasedObject::Attributes(*fid))
        }
        Precondition::Entry { .. } | Precondition::Empty { .. } | Precondition::Make { .. } => None,
    };
    let of_step = |step: &'a IntentStep| match step {
        // Its directory is another step; what it named is a precondition.
        IntentStep::Entry { .. } => None,
        IntentStep::UpdateDirectory { .. }
        | IntentStep::Drop { .. }
        | IntentStep::MarkDead { .. }
        | IntentStep::Moved { .. } => Some(LeasedObject::Attributes(step.guard())),
    };
    preconditions
        .filter_map(of_precondition)
        .chain(steps.filter_map(of_step))
}

/// Names that directories get by these steps: the kernel that renames them keeps them there.
pub(crate) fn names_given<'a>(
    steps: impl Iterator<Item = &'a IntentStep>,
) -> impl Iterator<Item = LeasedObject<'a>> {
    steps.filter_map(|step| match step {
        IntentStep::Entry {
            dir,
            name,
            to: Some(to),
        } if to.kind == Kind::Dir => Some(LeasedObject::Entry(*dir, name)),
        _ => None,
    })
}

/// Changes gathered under inode locks, to land as one batch.
pub(crate) struct ChangeSet<'a> {
    local: &'a LocalNamespace,
    pub batch: Batch,
    inodes: BTreeMap<Fid, Inode>,
    /// Files that got their first name.
    named: Vec<Fid>,
    /// Files whose first name was taken back.
    linkable: BTreeSet<Fid>,
    /// What to tell others about once the batch has landed.
    pub after: FollowUps,
}

impl<'a> ChangeSet<'a> {
    pub fn new(local: &'a LocalNamespace) -> ChangeSet<'a> {
        ChangeSet {
            local,
            batch: Batch::new(),
            inodes: BTreeMap::new(),
            named: Vec::new(),
            linkable: BTreeSet::new(),
            after: FollowUps::default(),
        }
    }

    /// Changes that give room back, or finish what was decided: they may use the space that a store keeps for that.
    pub fn reclaiming(local: &'a LocalNamespace) -> ChangeSet<'a> {
        ChangeSet {
            batch: Batch::reclaiming(),
            ..ChangeSet::new(local)
        }
    }

    /// The inode as these changes leave it.
    pub fn inode(&mut self, fid: Fid) -> Result<Option<&mut Inode>> {
        use std::collections::btree_map::Entry as Slot;
        match self.inodes.entry(fid) {
            Slot::Occupied(slot) => Ok(Some(slot.into_mut())),
            Slot::Vacant(slot) => Ok(self.local.inodes.find(fid)?.map(|inode| slot.insert(inode))),
        }
    }

    /// Checks a precondition for `id` (`None`: an operation of this member alone), and makes what it makes.
    pub fn require(
        &mut self,
        id: Option<IntentId>,
        precondition: &Precondition,
    ) -> Result<(), AttemptError> {
        let at = self.local.member();
        let busy = |by| AttemptError::Busy { at, by };
        match precondition {
            Precondition::Entry { dir, name, is } => {
                if let Some(by) = self.local.holds.entry(*dir, name, id) {
                    return Err(busy(by));
                }
                if is.is_none() {
                    if let Some(by) = self.local.holds.emptying_intent(*dir, id) {
                        return Err(busy(by));
                    }
                    check_not_removed(self.inode(*dir)?.ok_or(Errno::STALE)?)?;
                }
                if entries::get(&self.local.store, *dir, name)? != *is {
                    return Err(AttemptError::Changed);
                }
            }
            Precondition::Empty { fid } => {
                if let Some(by) = self.local.holds.emptying_intent(*fid, id) {
                    return Err(busy(by));
                }
                if self
                    .inode(*fid)?
                    .is_none_or(|inode| check_not_removed(inode).is_err())
                {
                    return Err(AttemptError::Changed);
                }
                if !entries::is_empty(&self.local.store, *fid)? {
                    return Err(Errno::NOTEMPTY.into());
                }
            }
            Precondition::Link { fid, time } => {
                let inode = self.inode(*fid)?.ok_or(Errno::NOENT)?;
                if inode.kind == Kind::Dir {
                    return Err(Errno::PERM.into());
                }
                if inode.nlink == 0 {
                    return Err(Errno::NOENT.into());
                }
                if inode.nlink >= LINK_MAX {
                    return Err(Errno::MLINK.into());
                }
                inode.nlink += 1;
                inode.ctime = *time;
            }
            Precondition::Make { fid, inode } => {
                self.inodes.insert(*fid, Inode::clone(inode));
            }
            Precondition::Name { fid, time } => {
                let may = self.local.inodes.linkable(*fid)? && self.local.files.is_open(*fid);
                let inode = self.inode(*fid)?.ok_or(Errno::NOENT)?;
                if inode.nlink > 0 {
                    return Err(AttemptError::Changed);
                }
                if !may {
                    return Err(Errno::NOENT.into());
                }
                inode.nlink = 1;
                inode.ctime = *time;
                self.local.inodes.delete_orphan(&mut self.batch, *fid);
                self.named.push(*fid);
            }
        }
        Ok(())
    }

    /// Makes once more what a precondition made, because a power cut took it back.
    pub fn remake(&mut self, precondition: &Precondition) {
        if let Precondition::Make { fid, inode } = precondition {
            self.inodes.insert(*fid, Inode::clone(inode));
        }
    }

    /// Takes back what a precondition made.
    pub fn undo(&mut self, precondition: &Precondition) -> Result<()> {
        match precondition {
            Precondition::Entry { .. } | Precondition::Empty { .. } => {}
            Precondition::Link { fid, time } => self.step(&IntentStep::Drop {
                fid: *fid,
                time: *time,
            })?,
            Precondition::Name { fid, time } => {
                self.linkable.insert(*fid);
                self.step(&IntentStep::Drop {
                    fid: *fid,
                    time: *time,
                })?;
            }
            Precondition::Make { fid, .. } => {
                self.inodes.remove(fid);
                self.local.inodes.delete(&mut self.batch, *fid);
            }
        }
        Ok(())
    }

    /// Does a step. An inode that is gone was removed by an operation that followed this one: nothing is left to do.
    pub fn step(&mut self, step: &IntentStep) -> Result<()> {
        match step {
            IntentStep::Entry { dir, name, to } => entries::set(&mut self.batch, *dir, name, *to),
            IntentStep::UpdateDirectory { dir, links, time } => {
                if let Some(inode) = self.inode(*dir)? {
                    inode.nlink = inode.nlink.saturating_add_signed(*links);
                    inode.mtime = *time;
                    inode.ctime = *time;
                }
            }
            IntentStep::Drop { fid, time } => {
                if let Some(inode) = self.inode(*fid)? {
                    inode.ctime = *time;
                    let last = inode.nlink == 1;
                    inode.nlink = inode.nlink.saturating_sub(1);
                    if last {
                        self.after.orphans.push(*fid);
                    }
                }
            }
            IntentStep::MarkDead { fid, time } => {
                if let Some(inode) = self.inode(*fid)? {
                    inode.nlink = 0;
                    inode.dead = true;
                    inode.ctime = *time;
                    self.orphan(*fid);
                    self.after.died.push(*fid);
                }
            }
            IntentStep::Moved { fid, parent, time } => {
                if let Some(inode) = self.inode(*fid)? {
                    inode.ctime = *time;
                    if let Some(parent) = parent {
                        inode.parent = *parent;
                    }
                }
            }
        }
        Ok(())
    }

    fn orphan(&mut self, fid: Fid) {
        let linkable = self.linkable.contains(&fid);
        self.local.inodes.put_orphan(&mut self.batch, fid, linkable);
    }

    /// Writes everything as one batch. The caller still has the locks, and does what follows once they are gone.
    pub fn apply_batch(mut self) -> Result<FollowUps> {
        let mut removals = Vec::new();
        for fid in std::mem::take(&mut self.after.orphans) {
            let nameless = self.inodes.get(&fid).filter(|inode| inode.nlink == 0);
            let removal = nameless.and_then(|inode| {
                let files = &self.local.files;
                files.remove_at_once(fid, inode, &mut self.batch)
            });
            match removal {
                Some(removal) => {
                    self.inodes.remove(&fid);
                    removals.push(removal);
                }
                None => {
                    self.orphan(fid);
                    self.after.orphans.push(fid);
                }
            }
        }
        for (fid, inode) in &self.inodes {
            self.local.inodes.put(&mut self.batch, *fid, inode);
        }
        self.local.apply(self.batch)?;
        for removal in removals {
            removal.batch_applied();
        }
        for fid in self.named {
            self.local.files.named(fid);
        }
        Ok(self.after)
    }
}
