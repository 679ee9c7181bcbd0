//! One extent: a run of a file's bytes and the log bytes that hold them.
//!
//! Arithmetic saturates: an extent that would end beyond `u64::MAX` ends there.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Bytes of file offsets that one member owns together: 64 MiB.
pub const SLICE: u64 = 64 << 20;
/// No stored extent is longer, so a search for `off` starts at `off - MAX_EXTENT`.
pub const MAX_EXTENT: u64 = 1 << 20;

/// The index entry `(fid, offset, len) -> (member, log, addr, seq)`. Offsets and lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// First byte of the file that this extent holds.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The member whose store has the bytes.
    pub member: u16,
    /// The log there.
    pub log: u64,
    /// Address of the first byte in the log.
    pub addr: u64,
    /// The commit that published it.
    pub seq: u64,
}

impl Extent {
    /// The offset just after the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// The part inside `range`, its address moved along; `None` if they do not overlap.
    pub fn clip(&self, range: &Range<u64>) -> Option<Extent> {
        let start = self.offset.max(range.start);
        let end = self.end().min(range.end);
        (start < end).then(|| Extent {
            offset: start,
            len: end - start,
            addr: self.addr.saturating_add(start - self.offset),
            ..*self
        })
    }

    /// Whether a byte held by both comes from the same log byte.
    pub(crate) fn same_bytes(&self, other: &Extent) -> bool {
        self.member == other.member && self.log == other.log && self.delta() == other.delta()
    }

    /// Whether `next` goes on where this one ends: in the file, in the log, and in the same commit.
    pub(crate) fn continues_with(&self, next: &Extent) -> bool {
        self.end() == next.offset && self.seq == next.seq && self.same_bytes(next)
    }

    /// Log address less file offset (wrapping): equal for all parts of one extent.
    pub(crate) fn delta(&self) -> u64 {
        self.addr.wrapping_sub(self.offset)
    }

    /// Whether it may be stored as it is; then [`parts`](Extent::parts) has only it.
    pub(crate) fn is_one_part(&self) -> bool {
        self.len > 0 && self.len <= MAX_EXTENT && self.end() <= slice_end(self.offset)
    }

    /// This extent cut so that each part may be stored: see the crate's invariant 2.
    pub(crate) fn parts(self) -> impl Iterator<Item = Extent> {
        let end = self.end();
        let mut at = self.offset;
        std::iter::from_fn(move || {
            let stop = end.min(slice_end(at)).min(at.saturating_add(MAX_EXTENT));
            let part = self.clip(&(at..stop));
            at = stop;
            part
        })
    }
}

/// Start of the slice that holds `offset`.
pub(crate) fn slice_start(offset: u64) -> u64 {
    offset - offset % SLICE
}

/// End of the slice that holds `offset` (`u64::MAX` for the last one).
pub(crate) fn slice_end(offset: u64) -> u64 {
    slice_start(offset).saturating_add(SLICE)
}

/// The smallest offset at which a stored extent that reaches beyond `offset` may start.
pub(crate) fn search_start(offset: u64) -> u64 {
    offset
        .saturating_sub(MAX_EXTENT - 1)
        .max(slice_start(offset))
}
