//! Finds the members that store the bytes of a file, so that work (staging) can go there.
use super::context::DelegateContext;
use super::handles::Handle;
use super::intervals::ByteSource;
use super::open_file::FetchedExtents;
use super::read::LayerReader;
use crate::{ExtentLayout, Fid, Member, Result};
use forebay_index::SLICE;
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
    pub(super) ctx: Arc<DelegateContext>,
    pub(super) reader: Arc<LayerReader>,
}

impl ByteLocator {
    /// Committed bytes of `range` by the member that stores them. Holes, and what is only pending, count nowhere. It is a
    /// hint: the file may change at any moment.
    ///
    /// # Errors
    /// `ESTALE` if it was removed; `EIO` if a member cannot answer.
    pub fn holders(&self, fid: Fid, range: Range<u64>) -> Result<BTreeMap<Member, u64>> {
        let mut held = BTreeMap::new();
        let mut add = |piece: Range<u64>, source| {
            if let ByteSource::Log { member, .. } = source {
                *held.entry(member).or_default() += piece.end - piece.start;
            }
        };
        let extents = &self.reader.extents;
        if self.ctx.members() > 1 && self.ctx.ask_attr(fid)?.layout == ExtentLayout::Patterned {
            extents.walk(fid, range, &mut add)?;
            return Ok(held);
        }
        let slices = self.ctx.slices();
        let mut from = range.start;
        while from < range.end {
            let end = (from / SLICE + 1).saturating_mul(SLICE).min(range.end);
            let member = slices.member(fid.owner(), from);
            extents.walk_extents(fid, member, from..end, &mut |piece, source| {
                add(piece, source);
                true
            })?;
            from = end;
        }
        Ok(held)
    }

    /// For benchmarks of the index alone: as a read of `range`, without the bytes.
    ///
    /// # Errors
    /// As a read; `Replan` if the file is written meanwhile.
    #[doc(hidden)]
    pub fn locate(&self, handle: Handle, range: Range<u64>) -> Result<LocatedBytes> {
        let open = self.ctx.table.get(handle)?;
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
                if matches!(source, ByteSource::Log { .. }) {
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
