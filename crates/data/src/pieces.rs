//! Bytes that lie together in a segment, cut into **pieces** that have a checksum each. Only a whole piece can be verified, so
//! what is stored, moved and given back is made of whole pieces.
//!
//! Two things are stored so: the raw bytes of a span ([`RawBytes`](crate::span::RawBytes), whose positions are log addresses) and
//! the stored parts of a container ([`Container`](crate::container::Container), whose positions begin at 0; those of an encoded one
//! are offsets of encoded bytes). Reading stored bytes (`verified_read`), moving them (`reclaim/evacuate`) and checking them go by
//! this trait alone.
use crate::segment::SegmentRange;
use std::ops::Range;

/// See the head of this file.
pub trait ChecksummedPieces {
    /// The segment file.
    fn segment(&self) -> u32;

    /// Number of the piece that holds this position.
    fn piece_of(&self, at: u64) -> usize;

    /// Positions of piece `i`.
    fn piece(&self, i: usize) -> Range<u64>;

    /// CRC32C of piece `i`.
    fn checksum(&self, i: usize) -> u32;

    /// Where the byte of this position lies in the segment.
    fn segment_offset(&self, at: u64) -> u64;

    /// What the piece is called in a report of damage.
    fn describe(&self, i: usize) -> String;

    /// Where the bytes of these positions lie. They are in pieces that follow each other in the segment.
    fn segment_range(&self, positions: &Range<u64>) -> SegmentRange {
        let start = self.segment_offset(positions.start);
        SegmentRange {
            segment: self.segment(),
            start,
            end: start + (positions.end - positions.start),
        }
    }
}
