//! The locks held on one file in one `LockSpace` (byte ranges, or whole files): for each owner, ranges that do not overlap.
//!
//! Invariants: ranges of one owner never overlap, never touch with the same mode, and are never empty; no exclusive range
//! of one owner overlaps any range of another (the caller asks for conflicts before it sets).
use crate::Member;
use forebay_pattern::{RangeMap, RangeValue};
use forebay_proto::locks::{HeldLock, LockMode, LockOwner};
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RangeLock {
    mode: LockMode,
    pid: u32,
}

impl RangeValue for RangeLock {}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct LockTable {
    owners: BTreeMap<LockOwner, RangeMap<RangeLock>>,
}

impl LockTable {
    /// Locks `range` for `owner` in this mode, whatever it held there before.
    pub fn set(&mut self, owner: LockOwner, range: Range<u64>, mode: LockMode, pid: u32) {
        if range.is_empty() {
            return;
        }
        let locked = self.owners.entry(owner).or_default();
        // What it touches with the same mode becomes one with it.
        let touched = range.start.saturating_sub(1)..range.end.saturating_add(1);
        let same = locked.overlapping(touched).filter(|(_, l)| l.mode == mode);
        let joined = same.fold(range, |all, (same, _)| {
            all.start.min(same.start)..all.end.max(same.end)
        });
        locked.insert(joined, RangeLock { mode, pid });
    }

    /// Unlocks `range` for `owner`. True if something of it was locked.
    pub fn clear(&mut self, owner: LockOwner, range: Range<u64>) -> bool {
        let mut any = false;
        if let Some(locked) = self.owners.get_mut(&owner) {
            locked.remove(range, |_, _| any = true);
            if locked.is_empty() {
                self.owners.remove(&owner);
            }
        }
        any
    }

    /// The lowest lock of each other owner that keeps `owner` from locking `range` in this mode.
    pub fn conflicts<'a>(
        &'a self,
        owner: LockOwner,
        range: &'a Range<u64>,
        mode: LockMode,
    ) -> impl Iterator<Item = HeldLock> + 'a {
        let others = self
            .owners
            .iter()
            .filter(move |(other, _)| **other != owner);
        others.filter_map(move |(other, locked)| {
            let mut locked = locked.overlapping(range.clone());
            let found = locked.find(|(_, lock)| [mode, lock.mode].contains(&LockMode::Exclusive));
            found.map(|(range, lock)| held(*other, range, lock))
        })
    }

    /// The mode in which `owner` holds the byte.
    pub fn mode(&self, owner: LockOwner, byte: u64) -> Option<LockMode> {
        let (lock, _) = self.owners.get(&owner)?.segment(byte);
        lock.map(|lock| lock.mode)
    }

    /// Drops all that the owners of a member hold. True if that was something.
    pub fn drop_member(&mut self, member: Member) -> bool {
        let before = self.owners.len();
        self.owners.retain(|owner, _| owner.member != member);
        self.owners.len() < before
    }

    /// Whether nothing is locked.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Everything held, by owner and place.
    pub fn all(&self) -> impl Iterator<Item = HeldLock> + '_ {
        self.owners.iter().flat_map(|(owner, locked)| {
            let locked = locked.iter();
            locked.map(move |(range, lock)| held(*owner, range, lock))
        })
    }
}

fn held(owner: LockOwner, range: Range<u64>, lock: RangeLock) -> HeldLock {
    HeldLock {
        owner,
        range,
        mode: lock.mode,
        pid: lock.pid,
    }
}
