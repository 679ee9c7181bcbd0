//! Which members store the bytes of files: for those who want to work where the bytes are.
use super::Delegate;
use super::intervals::Source;
use super::windows::PAGE;
use crate::{ExtentLayout, Fid, Member, Result};
use forebay_index::SLICE;
use forebay_proto::files::{ExtentsReply, FileSurvey, SurveyFiles};
use forebay_proto::placement::SliceMap;
use std::collections::BTreeMap;
use std::ops::Range;

impl Delegate {
    /// Attributes and holders of many objects, in the order given, with one request a member that owns any of them; `None`: it
    /// was removed. As with `holders`, what is only pending counts nowhere, and it is a hint.
    ///
    /// # Errors
    /// `EIO` if a member cannot answer.
    pub fn survey(&self, fids: &[Fid]) -> Result<Vec<Option<FileSurvey>>> {
        let _at = self.counters.other();
        let mut by_owner = BTreeMap::<Member, Vec<usize>>::new();
        for (n, fid) in fids.iter().enumerate() {
            by_owner.entry(fid.owner()).or_default().push(n);
        }
        let mut all = vec![None; fids.len()];
        for (owner, places) in by_owner {
            let fids = places.iter().map(|n| fids[*n]).collect();
            let found = self.node.peers.call(owner, SurveyFiles { fids })?;
            for (n, mut survey) in places.into_iter().zip(found) {
                if let Some(survey) = &mut survey {
                    let seen = survey.attr.ctime;
                    survey.attr = self.shown(survey.attr.clone());
                    // This node knows of a later change: what the owner said of attributes may be from before it.
                    survey.xattrs |= survey.attr.ctime != seen;
                }
                all[n] = survey;
            }
        }
        Ok(all)
    }

    /// Committed bytes of `range` by the member that stores them. Holes, and what is only pending, count nowhere. It is a
    /// hint: the file may change at any moment.
    ///
    /// # Errors
    /// `ESTALE` if it was removed; `EIO` if a member cannot answer.
    pub fn holders(&self, fid: Fid, range: Range<u64>) -> Result<BTreeMap<Member, u64>> {
        let mut held = BTreeMap::new();
        if self.node.peers.members() > 1
            && self.views.ask_attr(fid)?.layout == ExtentLayout::Patterned
        {
            self.extents.walk(fid, range, &mut |piece, source| {
                if let Source::Log { member, .. } = source {
                    *held.entry(member).or_default() += piece.end - piece.start;
                }
            })?;
            return Ok(held);
        }
        let map = SliceMap {
            members: self.node.peers.members(),
        };
        let mut from = range.start;
        while from < range.end {
            let end = (from / SLICE + 1).saturating_mul(SLICE).min(range.end);
            let member = map.member(fid.owner(), from);
            let ExtentsReply { extents, more, .. } =
                self.extents.ask_member(fid, member, from..end, PAGE)?;
            for extent in extents.iter().filter_map(|e| e.clip(&(from..end))) {
                *held.entry(extent.member).or_default() += extent.len;
            }
            from = match extents.last() {
                Some(last) if more => last.end(),
                _ => end,
            };
        }
        Ok(held)
    }
}
