//! Interface sketch of the extent index; the public names stay.
#![allow(missing_docs)]
use forebay_storage::{Batch, Keyspace, Result, Store};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of file offsets that one member owns together: 64 MiB (design section 2).
pub const SLICE: u64 = 64 << 20;
/// No stored extent is longer, so a search for `off` starts at `off - MAX_EXTENT`.
pub const MAX_EXTENT: u64 = 1 << 20;

/// The index entry `(fid, offset, len) -> (member, log, addr, seq)`. Offsets and lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    pub offset: u64,
    pub len: u64,
    pub member: u16,
    pub log: u64,
    pub addr: u64,
    pub seq: u64,
}

impl Extent {
    pub fn end(&self) -> u64 { self.offset + self.len }
    /// The part inside `range`, its address moved along; `None` if they do not overlap.
    pub fn clip(&self, range: &Range<u64>) -> Option<Extent> {
        let start = self.offset.max(range.start);
        let end = self.end().min(range.end);
        (start < end).then(|| Extent { offset: start, len: end - start, addr: self.addr + (start - self.offset), ..*self })
    }
}

/// One change of a file's extents; changes of a batch apply in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// These bytes now come from a log.
    Put(Extent),
    /// These bytes are a hole now. `end` may be `u64::MAX` (truncate).
    Cut { start: u64, end: u64 },
}

/// The extents of many files, in one keyspace of a store. Stored extents of one file never overlap.
pub struct ExtentIndex {
    _store: Arc<Store>,
    _keyspace: Keyspace,
}

impl ExtentIndex {
    pub fn new(store: Arc<Store>, keyspace: Keyspace) -> ExtentIndex { ExtentIndex { _store: store, _keyspace: keyspace } }
    /// Adds to `batch` what makes `changes` true for file `fid`, and returns the pieces of older extents that
    /// no byte of the file uses any more. The caller serialises changes of one file and applies the batch.
    pub fn change(&self, _batch: &mut Batch, _fid: u64, _changes: &[Change]) -> Result<Vec<Extent>> { todo!() }
    /// All extents of `fid` overlapping `range`, clipped, by offset; at most `limit` (then ask again from the last end).
    pub fn get(&self, _fid: u64, _range: Range<u64>, _limit: usize) -> Result<Vec<Extent>> { todo!() }
    /// Adds to `batch` the removal of up to `limit` extents of `fid` from its start; returns them. Empty: none left.
    pub fn remove(&self, _batch: &mut Batch, _fid: u64, _limit: usize) -> Result<Vec<Extent>> { todo!() }
    /// Every `(fid, extent)` in key order, for checking.
    pub fn iter(&self) -> impl Iterator<Item = Result<(u64, Extent)>> + '_ { std::iter::empty() }
}

/// Which member owns which slice of a file: slice 0 the attribute owner, then round robin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeMap { pub members: u16 }

impl RangeMap {
    /// The member that owns the extents of `offset` of a file whose attributes live at `owner`.
    pub fn member(&self, owner: u16, offset: u64) -> u16 {
        ((u64::from(owner) + offset / SLICE) % u64::from(self.members)) as u16
    }
}
