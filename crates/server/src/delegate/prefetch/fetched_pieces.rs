//! The bytes fetched ahead: which ranges of which files are on their way or here, inside a budget.
//!
//! Pure: no I/O, no clock of its own, no lock.
//!
//! Invariants:
//! - Pieces of a file are of one generation, never empty, and never overlap.
//! - `bytes` is the sum of all pieces' lengths, whether they are here or still to come, and never above the limit.
//! - Evicted are pieces that were read or given up, then those that nobody has read for [`UNREAD_PIECE_AGE`]. No others: fetching
//!   too far ahead for one reader must not evict what another one is about to read.
mod file;

use super::stats::PrefetchStats;
use crate::Fid;
use bytes::{Bytes, BytesMut};
use file::{FetchedPiece, FilePieces, PieceStage};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::{Duration, Instant};

/// A piece that was not read for this long may be evicted.
pub const UNREAD_PIECE_AGE: Duration = Duration::from_secs(2);

/// What a read finds.
#[derive(Debug)]
pub enum PieceLookup {
    /// All of it, and how long the piece waited that waited longest.
    Here(Bytes, Duration),
    /// What is not here is being fetched.
    Coming,
    /// Not all of it; `queued`: some of it was to be fetched.
    No {
        /// See there.
        queued: bool,
    },
}

/// A piece that is to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPiece {
    /// Names the piece.
    pub id: u64,
    /// Which bytes.
    pub range: Range<u64>,
}

/// See the head of this file.
#[derive(Debug)]
pub struct FetchedPieces {
    limit: u64,
    files: HashMap<Fid, FilePieces>,
    /// Read already, or given up: the first goes first.
    spent: BTreeMap<u64, (Fid, u64)>,
    /// Here and not read, and since when.
    fresh: BTreeMap<u64, (Fid, u64, Instant)>,
    next: u64,
    /// What has become of all; `held_bytes` is always right.
    pub stats: PrefetchStats,
}

impl FetchedPieces {
    /// Nothing yet, and never more than `limit` bytes.
    pub fn new(limit: u64) -> FetchedPieces {
        FetchedPieces {
            limit,
            files: HashMap::new(),
            spent: BTreeMap::new(),
            fresh: BTreeMap::new(),
            next: 0,
            stats: PrefetchStats::default(),
        }
    }

