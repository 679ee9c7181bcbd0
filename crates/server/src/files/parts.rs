//! Which member gets which changes of a commit. Pure; the delegate plans with it, the owner checks with it.
use super::proto::Part;
use crate::Member;
use forebay_index::{Change, Extent, RangeMap, SLICE};

/// Splits the changes of one commit by the members whose slices they touch, each part in the order of `changes`.
///
/// - A put is cut at slice ends.
/// - A cut goes whole to every member with a slice inside it: a member stores extents of its own slices only, so the
///   rest of the cut does nothing there. A sparse file of many slices costs one change a member.
/// - A cut to `u64::MAX` (truncate) stays that long, and also goes to every member that has any other part. It is sent
///   to members with slices below `old_size`: pass the larger of the published size and the end of pending writes.
///   Should the file have grown meanwhile onto a member left out, the owner answers `Stale`: plan again.
pub fn parts(map: RangeMap, owner: Member, changes: &[Change], old_size: u64) -> Vec<Part> {
    let mut members: Vec<Member> = Vec::new();
    let mut involve = |m: Member| {
        if !members.contains(&m) {
            members.push(m);
        }
    };
    for change in changes {
        match *change {
            Change::Put(e) => slices(e.offset, e.end())
                .take(usize::from(map.members))
                .for_each(|s| involve(map.member(owner, s))),
            Change::Cut { start, end } => touched(map, owner, start, end.min(old_size))
                .into_iter()
                .for_each(&mut involve),
        }
    }
    members.sort_unstable();
    let part = |member| Part {
        member,
        changes: changes
            .iter()
            .flat_map(|c| share(map, owner, member, c))
            .collect(),
    };
    members.into_iter().map(part).collect()
}

/// What of `change` member `member` applies.
fn share(map: RangeMap, owner: Member, member: Member, change: &Change) -> Vec<Change> {
    match *change {
        Change::Put(e) => slices(e.offset, e.end())
            .filter(|s| map.member(owner, *s) == member)
            .filter_map(|s| e.clip(&(s..s.saturating_add(SLICE))))
            .map(Change::Put)
            .collect(),
        Change::Cut { end: u64::MAX, .. } => vec![change.clone()],
        Change::Cut { start, end } if touched(map, owner, start, end).contains(&member) => {
            vec![change.clone()]
        }
        Change::Cut { .. } => Vec::new(),
    }
}

/// The members that own a slice overlapping `[start, end)`.
pub(super) fn touched(map: RangeMap, owner: Member, start: u64, end: u64) -> Vec<Member> {
    // Round robin: after as many slices as members, every member was there.
    slices(start, end)
        .take(usize::from(map.members))
        .map(|s| map.member(owner, s))
        .collect()
}

/// Whether all puts lie inside slices of `member`, each in one slice.
pub(super) fn belongs(map: RangeMap, owner: Member, member: Member, changes: &[Change]) -> bool {
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
