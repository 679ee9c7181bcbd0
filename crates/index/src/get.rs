//! Reading the index: a range, a whole file to remove, everything.

use crate::encoding;
use crate::extent::search_start;
use crate::{Extent, ExtentIndex};
use forebay_storage::{Batch, Result};
use std::ops::{Bound, Range};

impl ExtentIndex {
    /// All extents of `fid` overlapping `range`, clipped, by offset; at most `limit` (then ask again from the last end).
    ///
    /// # Errors
    /// Those of reading the store, and `Format` for an entry that is no extent.
    pub fn get(&self, fid: u64, range: Range<u64>, limit: usize) -> Result<Vec<Extent>> {
        let mut found = Vec::new();
        if range.is_empty() || limit == 0 {
            return Ok(found);
        }
        let from = encoding::key(fid, search_start(range.start));
        let to = encoding::key(fid, range.end);
        for entry in self
            .store
            .scan(self.keyspace, Bound::Included(&from), Bound::Excluded(&to))
        {
            let (key, value) = entry?;
            let (_, extent) = encoding::decode(&key, &value)?;
            found.extend(extent.clip(&range));
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
