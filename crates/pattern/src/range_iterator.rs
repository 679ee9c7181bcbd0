//! Iterates over all pieces of a range of a map, in the order of offsets. A piece costs a few additions, unless loops overlap.
//!
//! An entry of the map is *open* while the iterator's offset lies in it. Its elements are read a row at a time (`row_iterator`).
//!
//! ```text
//! open entries with a piece at the offset
//!   one                     its pieces, up to where another entry begins
//!   several                 the newest piece, up to where any of them begins or ends
//!   an overlapping loop     one lookup in the map for each piece
//! ```
//!
//! # Invariants
//! 1. All pieces before the offset were returned. The current piece of every open entry ends after the offset.

use crate::map::{EntryPart, MapEntry, MapLookup, PatternMap};
use crate::row_iterator::{Row, RowAdvance, Rows};
use crate::segment::PlacedExtent;
use std::ops::Range;

/// Rows that are skipped one by one; then the entry is searched instead.
const ROWS_BEFORE_SEEK: usize = 4;

/// See the module. Made by [`PatternMap::pieces`].
#[derive(Debug)]
pub struct SourceRanges<'a> {
    map: &'a PatternMap,
    at: u64,
    end: u64,
    /// The first entry that was not opened yet.
    next: usize,
    open: Vec<OpenEntry<'a>>,
    /// Up to here there are entries with overlapping loops.
    rough: u64,
}

/// An open entry.
#[derive(Debug)]
struct OpenEntry<'a> {
    entry: &'a MapEntry,
    /// None for a single extent.
    rows: Option<Rows<'a>>,
    /// The rest of the current row, from the offset on.
    row: Row,
}

impl PatternMap {
    /// An iterator over the pieces of `range`, which returns them in portions.
    pub fn pieces(&self, range: Range<u64>) -> SourceRanges<'_> {
        let mut pieces = SourceRanges {
            map: self,
            at: range.start,
            end: range.end,
            next: self.entries.partition_point(|e| e.lo <= range.start),
            open: Vec::new(),
            rough: 0,
        };
        self.around(0, self.entries.len(), range.start, &mut |entry| {
            pieces.add(entry);
        });
        pieces
    }

    /// Appends the pieces of `range`, in order. Bytes between them are not in this map. Pieces that continue each other in file and log
    /// are joined.
    pub fn resolve(&self, range: Range<u64>, out: &mut Vec<PlacedExtent>) {
        self.pieces(range).fill(usize::MAX, out);
    }
}

impl<'a> SourceRanges<'a> {
    /// Appends the next `most` pieces or slightly fewer, in order. Bytes between them are not in the map. Pieces of one portion that
    /// continue each other in file and log are joined. Returns whether there may be more.
    pub fn fill(&mut self, most: usize, out: &mut Vec<PlacedExtent>) -> bool {
        let first = out.len();
        let mut out = PieceBuffer { first, out };
        while self.at < self.end {
            let Some(room) = most.checked_sub(out.len()).filter(|room| *room > 0) else {
                return true;
            };
            while let Some(entry) = self.map.entries.get(self.next).filter(|e| e.lo <= self.at) {
                self.next += 1;
                self.add(entry);
            }
            if self.rough > self.at {
                self.lookup_at_offset(&mut out);
                continue;
            }
            let at = self.at;
            self.open.retain_mut(|o| o.reach(at));
            let stop = self
                .map
                .entries
                .get(self.next)
                .map_or(self.end, |e| e.lo.min(self.end));
            match self.open.len() {
                0 => self.at = stop,
                1 => self.at = self.open[0].run(at, stop, room, &mut out),
                _ => self.step(stop, room, &mut out),
            }
        }
        false
    }

    /// The current offset: all pieces before it were returned.
    pub fn at(&self) -> u64 {
        self.at
    }

    fn add(&mut self, entry: &'a MapEntry) {
        match &entry.part {
            EntryPart::GlobalPattern(global) if global.lattice.joined => {
                let mut rows = Rows::new(global, self.at);
                if let Some(row) = rows.next() {
                    let rows = Some(rows);
                    self.open.push(OpenEntry { entry, rows, row });
                }
            }
            _ => match entry.extent() {
                Some((extent, segment)) => {
                    let piece = self.map.placed(segment, extent);
                    self.open.push(OpenEntry {
                        entry,
                        rows: None,
                        row: Row::one(piece.clip(entry.lo..entry.hi)),
                    });
                }
                None => self.rough = self.rough.max(entry.hi),
            },
        }
    }

    /// Looks up the piece or hole at the offset.
    fn lookup_at_offset(&mut self, out: &mut PieceBuffer<'_>) {
        match self.map.lookup_above(self.at, None) {
            MapLookup::End => self.at = self.end,
            MapLookup::Hole(end) => self.at = end,
            MapLookup::Data(piece) => {
                let piece = piece.clip(self.at..self.end);
                self.at = piece.end();
                out.push(piece);
            }
        }
    }

