//! Planning a commit: what a layer sends to whom, by the layout of the file.
//!
//! | layout | puts | cuts (truncates, holes) |
//! |---|---|---|
//! | `OwnerOnly` | folded; if no pattern is worth it, by slices | at the owner; and where puts are staged |
//! | `BySlice` | by slices | every member with a slice inside |
//! | `Patterned` | folded, the rest as they are, all at the owner | at the owner |
//!
//! A view may be old: the owner answers `Replan` to a plan for another layout that it cannot take.
use super::folding::fold;
use super::pending::PendingLayer;
use crate::{ExtentLayout, Member, Time};
use forebay_index::Change;
use forebay_proto::files::CommitAttr;
use forebay_proto::placement::CommitPart;
use forebay_proto::placement::{SliceMap, split_by_member};

/// A commit on its way: what was sent, so that it can be sent again as it was (but a time or mode that
/// is set explicitly meanwhile is taken out of it).
#[derive(Debug, Clone)]
pub struct CommitAttempt {
    /// The layer it publishes.
    pub layer: PendingLayer,
    /// Names it; the owner answers a retry as it answered the first time.
    pub token: u64,
    /// The owner's changes.
    pub own: Vec<Change>,
    /// Encoded patterns, in place of changes.
    pub patterns: Vec<u8>,
    /// Extents that the patterns stand for.
    pub records: u64,
    /// The other members' changes.
    pub staged: Vec<CommitPart>,
    /// What it says of the attributes.
    pub attr: CommitAttr,
}

/// A truncate in a commit: sets the file's length.
#[derive(Debug, Clone, Copy)]
pub struct FileCut {
    /// Bytes.
    pub size: u64,
    /// When. `None`: the file keeps the time that it has, with what is pending.
    pub mtime: Option<Time>,
}

/// What a plan depends on, beside layer and view.
pub struct CommitPlanner {
    /// Slices to members.
    pub map: SliceMap,
    /// Of the file.
    pub owner: Member,
    /// Names the commit.
    pub token: u64,
    /// Whether rows of puts become patterns.
    pub patterns: bool,
}

impl CommitPlanner {
    /// What a layer, cut at `cut`, sends to whom. `size`: as this node sees the file.
    pub fn attempt(
        &self,
        layer: PendingLayer,
        cut: Option<FileCut>,
        size: u64,
        layout: ExtentLayout,
    ) -> CommitAttempt {
        let mut changes = layer.changes(cut.map_or(u64::MAX, |cut| cut.size));
        let mut attr = layer.attr.clone();
        let (mut patterns, mut records) = (Vec::new(), 0);
        if self.patterns && layout != ExtentLayout::BySlice {
            let folded = fold(changes);
            (changes, patterns, records) = (folded.changes, folded.patterns, folded.records);
        }
        if let Some(cut) = cut {
            changes.push(Change::Cut {
                start: cut.size,
                end: u64::MAX,
            });
            attr = CommitAttr {
                end: None,
                size: Some(cut.size),
                mtime: cut.mtime.or(attr.mtime),
                ..attr
            };
        }
        let together = layout == ExtentLayout::Patterned || !patterns.is_empty();
        let (own, staged) = match together {
            true => (changes, Vec::new()),
            false => self.by_slices(changes, size, layout),
        };
        CommitAttempt {
            layer,
            token: self.token,
            own,
            patterns,
            records,
            staged,
            attr,
        }
    }