    /// The parts of `range` that are neither here nor on their way; they are from now on. `None`: there is no room.
    pub fn reserve_missing(
        &mut self,
        fid: Fid,
        generation: u64,
        range: Range<u64>,
        now: Instant,
    ) -> Option<Vec<WantedPiece>> {
        self.reach(fid, generation)?;
        let mut gaps = Vec::new();
        let mut at = range.start;
        if let Some(file) = self.files.get(&fid) {
            for (start, piece) in file.overlapping(&range) {
                if start > at {
                    gaps.push(at..start);
                }
                at = at.max(start + piece.len);
            }
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        if gaps.is_empty() {
            return Some(Vec::new());
        }
        let needed = gaps.iter().map(|g| g.end - g.start).sum();
        if !self.make_room(needed, now) {
            return None;
        }
        // Making room may have taken the file's last piece.
        let file = self.files.entry(fid).or_default();
        file.generation = generation;
        let mut wanted = Vec::with_capacity(gaps.len());
        for range in gaps {
            self.next += 1;
            let piece = FetchedPiece {
                id: self.next,
                len: range.end - range.start,
                stage: PieceStage::Queued,
                turn: 0,
                given_up: false,
            };
            file.pieces.insert(range.start, piece);
            wanted.push(WantedPiece {
                id: self.next,
                range,
            });
        }
        self.stats.held_bytes += needed;
        self.stats.predicted += wanted.len() as u64;
        Some(wanted)
    }

    /// Pieces of an older generation go. `None`: the file is known to be newer than that.
    fn reach(&mut self, fid: Fid, generation: u64) -> Option<()> {
        let known = self.files.get(&fid).map(|f| f.generation);
        match known {
            Some(known) if known > generation => return None,
            Some(known) if known < generation => self.forget(fid),
            _ => {}
        }
        Some(())
    }

    fn make_room(&mut self, needed: u64, now: Instant) -> bool {
        while self.stats.held_bytes + needed > self.limit {
            let oldest = self.spent.first_key_value().map(|(_, place)| *place);
            let stale = || {
                let (_, &(fid, start, since)) = self.fresh.first_key_value()?;
                (now.saturating_duration_since(since) >= UNREAD_PIECE_AGE).then_some((fid, start))
            };
            let Some((fid, start)) = oldest.or_else(stale) else {
                return false;
            };
            self.remove(fid, start);
        }
        true
    }

    /// Someone fetches the piece now. `false`: nobody wants it any more.
    pub fn begin(&mut self, fid: Fid, wanted: &WantedPiece) -> bool {
        let piece = self.piece(fid, wanted);
        piece.map(|p| p.stage = PieceStage::Coming).is_some()
    }

    /// The piece was fetched, or could not be.
    pub fn fill(
        &mut self,
        fid: Fid,
        wanted: &WantedPiece,
        bytes: Option<Bytes>,
        waited: Duration,
        now: Instant,
    ) {
        let bytes = bytes.filter(|b| b.len() as u64 == wanted.range.end - wanted.range.start);
        let fetched = bytes.as_ref().map_or(0, |b| b.len() as u64);
        self.stats.fetched_bytes += fetched;
        if self.piece(fid, wanted).is_none() {
            self.stats.wasted_bytes += fetched;
            return;
        }
        let Some(bytes) = bytes else {
            self.remove(fid, wanted.range.start);
            return;
        };
        self.next += 1;
        let turn = self.next;
        let Some(piece) = self.piece(fid, wanted) else {
            return;
        };
        let read = 0;
        piece.stage = PieceStage::Here {
            bytes,
            waited,
            read,
        };
        piece.turn = turn;
        match piece.given_up {
            true => drop(self.spent.insert(turn, (fid, wanted.range.start))),
            false => drop(self.fresh.insert(turn, (fid, wanted.range.start, now))),
        }
    }

    fn piece(&mut self, fid: Fid, wanted: &WantedPiece) -> Option<&mut FetchedPiece> {
        let file = self.files.get_mut(&fid)?;
        let piece = file.pieces.get_mut(&wanted.range.start)?;
        (piece.id == wanted.id).then_some(piece)
    }

    /// What is here of a range that is not empty. Pieces of it that wait for someone to fetch them leave the queue,
    /// for the reader asks itself.
    pub fn find(&mut self, fid: Fid, generation: u64, range: &Range<u64>) -> PieceLookup {
        let (mut at, mut coming, mut queued, mut longest) =
            (range.start, false, Vec::new(), Duration::ZERO);
        let file = self.files.get(&fid);
        if let Some(file) = file.filter(|f| f.generation == generation) {
            for (start, piece) in file.overlapping(range) {
                let end = start + piece.len;
                match &piece.stage {
                    PieceStage::Queued => {
                        queued.push((start, end));
                        continue;
                    }
                    PieceStage::Coming => coming = true,
                    PieceStage::Here { waited, .. } => longest = longest.max(*waited),
                }
                if start > at {
                    break;
                }
                at = end;
            }
        }
        if at < range.end {
            for &(start, end) in &queued {
                if range.start <= start && end <= range.end {
                    self.remove(fid, start);
                }
            }
            let queued = !queued.is_empty();
            return PieceLookup::No { queued };
        }
        if coming {
            return PieceLookup::Coming;
        }
        PieceLookup::Here(self.take(fid, range), longest)
    }

    /// The bytes of a range that is here; its pieces are read now.
    fn take(&mut self, fid: Fid, range: &Range<u64>) -> Bytes {
        let mut parts = Vec::new();
        let mut spent = Vec::new();
        if let Some(file) = self.files.get_mut(&fid) {
            let from = file.first(range.start);
            for (&start, piece) in file.pieces.range_mut(from..range.end) {
                let PieceStage::Here { bytes, read, .. } = &mut piece.stage else {
                    continue;
                };
                let part = range.start.max(start)..range.end.min(start + piece.len);
                if part.is_empty() {
                    continue;
                }
                self.stats.right += u64::from(*read == 0);
                let more = (part.end - part.start).min(piece.len - *read);
                *read += more;
                self.stats.used_bytes += more;
                parts.push(bytes.slice((part.start - start) as usize..(part.end - start) as usize));
                // A piece that is read bit by bit is still to be read.
                if *read == piece.len || part.end == start + piece.len {
                    self.next += 1;
                    spent.push((piece.turn, self.next, start));
                    piece.turn = self.next;
                }
            }
        }
        for (before, now, start) in spent {
            self.fresh.remove(&before);
            self.spent.remove(&before);
            self.spent.insert(now, (fid, start));
        }
        match &parts[..] {
            [one] => one.clone(),
            _ => {
                let mut all = BytesMut::with_capacity((range.end - range.start) as usize);
                parts.iter().for_each(|p| all.extend_from_slice(p));
                all.freeze()
            }
        }
    }

    /// Nobody will read this range, it seems: what is not fetched yet need not be, and the rest goes first.
    pub fn give_up(&mut self, fid: Fid, range: &Range<u64>) {
        let Some(file) = self.files.get_mut(&fid) else {
            return;
        };
        let mut queued = Vec::new();
        for (&start, piece) in file.pieces.range_mut(range.clone()) {
            piece.given_up = true;
            match piece.stage {
                PieceStage::Queued => queued.push(start),
                PieceStage::Coming => {}
                PieceStage::Here { .. } => {
                    if self.fresh.remove(&piece.turn).is_some() {
                        self.spent.insert(piece.turn, (fid, start));
                    }
                }
            }
        }
        for start in queued {
            self.remove(fid, start);
        }
    }

    /// All pieces of a file go.
    pub fn forget(&mut self, fid: Fid) {
        let starts: Vec<u64> = match self.files.get(&fid) {
            Some(file) => file.pieces.keys().copied().collect(),
            None => return,
        };
        starts.into_iter().for_each(|start| self.remove(fid, start));
        self.files.remove(&fid);
    }

    fn remove(&mut self, fid: Fid, start: u64) {
        let Some(file) = self.files.get_mut(&fid) else {
            return;
        };
        let Some(piece) = file.pieces.remove(&start) else {
            return;
        };
        if file.pieces.is_empty() {
            self.files.remove(&fid);
        }
        self.stats.held_bytes -= piece.len;
        self.spent.remove(&piece.turn);
        self.fresh.remove(&piece.turn);
        if let PieceStage::Here { read, .. } = piece.stage {
            self.stats.wasted_bytes += piece.len - read;
        }
    }
}

#[cfg(test)]
mod tests;
