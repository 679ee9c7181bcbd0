//! Answering for many files at once: what a copy of a tree wants to know of each before it begins.
//!
//! Where bytes lie is a hint, and here it is answered only where this member knows it alone: for files that end in their first
//! slice, whose extents lie with their owner. An answer looks at a bounded number of extents.
use super::Shared;
use super::proto::{FilesReply, Survey};
use crate::inodes::Inode;
use crate::{Fid, Kind, Layout, Result};
use forebay_index::SLICE;
use std::collections::BTreeMap;

/// Most extents looked at for one answer.
const EXTENTS: usize = 16 << 10;

impl Shared {
    pub(super) fn survey(&self, fids: &[Fid]) -> Result<FilesReply> {
        let mut left = EXTENTS;
        let one = |fid: &Fid| {
            // Before its attributes are looked for: whoever changes these changes its time in the same batch.
            let Some(inode) = self.inodes.find(*fid)? else {
                return Ok(None);
            };
            Ok(Some(Survey {
                attr: inode.attr(*fid),
                xattrs: self.inodes.has_xattrs(*fid)?,
                held: match inode.kind {
                    Kind::File => self.held(*fid, &inode, &mut left)?,
                    _ => Some(Vec::new()),
                },
            }))
        };
        let all = fids.iter().map(one).collect::<Result<_>>()?;
        Ok(FilesReply::Surveyed(all))
    }

    fn held(&self, fid: Fid, inode: &Inode, left: &mut usize) -> Result<Option<Vec<(u16, u64)>>> {
        let size = inode.size;
        if size > SLICE || *left == 0 {
            return Ok(None);
        }
        let extents = match inode.layout {
            Layout::Patterned => {
                let _inode = self.inodes.lock(fid);
                self.resolved(fid, inode, 0..size, *left)?.0
            }
            Layout::Fresh | Layout::Spread => self.index.get(fid.0, 0..size, *left)?,
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
