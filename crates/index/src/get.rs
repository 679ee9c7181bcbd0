//! Reading the index: a range, a whole file to remove, everything.

use crate::encoding;
use crate::extent::search_start;
use crate::{Extent, ExtentIndex};
use forebay_storage::{Batch, Result, Snapshot};
use std::ops::{Bound, Range};

/// How far back a search looks first. Extents do not overlap, so of those that start at or before an offset only the
/// last can reach it: where extents are small, one scan of a few entries finds it, not all of `MAX_EXTENT`.
const CLOSE: u64 = 1 << 10;
/// How far back it looks next, before it looks through all of `MAX_EXTENT`.
pub(crate) const NEAR: u64 = 64 << 10;

impl ExtentIndex {
    /// The extents of `fid` from the last that starts at or before `at` (which may end there too) up to the key `to`.
    /// Some that start before it may come first.
    pub(crate) fn extents_at(
        &self,
        snapshot: &Snapshot,
        fid: u64,
        at: u64,
        to: Bound<&[u8]>,
    ) -> Result<impl Iterator<Item = Result<Extent>> + use<>> {
        let far = search_start(at);
        let mut seen = far.max(at.saturating_sub(CLOSE));
        let from = encoding::key(fid, seen);
        let mut extents = self
            .extents(snapshot, Bound::Included(&from), to)
            .peekable();
        let found = extents
            .peek()
            .is_some_and(|e| e.as_ref().is_ok_and(|e| e.offset <= at));
        let mut before = None;
        for start in [far.max(at.saturating_sub(NEAR)), far] {
            if found || before.is_some() || start == seen {
                continue;
            }
            let (from, to) = (encoding::key(fid, start), encoding::key(fid, seen));
            for extent in self.extents(snapshot, Bound::Included(&from), Bound::Excluded(&to)) {
                before = Some(extent?);
            }
            seen = start;
        }
        Ok(before.map(Ok).into_iter().chain(extents))
    }

    /// The extents with keys inside the bounds.
    pub(crate) fn extents(
        &self,
        snapshot: &Snapshot,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl Iterator<Item = Result<Extent>> + use<> {
        snapshot.scan(self.keyspace, from, to).map(|entry| {
            let (key, value) = entry?;
            encoding::decode(&key, &value).map(|(_, extent)| extent)
        })
    }

    /// All extents of `fid` overlapping `range`, clipped, by offset; at most `limit` (then ask again from the last end).
    ///
    /// # Errors
    /// Those of reading the store, and `Format` for an entry that is no extent.
    pub fn get(&self, fid: u64, range: Range<u64>, limit: usize) -> Result<Vec<Extent>> {
        let mut found = Vec::new();
        if range.is_empty() || limit == 0 {
            return Ok(found);
        }
        let to = encoding::key(fid, range.end);
        let snapshot = self.store.snapshot();
        for extent in self.extents_at(&snapshot, fid, range.start, Bound::Excluded(&to))? {
            found.extend(extent?.clip(&range));
            if found.len() == limit {
                break;
            }
        }
        Ok(found)
    }

    /// Adds to `batch` the removal of up to `limit` extents of `fid` from its start; returns them. Empty: none left.
    ///
    /// # Errors
    /// Those of reading the store, and `Format` for an entry that is no extent.
    pub fn remove(&self, batch: &mut Batch, fid: u64, limit: usize) -> Result<Vec<Extent>> {
        let (from, to) = (encoding::key(fid, 0), encoding::key(fid, u64::MAX));
        let mut removed = Vec::new();
        for entry in self
            .store
            .scan(self.keyspace, Bound::Included(&from), Bound::Included(&to))
            .take(limit)
        {
            let (key, value) = entry?;
            let (_, extent) = encoding::decode(&key, &value)?;
            batch.delete(self.keyspace, key);
            removed.push(extent);
        }
        Ok(removed)
    }

    /// Every `(fid, extent)` in key order, for checking.
    pub fn iter(&self) -> impl Iterator<Item = Result<(u64, Extent)>> + '_ {
        self.store
            .scan(self.keyspace, Bound::Unbounded, Bound::Unbounded)
            .map(|entry| entry.and_then(|(key, value)| encoding::decode(&key, &value)))
    }
}
