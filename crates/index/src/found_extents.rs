//! The result of a batched get: the extents of all its requests in one list.
//!
//! Invariant: each request has a range of positions in the list; these ranges lie in the list and do not overlap.
use crate::Extent;
use std::ops::Range;

/// The extents found for each request of a batch; see [`ExtentIndex::get_many`](crate::ExtentIndex::get_many).
#[derive(Debug, Clone, Default)]
pub struct FoundExtents {
    extents: Vec<Extent>,
    /// Where each request's extents are.
    ranges: Vec<Range<usize>>,
}

impl FoundExtents {
    /// An empty result for this many requests.
    pub(crate) fn of(requests: usize) -> FoundExtents {
        FoundExtents {
            extents: Vec::with_capacity(requests),
            ranges: vec![0..0; requests],
        }
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there was no request.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The extents of request `i`: those that overlap its range, clipped to it, by offset.
    ///
    /// # Panics
    /// If there was no request `i`.
    pub fn get(&self, i: usize) -> &[Extent] {
        &self.extents[self.ranges[i].clone()]
    }

    /// Number of extents of all requests.
    pub fn extents(&self) -> usize {
        self.extents.len()
    }

    /// The list; the extents of the request that is answered next go to its end.
    pub(crate) fn list(&mut self) -> &mut Vec<Extent> {
        &mut self.extents
    }

    /// What was added to the list since `start` is the answer to request `i`.
    pub(crate) fn answered(&mut self, i: usize, start: usize) {
        self.ranges[i] = start..self.extents.len();
    }
}
