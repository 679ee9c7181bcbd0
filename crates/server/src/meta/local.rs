//! The namespace records of this member: its inodes, and the entries and attributes under them. All that can be done
//! without asking another member; operations and intents stand on it.
//!
//! # Invariants
//! 1. Every batch of the namespace goes through `apply`.
//! 2. What follows an applied batch (`FollowUps`) is done after its inode locks are released.
use super::holds::EntryHolds;
use super::{entries, names};
use crate::files::FilesHook;
use crate::inodes::{Inode, Inodes};
use crate::{DirEntry, Error, Fid, Kind, Member, Result, Time};
use forebay_proto::intents::{EntryTarget, Precondition};
use forebay_storage::{Batch, Store};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;

/// Dead directories remembered, so that processes inside them still get answers.
const DEAD_DIRECTORIES: usize = 1024;
/// Most entries of one page.
const PAGE: u32 = 10_000;

/// See the head of this file.
pub(crate) struct LocalNamespace {
    pub store: Arc<Store>,
    pub inodes: Arc<Inodes>,
    pub files: Arc<dyn FilesHook>,
    pub holds: EntryHolds,
    member: Member,
    dead: Mutex<VecDeque<Fid>>,
    pub(super) clock: fn() -> Time,
    /// Tests only: called before every batch; an error means that the member crashed just before it.
    #[cfg(test)]
    pub(super) cut: Arc<dyn Fn() -> Result<()> + Send + Sync>,
}

/// What follows a landed batch, outside all locks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FollowUps {
    /// Files without a name.
    pub orphans: Vec<Fid>,
    /// Directories that died.
    pub died: Vec<Fid>,
}

impl LocalNamespace {
    pub fn new(
        store: Arc<Store>,
        inodes: Arc<Inodes>,
        member: Member,
        files: Arc<dyn FilesHook>,
    ) -> LocalNamespace {
        LocalNamespace {
            store,
            inodes,
            files,
            holds: EntryHolds::default(),
            member,
            dead: Mutex::default(),
            clock: Time::now,
            #[cfg(test)]
            cut: Arc::new(|| Ok(())),
        }
    }

    /// This member.
    pub fn member(&self) -> Member {
        self.member
    }

    pub fn now(&self) -> Time {
        (self.clock)()
    }

    pub fn apply(&self, batch: Batch) -> Result<()> {
        #[cfg(test)]
        (self.cut)()?;
        Ok(self.store.apply(batch)?)
    }

    /// The locks of all inodes that these name.
    pub fn lock_guards(&self, preconditions: &[Precondition]) -> Vec<MutexGuard<'_, ()>> {
        self.inodes
            .lock_many(preconditions.iter().map(Precondition::guard))
    }

    /// Does what follows a landed batch. The caller has no locks.
    pub fn follow_up(&self, after: FollowUps) {
        for fid in after.orphans {
            self.files.orphaned(fid);
        }
        for fid in after.died {
            let mut dead = self.dead.lock();
            dead.push_back(fid);
            let oldest = if dead.len() > DEAD_DIRECTORIES {
                dead.pop_front()
            } else {
                None
            };
            drop(dead);
            if let Some(oldest) = oldest {
                // What cannot be removed now is removed at the next start.
                if let Err(e) = self.remove_dead(oldest) {
                    tracing::warn!("dead directory {oldest:#x} stays until the next start: {e}");
                }
            }
        }
    }

    /// Removes the record of a dead directory.
    pub fn remove_dead(&self, fid: Fid) -> Result<()> {
        let _lock = self.inodes.lock(fid);
        let mut batch = Batch::new();
        self.inodes.remove(&mut batch, fid)?;
        self.apply(batch)
    }

    /// A directory of this member that entries can be made in.
    pub fn directory(&self, fid: Fid) -> Result<Inode> {
        let inode = self.inodes.get(fid)?;
        check_not_removed(&inode)?;
        Ok(inode)
    }

    /// What a name in a directory of this member names.
    pub fn get_entry(&self, dir: Fid, name: &[u8]) -> Result<EntryTarget> {
        names::check(name)?;
        match entries::get(&self.store, dir, name)? {
            Some(entry) => Ok(entry),
            None => self.directory(dir).and(Err(Errno::NOENT.into())),
        }
    }

    /// A page of a directory.
    pub fn readdir(&self, fid: Fid, after: Option<&[u8]>, limit: u32) -> Result<Vec<DirEntry>> {
        match self.directory(fid) {
            // A dead directory has no entries, and can still be listed by who is in it.
            Err(Error::Posix(Errno::NOENT)) => Ok(Vec::new()),
            Err(e) => Err(e),
            Ok(_) => entries::list(&self.store, fid, after, limit.min(PAGE) as usize),
        }
    }
}

/// Refuses an inode that entries cannot be made in.
pub(crate) fn check_not_removed(inode: &Inode) -> Result<()> {
    match (inode.kind, inode.dead) {
        (Kind::Dir, false) => Ok(()),
        (Kind::Dir, true) => Err(Errno::NOENT.into()),
        _ => Err(Errno::NOTDIR.into()),
    }
}
