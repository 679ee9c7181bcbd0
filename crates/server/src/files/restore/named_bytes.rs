//! The bytes that members' indexes name in a range of a file now, and which of these can be read.
use crate::files::context::MemberContext;
use crate::files::reader::ContentReader;
use crate::{Error, Fid, Member, Result};
use forebay_index::{Extent, MAX_EXTENT};
use forebay_proto::data::VerifyRanges;
use forebay_proto::files::GetExtents;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Extents asked for at once.
const PAGE: u32 = 1024;

/// See the head of this file.
pub(in super::super) struct NamedBytes {
    pub context: Arc<MemberContext>,
    pub reader: Arc<ContentReader>,
}

impl NamedBytes {
    /// What this member's index names, in pieces; nothing of a file that is removed.
    pub fn named_at_this_member(&self, fid: Fid, range: Range<u64>) -> Result<Vec<Extent>> {
        match self.at(self.context.member(), fid, range) {
            Err(Error::Posix(Errno::STALE)) => Ok(Vec::new()),
            found => Ok(found?.0),
        }
    }

    /// What a member's index names, in pieces, and the last sequence that is published there.
    pub fn at(&self, member: Member, fid: Fid, range: Range<u64>) -> Result<(Vec<Extent>, u64)> {
        let mut all = Vec::new();
        let published = self.pages(member, fid, range, |page| all.extend_from_slice(page))?;
        Ok((all, published))
    }

    /// Hands `each` what a member's index names, a page at a time; answers the last sequence that is published there.
    pub fn pages(
        &self,
        member: Member,
        fid: Fid,
        range: Range<u64>,
        mut each: impl FnMut(&[Extent]),
    ) -> Result<u64> {
        let mut from = range.start;
        loop {
            let reply = match member == self.context.member() {
                true => self.reader.extents(fid, from, range.end, PAGE)?,
                false => {
                    let request = GetExtents {
                        fid,
                        start: from,
                        end: range.end,
                        limit: PAGE,
                    };
                    self.context.peers.call(member, request)?
                }
            };
            let page: Vec<Extent> = reply
                .extents
                .iter()
                .filter_map(|e| e.clip(&range))
                .collect();
            each(&page);
            match reply.extents.last() {
                Some(last) if reply.more && last.end() > from => from = last.end(),
                _ => return Ok(reply.published),
            }
        }
    }

    /// Which of these cannot be read.
    pub fn unreadable(&self, extents: &[Extent]) -> Result<Vec<Extent>> {
        let mut members: BTreeMap<_, Vec<Extent>> = BTreeMap::new();
        for extent in extents {
            debug_assert!(extent.len <= MAX_EXTENT);
            members.entry(extent.member).or_default().push(*extent);
        }
        let mut lost = Vec::new();
        for (member, extents) in members {
            let ranges = extents.iter().map(|e| (e.log, e.addr, e.len)).collect();
            let readable = self.context.peers.call(member, VerifyRanges { ranges })?;
            if readable.len() != extents.len() {
                return Err(Error::Peer {
                    member,
                    reason: format!(
                        "was asked about {} log ranges, and answered about {}",
                        extents.len(),
                        readable.len()
                    ),
                });
            }
            let pairs = extents.into_iter().zip(readable);
            lost.extend(pairs.filter(|(_, whole)| !whole).map(|(e, _)| e));
        }
        lost.sort_unstable_by_key(|e| e.offset);
        Ok(lost)
    }
}
