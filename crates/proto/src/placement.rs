//! Placement: at which rank a member runs, and which member has which slices of a file. Pure arithmetic: every member
//! computes the same answer. Commits are planned with it, and checked with it by the owner.
use crate::Member;
use forebay_fabric::Rank;
use forebay_index::{Change, Extent, SLICE};
use std::collections::BTreeMap;

/// The rank at which a member runs: a service starts its members in order.
pub fn rank_of(member: Member) -> Rank {
    Rank::from(member)
}

/// The member that runs at a rank. A service has fewer members than numbers of 16 bits.
pub fn member_at(rank: Rank) -> Member {
    rank as Member
}

/// Which member owns which slice of a file: slice 0 the owner, then round robin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceMap {
    /// Number of members in the service, at least 1.
    pub members: u16,
}

impl SliceMap {
    /// The member that owns the extents of `offset` of a file whose attributes live at `owner`.
    pub fn member(&self, owner: Member, offset: u64) -> Member {
        let members = u64::from(self.members.max(1));
        // Less than `members`, so it fits 16 bits.
        ((u64::from(owner) + offset / SLICE) % members) as u16
    }
}

/// What a commit publishes to one member's slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitPart {
    /// The slice owner.
    pub member: Member,
    /// In order; later ones win.
    pub changes: Vec<Change>,
}

/// Splits the changes of one commit by the members whose slices they touch, each part in the order of `changes`.
///
/// - A put is cut at slice ends.
/// - A cut goes whole to every member with a slice inside it: a member stores extents of its own slices only, so the
///   rest of the cut does nothing there. A sparse file of many slices costs one change a member.
/// - A cut to `u64::MAX` (truncate) goes to members with slices below `old_size` (pass the larger of the published size
///   and the end of pending writes), and to every member that has any other part. Should the file have grown meanwhile
///   onto a member left out, the owner answers `Replan`: plan again.
pub fn split_by_member(
    map: SliceMap,
    owner: Member,
    changes: &[Change],
    old_size: u64,
) -> Vec<CommitPart> {
    let mut parts: BTreeMap<Member, Vec<Change>> = BTreeMap::new();
    for change in changes {
        let members = match *change {
            Change::Put(e) => touched(map, owner, e.offset, e.end()),
            Change::Cut {
                start,
                end: u64::MAX,
            } => touched(map, owner, start, old_size),
            Change::Cut { start, end } => touched(map, owner, start, end),
        };
        for member in members {
            parts.entry(member).or_default();
        }
    }
    for change in changes {
        match *change {
            Change::Put(e) => {
                for start in slices(e.offset, e.end()) {
                    let piece = e.clip(&(start..start.saturating_add(SLICE)));
                    let part = parts.entry(map.member(owner, start)).or_default();
                    part.extend(piece.map(Change::Put));
                }
            }
            Change::Cut { end: u64::MAX, .. } => {
                parts
                    .values_mut()
                    .for_each(|part| part.push(change.clone()));
            }
            Change::Cut { start, end } => {
                for member in touched(map, owner, start, end) {
                    parts.entry(member).or_default().push(change.clone());
                }
            }
        }
    }
    let part = |(member, changes)| CommitPart { member, changes };
    parts.into_iter().map(part).collect()
}

/// The members that own a slice overlapping `[start, end)`.
pub fn touched(map: SliceMap, owner: Member, start: u64, end: u64) -> Vec<Member> {
    // Round robin: after as many slices as members, every member was there.
    slices(start, end)
        .take(usize::from(map.members))
        .map(|s| map.member(owner, s))
        .collect()
}

/// Whether all puts lie inside slices of `member`, each in one slice.
pub fn belongs(map: SliceMap, owner: Member, member: Member, changes: &[Change]) -> bool {
    changes.iter().all(|change| match change {
        Change::Put(Extent { offset, len, .. }) => {
            *len > 0
                && len
                    .checked_add(*offset)
                    .is_some_and(|end| offset / SLICE == (end - 1) / SLICE)
                && map.member(owner, *offset) == member
        }
        Change::Cut { .. } => true,
    })
}

