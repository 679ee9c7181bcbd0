//! The pieces of one file, in the order of their offsets; they never overlap.
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Where a piece is.
#[derive(Debug)]
pub(super) enum PieceStage {
    /// Nobody has asked for it yet.
    Queued,
    /// Asked for.
    Coming,
    Here {
        bytes: Bytes,
        /// How long that waited for other nodes.
        waited: Duration,
        /// Bytes of it that were read.
        read: u64,
    },
}

#[derive(Debug)]
pub(super) struct FetchedPiece {
    /// Names it: another one may begin at the same place later.
    pub(super) id: u64,
    pub(super) len: u64,
    pub(super) stage: PieceStage,
    /// Its place in `spent` or `fresh`; 0: in neither.
    pub(super) turn: u64,
    pub(super) given_up: bool,
}

#[derive(Debug, Default)]
pub(super) struct FilePieces {
    pub(super) generation: u64,
    pub(super) pieces: BTreeMap<u64, FetchedPiece>,
}

impl FilePieces {
    /// Where the piece begins that holds `at`, or the next one.
    pub(super) fn first(&self, at: u64) -> u64 {
        match self.pieces.range(..=at).next_back() {
            Some((&start, piece)) if start + piece.len > at => start,
            _ => at,
        }
    }

    pub(super) fn overlapping(
        &self,
        range: &Range<u64>,
    ) -> impl Iterator<Item = (u64, &FetchedPiece)> {
        let from = self.first(range.start);
        let pieces = self.pieces.range(from..range.end.max(from));
        pieces.map(|(start, piece)| (*start, piece))
    }
}
