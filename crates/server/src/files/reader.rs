//! Answers to readers, who see a commit whole or not at all.
//!
//! A reader has a view of the file from its owner: attributes, and the sequence V that its reads must show. A view may name a
//! commit that a slice owner has not published yet, and views never wait for a commit in progress. A slice owner answers
//! extents in this order:
//! 1. Parts staged here are looked up at the owner; decided ones are published first. So everything up to V is in the
//!    index: a commit decided before the view was taken has its part here, published or staged.
//! 2. The extents are read.
//! 3. The published sequence P is read. If the extents show a commit, P is at least its sequence.
//!
//! If P > V the reader takes a new view and asks all members again: it may have read the older state elsewhere. If no
//! answer had P > V, all of them showed exactly the commits up to V.
//!
//! For a file with patterns, the owner alone answers for all slices, from one consistent view of index and patterns (`patterns`).
//!
//! While the owner cannot be reached and a part is staged here, the answer is an error: which content is right is not known.
use super::context::MemberContext;
use super::patterns::PatternStore;
use super::slice_index::SliceIndex;
use super::staged::StagedParts;
use crate::inodes::Inode;
use crate::log_ranges::LogRanges;
use crate::{Attr, Error, ExtentLayout, Fid, Kind, Member, Result};
use forebay_index::{Extent, SLICE};
use forebay_proto::files::{ExtentsReply, FileLogRanges, FileSurvey, NamedRanges};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Extents that are read for one reply about named log addresses, at most.
const NAMED_EXTENTS: usize = 64 << 10;
/// Extents that are read for one survey, at most.
const SURVEYED_EXTENTS: usize = 16 << 10;

/// Answers readers. Changes nothing but by publishing what is decided.
pub(super) struct ContentReader {
    pub context: Arc<MemberContext>,
    pub slices: Arc<SliceIndex>,
    pub patterns: Arc<PatternStore>,
    pub staged: Arc<StagedParts>,
}

impl ContentReader {
    /// Attributes, and the sequence that a read must show.
    pub fn view(&self, fid: Fid) -> Result<Attr> {
        Ok(self.context.inodes.get(fid)?.attr(fid))
    }

    /// Extents that overlap `[start, end)`, at most `limit`.
    pub fn extents(&self, fid: Fid, start: u64, end: u64, limit: u32) -> Result<ExtentsReply> {
        self.staged.publish_decided(fid)?;
        let limit = (limit as usize).max(1);
        let owned = fid.owner() == self.context.member();
        if owned {
            let _inode = self.context.inodes.lock(fid);
            let inode = self.context.inodes.get(fid)?;
            if inode.layout == ExtentLayout::Patterned {
                let (extents, more) = self.patterns.extents(fid, &inode, start..end, limit)?;
                return Ok(ExtentsReply {
                    extents,
                    published: inode.seq,
                    more,
                });
            }
        }
        let extents = self.slices.index.get(fid.0, start..end, limit)?;
        let published = match owned {
            true => self.context.inodes.get(fid)?.seq,
            false => self.staged.last_published(fid)?.seq,
        };
        let more = extents.len() == limit;
        Ok(ExtentsReply {
            extents,
            published,
            more,
        })
    }

    /// Which log addresses of `member` the file names here: what a member that was cut off asks, to know which bytes of its
    /// unfinished logs are in use.
    pub fn named(&self, fid: Fid, member: Member, from: u64) -> Result<NamedRanges> {
        let named = self.log_ranges(fid, from)?;
        let ranges = named.ranges.into_iter();
        let of_member = ranges.filter(|(of, ..)| *of == member);
        Ok(NamedRanges {
            ranges: of_member
                .map(|(_, log, start, end)| (log, start, end))
                .collect(),
            next: named.next,
        })
    }

    /// Which log addresses of any member the file names here.
    ///
    /// Of a pattern all addresses are named, as one range a term, however many extents it stands for. Those that were
    /// freed are gone, and naming them once more does not bring them back.
    pub fn log_ranges(&self, fid: Fid, from: u64) -> Result<FileLogRanges> {
        self.staged.publish_decided(fid)?;
        let mut named = LogRanges::default();
        if fid.owner() == self.context.member() && from == 0 {
            let _inode = self.context.inodes.lock(fid);
            if self.context.inodes.get(fid)?.layout == ExtentLayout::Patterned {
                let table = self.patterns.table(fid)?;
                if let Some(lost) = table.lost() {
                    return Err(Error::Corrupt(lost.into()));
                }
                table.add_log_ranges_to(&mut named);
            }
        }
        let index = &self.slices.index;
        let extents = index.get(fid.0, from..u64::MAX, NAMED_EXTENTS)?;
        extents.iter().for_each(|e| named.add_extent(e));
        let named = named.sorted();
        let ranges = named.iter();
        let ranges =
            ranges.map(|(source, range)| (source.member, source.log, range.start, range.end));
        let full = extents.len() == NAMED_EXTENTS;
        Ok(FileLogRanges {
            ranges: ranges.collect(),
            next: extents.last().filter(|_| full).map(Extent::end),
        })
    }

    /// What a copy of a tree wants to know of each of these files before it begins.
    ///
    /// Where bytes lie is a hint, and here it is answered only where this member knows it alone: for files that end in their first
    /// slice, whose extents lie with their owner. An answer looks at a bounded number of extents.
    pub fn survey(&self, fids: &[Fid]) -> Result<Vec<Option<FileSurvey>>> {
        let inodes = &self.context.inodes;
        let mut left = SURVEYED_EXTENTS;
        let one = |fid: &Fid| {
            // Before its attributes are looked for: whoever changes these changes its time in the same batch.
            let Some(inode) = inodes.find(*fid)? else {
                return Ok(None);
            };
            Ok(Some(FileSurvey {
                attr: inode.attr(*fid),
                xattrs: inodes.has_xattrs(*fid, &inode)?,
                held: match inode.kind {
                    Kind::File => self.held(*fid, &inode, &mut left)?,
                    _ => Some(Vec::new()),
                },
            }))
        };
        fids.iter().map(one).collect()
    }

    /// Bytes of a file by the member that stores them. `left`: how many more extents may be read.
    fn held(&self, fid: Fid, inode: &Inode, left: &mut usize) -> Result<Option<Vec<(u16, u64)>>> {
        let size = inode.size;
        if size > SLICE || *left == 0 {
            return Ok(None);
        }
        let extents = match inode.layout {
            ExtentLayout::Patterned => {
                let _inode = self.context.inodes.lock(fid);
                self.patterns.extents(fid, inode, 0..size, *left)?.0
            }
            ExtentLayout::OwnerOnly | ExtentLayout::BySlice => {
                self.slices.index.get(fid.0, 0..size, *left)?
            }
        };
        *left -= extents.len();
        if *left == 0 {
            return Ok(None);
        }
        let mut held = BTreeMap::<u16, u64>::new();
        for extent in extents {
            *held.entry(extent.member).or_default() += extent.len;
        }
        Ok(Some(held.into_iter().collect()))
    }
}
