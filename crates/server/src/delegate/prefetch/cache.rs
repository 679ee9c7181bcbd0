//! The bytes fetched ahead, shared by the threads that fetch them and the reads that take them.
//!
//! Invariants: a read takes bytes only if its file is at their generation; it waits no longer than a fetch usually takes.
use super::fetched_pieces::{FetchedPieces, PieceLookup, WantedPiece};
use crate::Fid;
use crate::delegate::open_file::{FileState, OpenFile};
use bytes::Bytes;
use forebay_pattern::ReadRequest;
use parking_lot::{Condvar, Mutex};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// See the head of this file.
pub struct PieceCache {
    pub pieces: Mutex<FetchedPieces>,
    /// A piece came, or will not come.
    arrived: Condvar,
    /// Bytes in `pieces`: a look at it tells that there are none.
    pub held: AtomicU64,
    /// What a fetch takes, nanoseconds, about.
    usual: AtomicU64,
    /// Handles that are watched.
    pub watched: AtomicU64,
}

pub fn byte_range(request: ReadRequest) -> Range<u64> {
    request.offset..request.offset.saturating_add(request.len)
}

/// The generation as of which `range` can be read without this node's own writes, and what of it lies before the end of the file.
pub fn committed_part(state: &FileState, range: &Range<u64>) -> Option<(u64, Range<u64>)> {
    let size = state.attr.size;
    if state.dirty() {
        let above = state.unpublished().any(|layer| {
            let (here, next) = layer.intervals.segment(range.start);
            here.is_some() || next < range.end
        });
        // A file that grows here shows zeros behind its committed end.
        if above || (state.size() != size && range.end > size) {
            return None;
        }
    }
    let range = range.start..range.end.min(size);
    (!range.is_empty()).then_some((state.attr.generation, range))
}

impl PieceCache {
    /// Of at most `limit` bytes.
    pub fn new(limit: u64) -> PieceCache {
        PieceCache {
            pieces: Mutex::new(FetchedPieces::new(limit)),
            arrived: Condvar::new(),
            held: AtomicU64::new(0),
            usual: AtomicU64::new(0),
            watched: AtomicU64::new(0),
        }
    }

    /// Notes how much is held, after a change of `pieces`.
    pub fn count(&self, pieces: &FetchedPieces) {
        self.held.store(pieces.stats.held_bytes, Ordering::Relaxed);
    }

    /// Nobody will read these.
    pub fn give_up(&self, fid: Fid, requests: &[ReadRequest]) {
        if requests.is_empty() {
            return;
        }
        let mut pieces = self.pieces.lock();
        requests
            .iter()
            .for_each(|r| pieces.give_up(fid, &byte_range(*r)));
        self.count(&pieces);
    }

    /// Notes that a piece was fetched, and how long that took, or that it could not be. Wakes its waiters.
    pub fn fill(
        &self,
        fid: Fid,
        wanted: &WantedPiece,
        bytes: Option<Bytes>,
        waited: Duration,
        took: Duration,
    ) {
        if bytes.is_some() {
            self.learn(took);
        }
        let mut pieces = self.pieces.lock();
        pieces.fill(fid, wanted, bytes, waited, Instant::now());
        self.count(&pieces);
        drop(pieces);
        self.arrived.notify_all();
    }

    /// Updates the usual duration of a fetch.
    fn learn(&self, took: Duration) {
        let took = took.as_nanos().min(u128::from(u32::MAX)) as u64;
        let before = self.usual.load(Ordering::Relaxed);
        let now = match before {
            0 => took,
            _ => before - before / 8 + took / 8,
        };
        self.usual.store(now.max(1), Ordering::Relaxed);
    }

    /// What is read now, if it was fetched ahead, and how long that waited; or whether it was to be.
    pub fn take(
        &self,
        file: &OpenFile,
        request: ReadRequest,
    ) -> Result<(Bytes, Duration, bool), bool> {
        if self.held.load(Ordering::Relaxed) == 0 {
            return Err(false);
        }
        let now = committed_part(&file.state.lock(), &byte_range(request));
        let Some((generation, range)) = now else {
            return Err(false);
        };
        let mut pieces = self.pieces.lock();
        let mut until = None;
        loop {
            match pieces.find(file.fid, generation, &range) {
                PieceLookup::Here(bytes, waited) => {
                    pieces.stats.hits += 1;
                    pieces.stats.waits += u64::from(until.is_some());
                    return Ok((bytes, waited, until.is_some()));
                }
                PieceLookup::No { queued } => {
                    self.count(&pieces);
                    return Err(queued || until.is_some());
                }
                PieceLookup::Coming => {
                    let usual = Duration::from_nanos(self.usual.load(Ordering::Relaxed));
                    let until = *until.get_or_insert_with(|| Instant::now() + usual);
                    if self.arrived.wait_until(&mut pieces, until).timed_out() {
                        return Err(true);
                    }
                }
            }
        }
    }
}
