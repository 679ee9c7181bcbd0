//! Many ranges looked up at once.
use crate::csm::lookup::{Lookup, LookupResult, RangeRequest};
use crate::{Extent, ExtentIndex, FoundExtents};
use forebay_storage::Result;
use std::ops::Range;

impl ExtentIndex {
    /// For each request, the extents of its file that overlap its range, clipped to it, by offset. All of one state of the index.
    ///
    /// Quickest if the requests ascend by file and start of the range; they may come in any order.
    ///
    /// # Errors
    /// Those of reading the store, and `Format` for an entry that is no extent.
    pub fn get_many(&self, requests: &[(u64, Range<u64>)]) -> Result<FoundExtents> {
        let view = self.engine.view();
        let mut found = FoundExtents::of(requests.len());
        // Those that ask for nothing get nothing.
        let asked = |i: &usize| !requests[*i].1.is_empty();
        let start = |i: &usize| (requests[*i].0, requests[*i].1.start);
        let mut order: Vec<usize> = Vec::new();
        let as_they_are = (0..requests.len()).all(|i| asked(&i))
            && (0..requests.len()).is_sorted_by_key(|i| start(&i));
        if !as_they_are {
            order.extend((0..requests.len()).filter(asked));
            order.sort_unstable_by_key(start);
        }
        let request = |i: usize| RangeRequest::new(requests[i].0, &requests[i].1);
        let sorted: Vec<RangeRequest> = if as_they_are {
            (0..requests.len()).map(request).collect()
        } else {
            order.iter().map(|i| request(*i)).collect()
        };
        Lookup::new(&view, usize::MAX).answer(&sorted, |k, answer| {
            let i = if as_they_are { k } else { order[k] };
            let (fid, range) = &requests[i];
            let start = found.extents();
            match answer {
                LookupResult::Records([record]) => {
                    let extent = record.extent().and_then(|extent| extent.clip(range));
                    found.list().extend(extent);
                }
                LookupResult::Records(records) => {
                    let extents = records.iter().filter_map(|r| r.extent());
                    found
                        .list()
                        .extend(extents.filter_map(|e: Extent| e.clip(range)));
                }
                LookupResult::Scan => {
                    self.scan_into(&view, *fid, range, usize::MAX, found.list())?
                }
            }
            found.answered(i, start);
            Ok(())
        })?;
        self.engine.count_gets(found.len(), found.extents());
        Ok(found)
    }
}