/// The starts of the slices that overlap `[start, end)`.
fn slices(start: u64, end: u64) -> impl Iterator<Item = u64> {
    let count = if start < end {
        (end - 1) / SLICE - start / SLICE + 1
    } else {
        0
    };
    (0..count).map(move |i| (start / SLICE + i) * SLICE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slices_go_round_from_the_owner() {
        let map = SliceMap { members: 4 };
        assert_eq!(map.member(2, 0), 2);
        assert_eq!(map.member(2, SLICE - 1), 2);
        assert_eq!(map.member(2, SLICE), 3);
        assert_eq!(map.member(2, 2 * SLICE), 0);
        assert!(map.member(3, u64::MAX) < 4);
    }

    fn any_change() -> impl Strategy<Value = Change> {
        let offset =
            (0..6u64, 0..3u64).prop_map(|(s, o)| s * SLICE + [0, 1, SLICE - 1][o as usize]);
        let range = (offset, 1..3 * SLICE);
        prop_oneof![
            3 => range.clone().prop_map(|(offset, len)| {
                Change::Put(Extent { offset, len, member: 9, log: 1, addr: offset, seq: 0 })
            }),
            1 => range.clone().prop_map(|(start, len)| Change::Cut { start, end: start + len }),
            1 => range.prop_map(|(start, _)| Change::Cut { start, end: u64::MAX }),
        ]
    }

    /// What a change means for one byte: `None` nothing, `Some(None)` a hole, `Some(Some(addr))` this log byte.
    fn effect(changes: &[Change], at: u64) -> Option<Option<u64>> {
        changes.iter().rev().find_map(|c| match *c {
            Change::Put(e) => {
                (e.offset <= at && at < e.end()).then(|| Some(e.addr + (at - e.offset)))
            }
            Change::Cut { start, end } => (start <= at && at < end).then_some(None),
        })
    }

    proptest! {
        #[test]
        fn each_byte_gets_from_its_member_what_the_whole_commit_says(
            members in 1..5u16, owner in 0..5u16, changes in prop::collection::vec(any_change(), 1..8),
        ) {
            let map = SliceMap { members };
            let owner = owner % members;
            let parts = split_by_member(map, owner, &changes, 10 * SLICE);
            for at in (0..10).flat_map(|s| [s * SLICE, s * SLICE + 1, (s + 1) * SLICE - 1]) {
                let member = map.member(owner, at);
                let part = parts.iter().find(|p| p.member == member);
                let got = part.and_then(|p| effect(&p.changes, at));
                prop_assert_eq!(got, effect(&changes, at), "at {}", at);
            }
            for part in &parts {
                prop_assert!(!part.changes.is_empty());
                prop_assert!(belongs(map, owner, part.member, &part.changes));
            }
        }
    }

    #[test]
    fn a_truncate_involves_only_members_below_the_old_size_and_those_with_other_parts() {
        let map = SliceMap { members: 4 };
        let cut = Change::Cut {
            start: 5,
            end: u64::MAX,
        };
        let members = |changes: &[Change], size| {
            split_by_member(map, 1, changes, size)
                .iter()
                .map(|p| p.member)
                .collect::<Vec<_>>()
        };
        assert_eq!(members(std::slice::from_ref(&cut), 100), vec![1]);
        assert_eq!(members(std::slice::from_ref(&cut), SLICE + 1), vec![1, 2]);
        assert_eq!(
            members(std::slice::from_ref(&cut), u64::MAX),
            vec![0, 1, 2, 3]
        );
        assert_eq!(members(std::slice::from_ref(&cut), 3), Vec::<Member>::new());
        let put = Change::Put(Extent {
            offset: 2 * SLICE,
            len: 1,
            member: 0,
            log: 0,
            addr: 0,
            seq: 0,
        });
        assert_eq!(members(&[cut.clone(), put.clone()], 100), vec![1, 3]);
        assert_eq!(
            split_by_member(map, 1, &[cut.clone(), put.clone()], 100)[1].changes,
            vec![cut, put]
        );
    }
}
