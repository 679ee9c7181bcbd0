//! Resolves a file with patterns for readers: to extents of a range, or to all patterns at once.
//!
//! Both are read under the inode's lock, so that index, patterns and sequence are of one moment.
use super::store::PatternStore;
use super::table::{OffsetContent, PatternTable};
use crate::inodes::Inode;
use crate::{Fid, LOST_LOG, Result};
use forebay_data::ranges::merge;
use forebay_index::Extent;
use forebay_proto::files::PatternsReply;
use std::ops::Range;

/// Extents of the index looked at for the ranges that it has any in; after them it may have more anywhere.
const RESIDUAL_EXTENTS: usize = 4096;
/// Ranges named to a reader.
const RESIDUAL_RANGES: usize = 64;

impl PatternStore {
    /// Extents of a range as they are seen, at most `limit`, and whether there may be more. The caller has the inode's lock.
    pub(in super::super) fn extents(
        &self,
        fid: Fid,
        inode: &Inode,
        range: Range<u64>,
        limit: usize,
    ) -> Result<(Vec<Extent>, bool)> {
        let table = self.table(fid)?;
        let mut seen = ExtentResolver {
            table: &table,
            // What is after the end was never written, even if that cannot be read.
            end: range.end.min(inode.size.max(table.map().end())),
            out: Vec::new(),
            limit,
            lost: Extent {
                offset: 0,
                len: 0,
                member: self.context.member(),
                log: LOST_LOG,
                addr: 0,
                seq: inode.seq,
            },
        };
        let mut at = range.start;
        loop {
            let page = self.slices.index.get(fid.0, at..range.end, limit)?;
            let last = page.len() < limit;
            for extent in page {
                seen.patterns(at..extent.offset);
                at = extent.end();
                seen.push(extent);
                if seen.out.len() >= limit {
                    break;
                }
            }
            if last && seen.out.len() < limit {
                seen.patterns(at..range.end);
            }
            let more = seen.out.len() >= limit;
            if more || last {
                let mut out = seen.out;
                out.truncate(limit);
                self.tables.recount_memory(fid, table);
                return Ok((out, more));
            }
        }
    }

    /// The patterns of a file.
    pub(in super::super) fn for_readers(&self, fid: Fid) -> Result<PatternsReply> {
        let _inode = self.context.inodes.lock(fid);
        let inode = self.context.inodes.get(fid)?;
        if inode.layout != crate::ExtentLayout::Patterned {
            return Ok(PatternsReply {
                bytes: Vec::new(),
                holes: Vec::new(),
                residual: vec![(0, u64::MAX)],
                published: inode.seq,
            });
        }
        let table = self.table(fid)?;
        let lost = table.lost.iter().map(|l| l.range.clone());
        let mut ranges: Vec<Range<u64>> = lost.collect();
        let extents = self
            .slices
            .index
            .get(fid.0, 0..u64::MAX, RESIDUAL_EXTENTS)?;
        if let Some(last) = extents.last().filter(|_| extents.len() == RESIDUAL_EXTENTS) {
            ranges.push(last.end()..u64::MAX);
        }
        ranges.extend(extents.iter().map(|e| e.offset..e.end()));
        let reply = PatternsReply {
            bytes: table.merged().to_vec(),
            holes: table.hole_list(),
            residual: coarse(ranges),
            published: inode.seq,
        };
        self.tables.recount_memory(fid, table);
        Ok(reply)
    }
}

/// Sorted and apart; if they are many, with the smallest gaps filled.
fn coarse(ranges: Vec<Range<u64>>) -> Vec<(u64, u64)> {
    let ranges = merge(ranges);
    let mut gaps: Vec<u64> = ranges.windows(2).map(|w| w[1].start - w[0].end).collect();
    let filled = gaps.len().saturating_sub(RESIDUAL_RANGES - 1);
    let most = match filled {
        0 => 0,
        n => *gaps.select_nth_unstable(n - 1).1,
    };
    let mut out: Vec<(u64, u64)> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start - last.1 <= most => last.1 = range.end,
            _ => out.push((range.start, range.end)),
        }
    }
    out
}

struct ExtentResolver<'a> {
    table: &'a PatternTable,
    end: u64,
    out: Vec<Extent>,
    limit: usize,
    /// The form of an extent that cannot be read.
    lost: Extent,
}

impl ExtentResolver<'_> {
    /// Adds what patterns show of `range`, where the index has nothing.
    fn patterns(&mut self, range: Range<u64>) {
        let (mut at, end) = (range.start, range.end.min(self.end));
        while at < end && self.out.len() < self.limit {
            let (seen, until) = self.table.content_at(at);
            let until = until.min(end);
            let len = until - at;
            match seen {
                OffsetContent::Data(p) => self.push(Extent {
                    offset: at,
                    len,
                    member: p.source.member,
                    log: p.source.log,
                    addr: p.addr,
                    seq: p.sequence,
                }),
                OffsetContent::Lost => self.push(Extent {
                    offset: at,
                    len,
                    addr: at,
                    ..self.lost
                }),
                OffsetContent::Hole => {}
            }
            at = until;
        }
    }

    fn push(&mut self, extent: Extent) {
        match self.out.last_mut() {
            Some(last)
                if last.end() == extent.offset
                    && (last.member, last.log, last.seq)
                        == (extent.member, extent.log, extent.seq)
                    && last.addr + last.len == extent.addr =>
            {
                last.len += extent.len;
            }
            _ => self.out.push(extent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn few_ranges_cover_all(starts in prop::collection::vec((0u64..100_000, 1u64..50), 0..300)) {
            let ranges: Vec<Range<u64>> = starts.iter().map(|(at, len)| *at..at + len).collect();
            let found = coarse(ranges.clone());
            prop_assert!(found.len() <= RESIDUAL_RANGES);
            prop_assert!(found.windows(2).all(|w| w[0].1 < w[1].0));
            for r in ranges {
                prop_assert!(found.iter().any(|f| f.0 <= r.start && r.end <= f.1));
            }
        }
    }
}
