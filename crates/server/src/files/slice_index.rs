//! The extents of this member's slices, and what becomes of the bytes that changes displace.
//!
//! # Invariants
//! 1. The batch of a change also notes the extents that it displaces. If the new bytes are on disk, that is a message of the outbox, which
//!    frees the displaced bytes. Else it is a record (`outbox/displaced_extents`), which keeps them until the new bytes are on disk.
//! 2. Stored extents of one file never overlap (`forebay_index`).
//!
//! A change of a file's extents here is made under a lock that the caller holds: the inode's of a file of this member, the
//! slice lock of `StagedParts` of any other.
use super::context::MemberContext;
use crate::outbox::{DisplacedRecord, Outbox};
use crate::{Fid, Result};
use forebay_index::{Change, Extent, ExtentIndex};
use forebay_storage::Batch;
use std::sync::Arc;

/// Extents that one batch of a removal takes out.
pub(super) const REMOVAL_STEP: usize = 512;
/// The kernel reads pages.
const PAGE: u64 = 4096;

/// See the head of this file.
pub(super) struct SliceIndex {
    context: Arc<MemberContext>,
    pub index: ExtentIndex,
    pub outbox: Arc<Outbox>,
}

/// A file as a change finds it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PriorState {
    /// Bytes; known at its owner only.
    pub size: Option<u64>,
    /// Nothing of it was ever published, so no extent of it is stored here.
    pub first: bool,
    /// An fsync may have brought bytes of it to disk. Then all of it must be readable after a power cut: what the commit puts and the cut
    /// takes is as if it was never written.
    pub has_synced_bytes: bool,
}

impl SliceIndex {
    pub fn open(context: Arc<MemberContext>, outbox: Arc<Outbox>) -> Result<SliceIndex> {
        Ok(SliceIndex {
            index: ExtentIndex::of(&context.store)?,
            context,
            outbox,
        })
    }

    /// Adds to `batch` changes under sequence `seq`, and what they displace. Returns bytes added and freed.
    /// `synced`: the bytes that the changes name are on disk.
    pub fn change(
        &self,
        batch: &mut Batch,
        fid: Fid,
        changes: &mut [Change],
        seq: u64,
        before: PriorState,
        synced: bool,
    ) -> Result<(u64, u64)> {
        let mut added = 0u64;
        for change in changes.iter_mut() {
            if let Change::Put(extent) = change {
                extent.seq = seq;
                added = added.saturating_add(extent.len);
            }
        }
        let extents = match before.first {
            true => self.index.change_first(batch, fid.0, changes)?,
            false => self.index.change(batch, fid.0, changes)?,
        };
        let freed = stored_bytes(&extents);
        if synced || !self.context.is_ordered() {
            self.outbox.add(batch, &extents);
            return Ok((added, freed));
        }
        let puts = changes.iter().filter_map(|change| match change {
            Change::Put(extent) => Some(extent),
            Change::Cut { .. } => None,
        });
        self.outbox
            .displaced
            .note_writers(puts.clone().map(|e| e.member));
        let all = before.has_synced_bytes || self.outbox.displaced.has_records(fid);
        let held = DisplacedRecord {
            fid,
            size: before.size,
            seq,
            extents,
            beside: puts
                .filter(|e| all || beside_older(e, before.size))
                .map(|e| (e.offset, e.len))
                .collect(),
        };
        if !held.extents.is_empty() || !held.beside.is_empty() {
            self.outbox.displaced.record(batch, &held)?;
        }
        Ok((added, freed))
    }

    /// Adds to `batch` the removal of a file's first extents, `most` at most, and gives their bytes back. Returns how many they are.
    pub fn remove(&self, batch: &mut Batch, fid: Fid, most: usize) -> Result<usize> {
        let removed = self.index.remove(batch, fid.0, most)?;
        self.outbox.add(batch, &removed);
        Ok(removed.len())
    }

    /// To be called after a batch that freed `freed` bytes of the file: wakes the outbox if there may be something to deliver.
    pub fn batch_applied(&self, fid: Fid, freed: u64) {
        if freed > 0 || self.outbox.displaced.has_records(fid) {
            self.outbox.wake();
        }
    }
}

/// Whether an extent shares a page with older bytes of a file of this size (`None`: not known).
fn beside_older(extent: &Extent, size: Option<u64>) -> bool {
    let size = size.unwrap_or(u64::MAX);
    let (start, end) = (extent.offset, extent.end());
    !start.is_multiple_of(PAGE) && size > start - start % PAGE
        || !end.is_multiple_of(PAGE) && size > end
}

/// Bytes of these extents.
pub(super) fn stored_bytes(extents: &[Extent]) -> u64 {
    let lengths = extents.iter().map(|e| e.len);
    lengths.fold(0, u64::saturating_add)
}
