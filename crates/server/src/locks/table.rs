//! The locks held on one file in one space: for each owner, ranges that do not overlap.
//!
//! Invariants: ranges of one owner never overlap, never touch with the same mode, and are never empty; no exclusive range
//! of one owner overlaps any range of another (the caller asks for conflicts before it sets).
use crate::Member;
use forebay_proto::locks::{HeldLock, LockMode, LockOwner};
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LockedRange {
    end: u64,
    mode: LockMode,
    pid: u32,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct LockTable {
    /// By owner, then by first byte.
    owners: BTreeMap<LockOwner, BTreeMap<u64, LockedRange>>,
}

impl LockTable {
    /// Locks `range` for `owner` in this mode, whatever it held there before.
    pub fn set(&mut self, owner: LockOwner, range: Range<u64>, mode: LockMode, pid: u32) {
        if range.is_empty() {
            return;
        }
        self.clear(owner, range.clone());
        let pieces = self.owners.entry(owner).or_default();
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&at, left)) = pieces.range(..start).next_back()
            && (left.end, left.mode) == (start, mode)
        {
            start = at;
        }
        if let Some(right) = pieces.get(&end).filter(|right| right.mode == mode).copied() {
            pieces.remove(&end);
            end = right.end;
        }
        pieces.insert(start, LockedRange { end, mode, pid });
    }

    /// Unlocks `range` for `owner`. True if something of it was locked.
    pub fn clear(&mut self, owner: LockOwner, range: Range<u64>) -> bool {
        let Some(pieces) = self.owners.get_mut(&owner) else {
            return false;
        };
        let first = match pieces.range(..range.start).next_back() {
            Some((&at, piece)) if piece.end > range.start => at,
            _ => range.start,
        };
        let hit: Vec<(u64, LockedRange)> = pieces
            .range(first..range.end.max(first))
            .map(|(at, piece)| (*at, *piece))
            .collect();
        for (at, piece) in &hit {
            pieces.remove(at);
            if *at < range.start {
                let end = range.start;
                pieces.insert(*at, LockedRange { end, ..*piece });
            }
            if piece.end > range.end {
                pieces.insert(range.end, *piece);
            }
        }
        if pieces.is_empty() {
            self.owners.remove(&owner);
        }
        !hit.is_empty()
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
        others.filter_map(move |(other, pieces)| {
            let left = pieces.range(..range.start).next_back();
            let found = left
                .filter(|(_, piece)| piece.end > range.start)
                .into_iter()
                .chain(pieces.range(range.start..range.end.max(range.start)))
                .find(|(_, piece)| {
                    mode == LockMode::Exclusive || piece.mode == LockMode::Exclusive
                });
            found.map(|(at, piece)| held(*other, *at, piece))
        })
    }

    /// The mode in which `owner` holds the byte.
    pub fn mode(&self, owner: LockOwner, byte: u64) -> Option<LockMode> {
        let (_, piece) = self.owners.get(&owner)?.range(..=byte).next_back()?;
        (piece.end > byte).then_some(piece.mode)
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
        self.owners.iter().flat_map(|(owner, pieces)| {
            pieces
                .iter()
                .map(move |(at, piece)| held(*owner, *at, piece))
        })
    }
}

fn held(owner: LockOwner, at: u64, piece: &LockedRange) -> HeldLock {
    HeldLock {
        owner,
        range: at..piece.end,
        mode: piece.mode,
        pid: piece.pid,
    }
}
