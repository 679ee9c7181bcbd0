//! The net effect of a batch of changes, before it is laid over the stored extents: an ordered map of pieces.
//!
//! Invariants: pieces do not overlap; none is empty; the newest change of a byte owns it.

use crate::{Change, Extent};
use std::collections::BTreeMap;

/// Consecutive bytes with one fate. Lengths here have no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverlayPiece {
    pub start: u64,
    pub end: u64,
    /// Where the bytes come from; `None`: a hole. Its range is `start..end`.
    pub source: Option<Extent>,
}

impl OverlayPiece {
    fn new(start: u64, end: u64, source: Option<Extent>) -> OverlayPiece {
        let source = source.and_then(|e| e.clip(&(start..end)));
        OverlayPiece { start, end, source }
    }

    fn of(change: &Change) -> OverlayPiece {
        match *change {
            Change::Put(e) => OverlayPiece::new(e.offset, e.end(), Some(e)),
            Change::Cut { start, end } => OverlayPiece::new(start, end, None),
        }
    }

    /// Grows by a piece that continues it.
    fn extend_by(&mut self, next: &OverlayPiece) {
        self.end = next.end;
        if let Some(source) = &mut self.source {
            source.len = self.end - self.start;
        }
    }

    /// The part of this piece inside `start..end`, which must overlap it.
    fn part(&self, start: u64, end: u64) -> OverlayPiece {
        OverlayPiece::new(self.start.max(start), self.end.min(end), self.source)
    }

    fn continues_with(&self, next: &OverlayPiece) -> bool {
        self.end == next.start
            && match (&self.source, &next.source) {
                (Some(a), Some(b)) => a.continues_with(b),
                (None, None) => true,
                _ => false,
            }
    }

    /// Whether `extent`, which overlaps this piece, keeps its log bytes in use where they overlap.
    pub fn keeps_log_bytes(&self, extent: &Extent) -> bool {
        self.source.is_some_and(|s| s.same_bytes(extent))
    }
}

/// The pieces that `changes` leave behind, the later over the earlier, in order; and the parts of their puts whose log bytes
/// none of the pieces uses. No piece continues the one before.
pub(crate) fn fold(changes: &[Change]) -> (Vec<OverlayPiece>, Vec<Extent>) {
    let mut pieces: Vec<OverlayPiece> = Vec::with_capacity(changes.len());
    let mut ascending = true;
    for change in changes {
        let piece = OverlayPiece::of(change);
        if piece.start < piece.end {
            ascending &= pieces.last().is_none_or(|last| last.end <= piece.start);
            pieces.push(piece);
        }
    }
    // Mostly nothing overlaps: then the order does not count.
    if !ascending {
        pieces.sort_unstable_by_key(|piece| piece.start);
        ascending = pieces.is_sorted_by(|a, b| a.end <= b.start);
    }
    let mut unused = Vec::new();
    if !ascending {
        (pieces, unused) = Overlay::of(changes).into_parts();
    }
    pieces.dedup_by(|piece, last| {
        let continues = last.continues_with(piece);
        if continues {
            last.extend_by(piece);
        }
        continues
    });
    (pieces, unused)
}

/// The changes of one batch, folded.
#[derive(Debug, Default)]
struct Overlay {
    pieces: BTreeMap<u64, OverlayPiece>,
    /// Parts of puts that a later change of the same batch covered.
    shadowed: Vec<Extent>,
}

impl Overlay {
    /// Folds `changes`, the later over the earlier.
    fn of(changes: &[Change]) -> Overlay {
        let mut overlay = Overlay::default();
        for change in changes {
            let piece = OverlayPiece::of(change);
            if piece.start < piece.end {
                overlay.insert(piece);
            }
        }
        overlay
    }

    fn insert(&mut self, piece: OverlayPiece) {
        // Batches arrive nearly sorted: mostly the new piece follows, and often continues, the last one.
        let mut last = self.pieces.last_entry();
        match last.as_mut().map(|l| l.get_mut()) {
            Some(last) if last.end > piece.start => self.cover(piece.start, piece.end),
            Some(last) if last.continues_with(&piece) => {
                last.extend_by(&piece);
                return;
            }
            _ => {}
        }
        self.pieces.insert(piece.start, piece);
    }

    /// Takes `start..end` away from the pieces that have it.
    fn cover(&mut self, start: u64, end: u64) {
        let before = self.pieces.range(..start).next_back();
        if let Some(old) = before.map(|(_, p)| *p).filter(|p| p.end > start) {
            self.pieces.insert(old.start, old.part(0, start));
            self.pieces.insert(start, old.part(start, u64::MAX));
        }
        while let Some(old) = self.pieces.range(start..end).next().map(|(_, p)| *p) {
            self.pieces.remove(&old.start);
            self.shadowed.extend(old.part(start, end).source);
            if old.end > end {
                self.pieces.insert(end, old.part(end, u64::MAX));
            }
        }
    }

    /// The pieces in order, and the parts of this batch's puts whose log bytes none of the pieces uses.
    fn into_parts(self) -> (Vec<OverlayPiece>, Vec<Extent>) {
        let mut unused = Vec::new();
        for old in &self.shadowed {
            // Every byte of a shadowed put lies in some piece.
            let first = self.pieces.range(..=old.offset).next_back();
            let from = first.map_or(old.offset, |(start, _)| *start);
            for piece in self.pieces.range(from..old.end()).map(|(_, p)| p) {
                unused.extend(
                    old.clip(&(piece.start..piece.end))
                        .filter(|part| !piece.keeps_log_bytes(part)),
                );
            }
        }
        (self.pieces.into_values().collect(), unused)
    }
}