    /// Goes on from several entries, at most to `stop`.
    fn step(&mut self, stop: u64, room: usize, out: &mut PieceBuffer<'_>) {
        let start = |o: &OpenEntry<'_>| o.row.offset.max(self.at);
        let least = self.open.iter().map(start).min().unwrap_or(stop);
        if least >= stop {
            self.at = stop;
            return;
        }
        let (mut here, mut first, mut bound, mut end) = (0, 0, stop, stop);
        for (i, open) in self.open.iter().enumerate() {
            match start(open) {
                s if s > least => bound = bound.min(s),
                _ => {
                    here += 1;
                    first = i;
                    end = end.min(open.end());
                }
            }
        }
        self.at = least;
        if here == 1 {
            self.at = self.open[first].run(least, bound, room, out);
            return;
        }
        let end = end.min(bound);
        let there = self.open.iter_mut().filter(|o| o.row.offset <= least);
        if let Some(newest) = there.map(OpenEntry::piece).max_by_key(PlacedExtent::order) {
            out.push(newest.clip(least..end));
        }
        self.at = end;
    }
}

impl OpenEntry<'_> {
    /// Passes over what ends at `offset` or before; whether anything is left.
    fn reach(&mut self, offset: u64) -> bool {
        let mut tries = 0;
        loop {
            if self.row.len > 0 {
                self.row.skip_to(offset);
                if self.row.left > 0 {
                    return offset < self.entry.hi && self.row.offset < self.entry.hi;
                }
            }
            let Some(rows) = &mut self.rows else {
                return false;
            };
            tries += 1;
            if tries == ROWS_BEFORE_SEEK {
                rows.seek(offset);
            }
            match rows.next() {
                Some(row) => self.row = row,
                None => return false,
            }
        }
    }

    /// The end of the current piece.
    fn end(&self) -> u64 {
        self.row.end().min(self.entry.hi)
    }

    fn piece(&mut self) -> PlacedExtent {
        let piece = self.row.piece(self.rows.as_mut());
        let hi = self.entry.hi;
        piece.clip(piece.offset..hi)
    }

    /// Appends what there is from `at` to `stop`, where no other entry has anything; at most `room` pieces. Returns how far it came.
    fn run(&mut self, at: u64, stop: u64, room: usize, out: &mut PieceBuffer<'_>) -> u64 {
        let bound = stop.min(self.entry.hi);
        let mut room = room as u64;
        while self.row.end() <= bound || self.row.len == 0 {
            if room == 0 {
                return self.row.offset.max(at);
            }
            let count = self.row.within(bound).min(room);
            room -= count;
            if self.row.len > 0 {
                out.row(&self.row, count, at, self.rows.as_mut());
            }
            self.row.skip(count);
            if self.row.left == 0 {
                match self.rows.as_mut().and_then(Rows::next) {
                    Some(row) => self.row = row,
                    None => return stop,
                }
            }
        }
        if self.row.offset < bound {
            if room == 0 {
                return self.row.offset.max(at);
            }
            let piece = self.piece();
            out.push(piece.clip(at..bound));
        }
        bound
    }
}

/// What was found.
struct PieceBuffer<'o> {
    first: usize,
    out: &'o mut Vec<PlacedExtent>,
}

impl PieceBuffer<'_> {
    fn len(&self) -> usize {
        self.out.len() - self.first
    }

    #[inline]
    fn push(&mut self, piece: PlacedExtent) {
        if let Some(last) = self.out[self.first..].last_mut()
            && last.end() == piece.offset
            && last.addr + last.len == piece.addr
            && (last.source, last.sequence) == (piece.source, piece.sequence)
        {
            last.len += piece.len;
            return;
        }
        self.out.push(piece);
    }

    /// The first `count` of a row, from `at` on, where the first may have begun before.
    fn row(&mut self, row: &Row, count: u64, at: u64, rows: Option<&mut Rows<'_>>) {
        let mut rows = rows;
        let mut next = *row;
        let piece = next.piece(rows.as_deref_mut());
        self.push(piece.clip(at..u64::MAX));
        self.out.reserve(count as usize - 1);
        match row.along {
            RowAdvance::Log((source, sequence, mut addr), step) => {
                for _ in 1..count {
                    next.offset += row.stride;
                    addr = addr.wrapping_add(step);
                    self.push(PlacedExtent {
                        offset: next.offset,
                        len: row.len,
                        source,
                        addr,
                        sequence,
                    });
                }
            }
            RowAdvance::Slots(..) => {
                for _ in 1..count {
                    next.skip(1);
                    self.push(next.piece(rows.as_deref_mut()));
                }
            }
        }
    }
}
