//! Which members store the bytes of a file: for those who want to work where the bytes are.
use super::{Delegate, expect_reply};
use crate::files::proto::{FilesReply, FilesRequest};
use crate::{Fid, Member, Result};
use forebay_index::{RangeMap, SLICE};
use std::collections::BTreeMap;
use std::ops::Range;

/// Most extents in one answer.
const PAGE: u32 = 4096;

impl Delegate {
    /// Committed bytes of `range` by the member that stores them. Holes, and what is only pending, count nowhere. It is a
    /// hint: the file may change at any moment.
    ///
    /// # Errors
    /// `ESTALE` if it was removed; `EIO` if a member cannot answer.
    pub fn holders(&self, fid: Fid, range: Range<u64>) -> Result<BTreeMap<Member, u64>> {
        let map = RangeMap {
            members: self.members(),
        };
        let mut held = BTreeMap::new();
        let mut from = range.start;
        while from < range.end {
            let end = (from / SLICE + 1).saturating_mul(SLICE).min(range.end);
            let member = map.member(fid.owner(), from);
            let request = FilesRequest::Extents {
                fid,
                start: from,
                end,
                limit: PAGE,
            };
            let reply = self.node.peers.files(member, request);
            let (extents, more) = expect_reply!(member, reply,
                FilesReply::Extents { extents, more, .. } => (extents, more))?;
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
