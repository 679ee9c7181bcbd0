//! A range of stored bytes in a segment, and what they belong to: a log or a container.
use forebay_data::container::ContainerId;
use forebay_data::{LogId, SegmentRange};
use std::fmt;

/// Whose bytes they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BytesOwner {
    /// Raw bytes of a log.
    Log(LogId),
    /// Chunks of a container.
    Container(ContainerId),
}

/// See the head of this file. Sorted by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredRange {
    pub segment: u32,
    pub start: u64,
    pub end: u64,
    pub owner: BytesOwner,
    /// The log address, or the position in the container, of the byte at `start`.
    pub position: u64,
}

impl StoredRange {
    pub fn new(range: SegmentRange, owner: BytesOwner, position: u64) -> StoredRange {
        StoredRange {
            segment: range.segment,
            start: range.start,
            end: range.end,
            owner,
            position,
        }
    }
}

impl fmt::Display for BytesOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BytesOwner::Log(log) => write!(f, "log {log}"),
            BytesOwner::Container(id) => write!(f, "container {id}"),
        }
    }
}
