//! A stored segment, decoded.
use super::records::{self, PatternId};
use crate::log_ranges::LogRanges;
use bytes::Bytes;
use forebay_pattern::Segment;
use std::ops::Range;
use std::sync::Arc;

/// See the head of this file.
#[derive(Debug, Clone)]
pub(super) struct StoredSegment {
    pub id: PatternId,
    pub segment: Arc<Segment>,
    /// Its log addresses.
    pub runs: Arc<[Range<u64>]>,
    /// Offsets from the lowest to after the highest byte.
    pub bounds: (u64, u64),
    /// Of all its elements.
    pub bytes: u64,
    /// Of those that do not count any more.
    pub hidden: u64,
    /// Elements lie in the log as in the file.
    pub increasing: bool,
}

impl StoredSegment {
    /// A segment of the commit that `id` names.
    pub(super) fn new(id: PatternId, mut segment: Segment) -> StoredSegment {
        (segment.first, segment.last) = (id.seq, id.seq);
        StoredSegment {
            id,
            runs: segment.pattern.runs().into(),
            bounds: segment.pattern.bounds(),
            bytes: segment.pattern.bytes(),
            hidden: 0,
            increasing: segment.pattern.is_increasing(),
            segment: Arc::new(segment),
        }
    }

    /// It was decided under this sequence.
    pub(super) fn publish(&mut self, seq: u64) {
        self.id.seq = seq;
        let segment = Arc::make_mut(&mut self.segment);
        (segment.first, segment.last) = (seq, seq);
    }

    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.bounds.0 < range.end && range.start < self.bounds.1
    }

    /// The record.
    pub(super) fn value(&self) -> Bytes {
        records::segment_value(self.bounds, &self.segment.encoded())
    }

    /// Adds its log addresses.
    pub(super) fn add_log_ranges_to(&self, ranges: &mut LogRanges) {
        for run in self.runs.iter() {
            ranges.add(self.segment.source, run.clone());
        }
    }

    /// Bytes of memory held, about.
    pub(super) fn memory(&self) -> usize {
        size_of::<StoredSegment>()
            + self.segment.memory()
            + self.runs.len() * size_of::<Range<u64>>()
    }
}
