//! The lock owners of this node that may hold locks, by file, and the handles through which they took them.
//!
//! A POSIX lock ends when its process closes any descriptor of the file; the kernel then sends the owner's number. The locks of an
//! open file (`flock`, OFD) end with its handle, and there the kernel does not always send the owner's number. So the handles are
//! remembered. An owner that took locks through one handle only has none left once that is closed, whatever the kind.
use super::handles::Handle;
use crate::{Fid, Member};
use forebay_proto::locks::LockSpace;
use std::collections::{BTreeMap, BTreeSet};

/// A file, the kind of lock, and the owner's number.
pub type LockKey = (Fid, LockSpace, u64);

/// What is known of one owner on one file.
#[derive(Debug, Default)]
pub struct LockOwnerState {
    handles: BTreeSet<Handle>,
    /// Which incarnation of the manager granted its locks; `None`: none has yet.
    incarnation: Option<u64>,
    lost: bool,
}

impl LockOwnerState {
    /// Whether what it held is still held, now that this incarnation has answered.
    pub fn is_still_held(&self, incarnation: u64) -> bool {
        self.incarnation.is_none_or(|before| before == incarnation) && !self.lost
    }
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct LockOwners {
    holders: BTreeMap<LockKey, LockOwnerState>,
    lock_managers: BTreeSet<Member>,
}

impl LockOwners {
    /// The owner is about to ask for a lock through this handle.
    pub fn add(&mut self, key: LockKey, handle: Handle) {
        self.lock_managers.insert(key.0.owner());
        self.holders.entry(key).or_default().handles.insert(handle);
    }

    /// The manager has answered for this owner; false if its locks were lost before.
    pub fn granted(&mut self, key: LockKey, incarnation: u64) -> bool {
        let Some(holder) = self.holders.get_mut(&key) else {
            return true;
        };
        let same = holder.is_still_held(incarnation);
        holder.incarnation = Some(incarnation);
        same
    }

    /// A request was denied: an owner without any lock is forgotten.
    pub fn denied(&mut self, key: LockKey) {
        if self
            .holders
            .get(&key)
            .is_some_and(|h| h.incarnation.is_none())
        {
            self.holders.remove(&key);
        }
    }

    /// Whether the owner may hold locks on the file.
    pub fn known(&self, key: &LockKey) -> bool {
        self.holders.contains_key(key)
    }

    /// It holds none any more.
    pub fn forget(&mut self, key: LockKey) -> Option<LockOwnerState> {
        self.holders.remove(&key)
    }

    /// A handle of the file is closed: the owners that used no other.
    pub fn closed(&mut self, fid: Fid, handle: Handle) -> Vec<LockKey> {
        let mut gone = Vec::new();
        let of_file = (fid, LockSpace::Record, 0)..=(fid, LockSpace::Flock, u64::MAX);
        for (key, holder) in self.holders.range_mut(of_file) {
            if holder.handles.remove(&handle) && holder.handles.is_empty() {
                gone.push(*key);
            }
        }
        gone
    }

    /// All that was held at this member is lost.
    pub fn lost(&mut self, member: Member) {
        let there = self
            .holders
            .iter_mut()
            .filter(|(k, _)| k.0.owner() == member);
        there.for_each(|(_, holder)| holder.lost |= holder.incarnation.is_some());
    }

    /// Members that were asked for locks.
    pub fn lock_managers(&self) -> Vec<Member> {
        self.lock_managers.iter().copied().collect()
    }
}
