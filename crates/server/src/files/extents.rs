//! Answering extents: how readers see a commit whole or not at all.
//!
//! A reader has a view of the file (sequence V) from its owner. Here, in this order:
//! 1. Parts staged here are looked up at the owner; decided ones are published first. So everything up to V is in the
//!    index: a commit decided before the view was taken has its part here, published or staged.
//! 2. The extents are read.
//! 3. The published sequence P is read. If the extents show a commit, P is at least its sequence.
//!
//! If P > V the reader takes a new view and asks all members again: it may have read the older state elsewhere. If no
//! answer had P > V, all of them showed exactly the commits up to V.
//!
//! Of a file with patterns the owner answers all of it, by what index and patterns say together (`patterns`), of one moment.
//!
//! While the owner cannot be reached and a part is staged here, the answer is an error: which content is right is not known.
use super::Shared;
use super::proto::FilesReply;
use crate::{Fid, Layout, Result};

impl Shared {
    pub(super) fn extents(&self, fid: Fid, start: u64, end: u64, limit: u32) -> Result<FilesReply> {
        for id in self.staged.of(fid) {
            self.resolve(id, false)?;
        }
        let limit = (limit as usize).max(1);
        if fid.owner() == self.member() {
            let _inode = self.inodes.lock(fid);
            let inode = self.inodes.get(fid)?;
            if inode.layout == Layout::Patterned {
                let (extents, more) = self.resolved(fid, &inode, start..end, limit)?;
                return Ok(FilesReply::Extents {
                    extents,
                    published: inode.seq,
                    more,
                });
            }
        }
        let extents = self.index.get(fid.0, start..end, limit)?;
        let published = match fid.owner() == self.member() {
            true => self.inodes.get(fid)?.seq,
            false => self.last_published(fid)?.seq,
        };
        let more = extents.len() == limit;
        Ok(FilesReply::Extents {
            extents,
            published,
            more,
        })
    }
}
