//! Reading the index: a range, a whole file to remove, everything.

use crate::csm::engine::View;
use crate::csm::lookup::{Lookup, LookupResult, RangeRequest};
use crate::csm::{Key, Record};
use crate::extent::search_start;
use crate::{Extent, ExtentIndex};
use forebay_storage::{Batch, Result};
use std::ops::{Bound, Range};

/// How far back a search looks first. Extents do not overlap, so of those that start at or before an offset only the
/// last can reach it: where extents are small, one scan of a few entries finds it, not all of `MAX_EXTENT`.
const FIRST_SEARCH: u64 = 1 << 10;
/// How far back it looks next, before it looks through all of `MAX_EXTENT`.
pub(crate) const SECOND_SEARCH: u64 = 64 << 10;

/// Compressed blocks that a single lookup reads at once, bytes; a range with more is scanned.
const LOOKUP_BYTES: usize = 16 << 10;
/// Who wants fewer extents than this gets them from a scan, which stops there.
const SCAN_BELOW: usize = 32;

impl ExtentIndex {
    /// The extents of `fid` from the last that starts at or before `at` (which may end there too) up to those that start at `to`.
    /// Some that start before it may come first.
    pub(crate) fn extents_at(
        &self,
        view: &View,
        fid: u64,
        at: u64,
        to: Bound<u64>,
    ) -> Result<impl Iterator<Item = Result<Extent>> + use<>> {
        let far = search_start(at);
        let mut seen = far.max(at.saturating_sub(FIRST_SEARCH));
        let mut found_there = extents(view, fid, seen, to)?.peekable();
        let found = found_there
            .peek()
            .is_some_and(|e| e.as_ref().is_ok_and(|e| e.offset <= at));
        let mut before = None;
        for start in [far.max(at.saturating_sub(SECOND_SEARCH)), far] {
            if found || before.is_some() || start == seen {
                continue;
            }
            for extent in extents(view, fid, start, Bound::Excluded(seen))? {
                before = Some(extent?);
            }
            seen = start;
        }
        Ok(before.map(Ok).into_iter().chain(found_there))
    }

    /// All extents of `fid` overlapping `range`, clipped, by offset; at most `limit` (then ask again from the last end).
    ///
    /// # Errors
    /// Those of reading the store, and `Format` for an entry that is no extent.
    pub fn get(&self, fid: u64, range: Range<u64>, limit: usize) -> Result<Vec<Extent>> {
        let mut found = Vec::new();
        let view = self.engine.view();
        if range.is_empty() {
            return Ok(found);
        }
        if limit < SCAN_BELOW {
            self.scan_into(&view, fid, &range, limit, &mut found)?;
        } else {
            let request = RangeRequest::new(fid, &range);
            Lookup::new(&view, LOOKUP_BYTES).answer(&[request], |_, answer| match answer {
                LookupResult::Records(records) => {
                    let extents = records.iter().filter_map(Record::extent);
                    found.extend(extents.filter_map(|e| e.clip(&range)));
                    found.truncate(limit);
                    Ok(())
                }
                LookupResult::Scan => self.scan_into(&view, fid, &range, limit, &mut found),
            })?;
        }
        self.engine.count_gets(1, found.len());
        Ok(found)
    }

    /// The same by a scan of a state of the index; appended to `found`.
    pub(crate) fn scan_into(
        &self,
        view: &View,
        fid: u64,
        range: &Range<u64>,
        limit: usize,
        found: &mut Vec<Extent>,
    ) -> Result<()> {
        if range.is_empty() || limit == 0 {
            return Ok(());
        }
        let full = found.len().saturating_add(limit);
        // Iterated from inside: thousands of extents, of which each would be asked of four adapters in turn.
        let mut extents = self.extents_at(view, fid, range.start, Bound::Excluded(range.end))?;
        let stopped = extents.try_for_each(|extent| {
            found.extend(extent.map_err(Some)?.clip(range));
            match found.len() == full {
                true => Err(None),
                false => Ok(()),
            }
        });
        match stopped {
            Err(Some(error)) => Err(error),
            Err(None) | Ok(()) => Ok(()),
        }
    }

    /// Adds to `batch` the removal of up to `limit` extents of `fid` from its start; returns them. Empty: none left.
    ///
    /// # Errors
    /// Those of reading the store, and `Format` for an entry that is no extent.
    pub fn remove(&self, batch: &mut Batch, fid: u64, limit: usize) -> Result<Vec<Extent>> {
        let mut removed = Vec::new();
        let mut records = Vec::new();
        for extent in extents(&self.engine.view(), fid, 0, Bound::Unbounded)?.take(limit) {
            let extent = extent?;
            let offset = extent.offset;
            records.push(Record::delete(Key { fid, offset }));
            removed.push(extent);
        }
        self.engine.add(batch, records);
        Ok(removed)
    }

    /// Every `(fid, extent)` in key order, for checking.
    ///
    /// # Errors
    /// Those of reading table files.
    pub fn iter(&self) -> Result<impl Iterator<Item = Result<(u64, Extent)>> + use<>> {
        let all = self.engine.view().scan(Key { fid: 0, offset: 0 })?;
        Ok(all.filter_map(|record| match record {
            Ok(record) => Some(Ok((record.key.fid, record.extent()?))),
            Err(e) => Some(Err(e)),
        }))
    }
}

/// The extents of `fid` that start at `from` or after it, within the bound.
pub(crate) fn extents(
    view: &View,
    fid: u64,
    from: u64,
    to: Bound<u64>,
) -> Result<impl Iterator<Item = Result<Extent>> + use<>> {
    let within = move |key: &Key| {
        key.fid == fid
            && match to {
                Bound::Included(to) => key.offset <= to,
                Bound::Excluded(to) => key.offset < to,
                Bound::Unbounded => true,
            }
    };
    let records = view.scan(Key { fid, offset: from })?;
    let inside = records.take_while(move |r| r.as_ref().map_or(true, |r| within(&r.key)));
    // A scan yields no deletes.
    Ok(inside.filter_map(|r| r.map(|r| r.extent()).transpose()))
}
