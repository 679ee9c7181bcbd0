//! Which log addresses a file names: what a member that was cut off asks, to know which bytes of its unfinished logs are in use.
//!
//! Of a pattern all addresses are named, as one range a term, however many extents it stands for. Those that were given back are gone,
//! and naming them once more does not bring them back.
use super::Shared;
use super::patterns::LogRanges;
use super::proto::FilesReply;
use crate::{Error, Fid, Layout, Member, Result};
use forebay_index::Extent;
use forebay_pattern::Source;

/// Extents looked at for one answer.
const PAGE: usize = 64 << 10;

impl Shared {
    pub(super) fn named(&self, fid: Fid, member: Member, from: u64) -> Result<FilesReply> {
        for id in self.staged.of(fid) {
            self.resolve(id, false)?;
        }
        let mut named = LogRanges::default();
        if fid.owner() == self.member() && from == 0 {
            let _inode = self.inodes.lock(fid);
            if self.inodes.get(fid)?.layout == Layout::Patterned {
                let table = self.table(fid)?;
                if let Some(lost) = table.lost() {
                    return Err(Error::Corrupt(lost.into()));
                }
                table.name(&mut named);
            }
        }
        let extents = self.index.get(fid.0, from..u64::MAX, PAGE)?;
        for e in &extents {
            let source = Source {
                member: e.member,
                log: e.log,
            };
            named.add(source, e.addr..e.addr.saturating_add(e.len));
        }
        let of_member = named.sorted().extents().into_iter();
        let ranges = of_member
            .filter(|e| e.member == member)
            .map(|e| (e.log, e.addr, e.addr + e.len));
        let full = extents.len() == PAGE;
        Ok(FilesReply::Named {
            ranges: ranges.collect(),
            next: extents.last().filter(|_| full).map(Extent::end),
        })
    }
}
