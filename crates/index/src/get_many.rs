//! Many ranges looked up at once.
use crate::{ExtentIndex, Found};
use forebay_storage::Result;
use std::ops::Range;

impl ExtentIndex {
    /// For each request, the extents of its file that overlap its range, clipped to it, by offset. All of one state of the index.
    ///
    /// # Errors
    /// Those of reading the store, and `Format` for an entry that is no extent.
    pub fn get_many(&self, requests: &[(u64, Range<u64>)]) -> Result<Found> {
        let view = self.engine.view();
        let mut found = Found::of(requests.len());
        for (i, (fid, range)) in requests.iter().enumerate() {
            let start = found.extents();
            self.get_into(&view, *fid, range, usize::MAX, found.list())?;
            found.answered(i, start);
        }
        Ok(found)
    }
}
