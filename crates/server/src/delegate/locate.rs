//! Which members store the bytes of files: for those who want to work where the bytes are.
use super::handles::{Handle, OpenFileTable};
use super::intervals::Source;
use super::open_file::FetchedExtents;
use super::read::LayerReader;
use super::traffic::TrafficCounters;
use super::windows::MAX_REPLY_EXTENTS;
use crate::{ExtentLayout, Fid, Member, Result};
use forebay_index::SLICE;
use forebay_proto::files::ExtentsReply;
use forebay_proto::placement::SliceMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Pieces that a step of [`ByteLocator::locate`] works on.
const STEP_PIECES: usize = 16 << 10;

/// Where the bytes of a range are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LocatedBytes {
    /// Bytes that are in some log.
    pub bytes: u64,
    /// Pieces that they are in.
    pub pieces: u64,
}

/// Tells where the bytes of files are.
pub struct ByteLocator {
    pub(super) table: Arc<OpenFileTable>,
    pub(super) reader: Arc<LayerReader>,
    pub(super) counters: Arc<TrafficCounters>,
}

impl ByteLocator {
    /// Committed bytes of `range` by the member that stores them. Holes, and what is only pending, count nowhere. It is a
    /// hint: the file may change at any moment.
    ///
    /// # Errors
    /// `ESTALE` if it was removed; `EIO` if a member cannot answer.
    pub fn holders(&self, fid: Fid, range: Range<u64>) -> Result<BTreeMap<Member, u64>> {
        let mut held = BTreeMap::new();
        if self.reader.node.peers.members() > 1
            && self.reader.views.ask_attr(fid)?.layout == ExtentLayout::Patterned
        {
            self.reader.extents.walk(fid, range, &mut |piece, source| {
                if let Source::Log { member, .. } = source {
                    *held.entry(member).or_default() += piece.end - piece.start;
                }
            })?;
            return Ok(held);
        }
        let map = SliceMap {
            members: self.reader.node.peers.members(),
        };
        let mut from = range.start;
        while from < range.end {
            let end = (from / SLICE + 1).saturating_mul(SLICE).min(range.end);
            let member = map.member(fid.owner(), from);
            let ExtentsReply { extents, more, .. } =
                self.reader
                    .extents
                    .ask_member(fid, member, from..end, MAX_REPLY_EXTENTS)?;
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

    /// For benchmarks of the index alone: as a read of `range`, without the bytes.
    ///
    /// # Errors
    /// As a read; `Stale` if the file is written meanwhile.
    #[doc(hidden)]
    pub fn locate(&self, handle: Handle, range: Range<u64>) -> Result<LocatedBytes> {
        let open = self.table.get(handle)?;
        let file = &open.file;
        let (generation, end) = {
            let state = file.state.lock();
            (state.attr.generation, range.end.min(state.size()))
        };
        let (mut asked, mut at) = (FetchedExtents::default(), range.start);
        let mut located = LocatedBytes::default();
        while at < end {
            let plan = self
                .reader
                .plan_step(file, at..end, generation, STEP_PIECES, &mut asked)?;
            for (piece, source) in &plan.found {
                if matches!(source, Source::Log { .. }) {
                    located.bytes += piece.end - piece.start;
                    located.pieces += 1;
                }
            }
            at = plan.until;
            asked.pieces.clear();
        }
        Ok(located)
    }
}