    /// The owner's part, and those of others.
    fn by_slices(
        &self,
        changes: Vec<Change>,
        size: u64,
        layout: ExtentLayout,
    ) -> (Vec<Change>, Vec<CommitPart>) {
        let mut staged = split_by_member(self.map, self.owner, &changes, size);
        let own = staged.iter().position(|part| part.member == self.owner);
        let mut own = own.map_or(Vec::new(), |i| staged.swap_remove(i).changes);
        let is_put = |change: &Change| matches!(change, Change::Put(_));
        if layout == ExtentLayout::OwnerOnly && !staged.iter().any(|p| p.changes.iter().any(is_put))
        {
            // Nobody else has anything to cut. The owner gets all cuts: should there be patterns by now, they cut those.
            own.retain(is_put);
            own.extend(changes.into_iter().filter(|change| !is_put(change)));
            staged.clear();
        }
        (own, staged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delegate::intervals::{ByteSource, Intervals};
    use forebay_index::SLICE;
    use proptest::prelude::*;

    /// Puts and holes in rows: start, count, length, stride, whether it is a hole.
    fn rows() -> impl Strategy<Value = Vec<(u64, u64, u64, u64, bool)>> {
        let start = prop_oneof![
            0..9000u64,
            SLICE - 5000..SLICE + 100,
            2 * SLICE..2 * SLICE + 100
        ];
        prop::collection::vec(
            (
                start,
                1..40u64,
                1..300u64,
                0..700u64,
                prop::bool::weighted(0.2),
            ),
            0..6,
        )
    }

    proptest! {
        #[test]
        fn the_parts_together_say_what_the_layer_says(
            rows in rows(), layout in 0..3usize, cut in prop::option::of(0..9000u64), patterns: bool, members in 1..4u16,
        ) {
            let mut layer = PendingLayer::default();
            let mut addr = 0;
            for (start, count, len, stride, hole) in rows {
                for k in 0..count {
                    let source = match hole {
                        true => ByteSource::Hole,
                        false => ByteSource::Log { member: 1, log: 5, addr },
                    };
                    addr += len;
                    layer.put(start + k * stride..start + k * stride + len, source);
                }
            }
            let layout = [ExtentLayout::OwnerOnly, ExtentLayout::BySlice, ExtentLayout::Patterned][layout];
            let planner = CommitPlanner { map: SliceMap { members }, owner: 0, token: 7, patterns };
            let file_cut = cut.map(|size| FileCut { size, mtime: None });
            let attempt = planner.attempt(layer.clone(), file_cut, 3 * SLICE, layout);
            let mut got = Intervals::default();
            let mut put = |range: std::ops::Range<u64>, source| {
                let mut twice = false;
                got.insert(range, source, |_, s| twice |= source != ByteSource::Hole || s != ByteSource::Hole);
                prop_assert!(!twice);
                Ok(())
            };
            let staged = attempt.staged.iter().flat_map(|part| &part.changes);
            for change in attempt.own.iter().chain(staged) {
                match change {
                    Change::Put(e) => put(e.offset..e.end(), ByteSource::Log { member: e.member, log: e.log, addr: e.addr })?,
                    Change::Cut { start, end } => put(*start..*end, ByteSource::Hole)?,
                }
            }
            let (found, lost) = forebay_pattern::decode_all(&attempt.patterns);
            prop_assert!(lost.is_empty());
            for segment in &found.segments {
                for e in segment.pattern.iter() {
                    let (member, log) = (segment.source.member, segment.source.log);
                    put(e.offset..e.offset + e.len, ByteSource::Log { member, log, addr: e.addr })?;
                }
            }
            let mut want = Intervals::default();
            for (range, source) in layer.intervals.get(0..cut.unwrap_or(u64::MAX)) {
                want.insert(range, source, |_, _| ());
            }
            if let Some(size) = cut {
                want.insert(size..u64::MAX, ByteSource::Hole, |_, _| ());
            }
            let all = |i: &Intervals| i.iter().collect::<Vec<_>>();
            prop_assert_eq!(all(&got), all(&want));
            prop_assert!(patterns || attempt.patterns.is_empty());
            match layout {
                ExtentLayout::Patterned => prop_assert!(attempt.staged.is_empty()),
                ExtentLayout::BySlice => prop_assert!(attempt.patterns.is_empty()),
                ExtentLayout::OwnerOnly => prop_assert!(attempt.staged.is_empty() || attempt.patterns.is_empty()),
            }
        }
    }
}
