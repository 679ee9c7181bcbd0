//! The cutter: from pieces of a log to chunks.
//!
//! Three places move through the bytes. Behind `addr` all is handed out. The decision where the grid lies at `addr` looks at
//! the anchors of the [`LOOKAHEAD_BYTES`] that follow. Anchors are known up to `scanned`.
//!
//! Invariants: a decision sees the anchors of exactly so many bytes, or of all up to the end of what is cut, whatever pieces the bytes came in.
use super::anchor::{Anchor, BLOCK, WINDOW, find_anchors};
use super::anchor_table::AnchorTable;
use super::grid::{Grid, MOVE_DISTANCE};
use super::parts::Parts;
use super::zero::is_zero;
use super::{Chunk, ChunkSize, LOOKAHEAD_BYTES};
use std::collections::VecDeque;
use std::sync::Arc;

/// Anchors that a new one is compared with.
const RECENT_ANCHORS: usize = 8;

/// Cuts the bytes of one log, in the order of their addresses.
///
/// A chunk on a grid that content chooses is handed out only when [`LOOKAHEAD_BYTES`] behind its start are known, or at
/// [`Cutter::finish`].
#[derive(Debug)]
pub struct Cutter {
    grid: Grid,
    /// What steers the grid; none if nothing does.
    anchors: Option<Anchors>,
    /// Bytes not handed out yet, from `start` on; the first is at `addr`.
    held: Vec<u8>,
    start: usize,
    addr: u64,
    /// For chunks that lie in two pieces.
    copy: Vec<u8>,
}

/// The anchors of bytes that are not handed out yet.
#[derive(Debug)]
struct Anchors {
    table: Arc<AnchorTable>,
    ahead: VecDeque<Anchor>,
    recent: VecDeque<Anchor>,
    scanned: u64,
}

impl Cutter {
    /// Cuts at multiples of the chunk size, whatever the content: for comparison, and where nothing is known of content.
    pub fn fixed(size: ChunkSize) -> Cutter {
        Cutter {
            grid: Grid::new(size.bytes() as u64),
            anchors: None,
            held: Vec::new(),
            start: 0,
            addr: 0,
            copy: Vec::new(),
        }
    }

    /// Cuts on the grid that the content chooses, with chunks of the table's size.
    pub fn anchored(table: Arc<AnchorTable>) -> Cutter {
        let size = table.chunk_size();
        Cutter {
            anchors: Some(Anchors {
                table,
                ahead: VecDeque::new(),
                recent: VecDeque::new(),
                scanned: 0,
            }),
            ..Cutter::fixed(size)
        }
    }

    /// The next bytes, of any length, at `addr`, which is the end of what was pushed before or lies behind it: a gap ends
    /// the chunk before it. Calls `chunk` for every chunk that is known now, in the order of addresses.
    pub fn push(&mut self, addr: u64, bytes: &[u8], mut chunk: impl FnMut(Chunk<'_>)) {
        if self.addr + self.held_len() as u64 != addr {
            self.finish(&mut chunk);
            self.addr = addr;
            if let Some(anchors) = &mut self.anchors {
                anchors.scanned = addr;
            }
        }
        self.cut(bytes, false, chunk);
    }

    /// The chunks of all that was pushed and is not handed out yet. The cutter may be used on, as behind a gap.
    pub fn finish(&mut self, chunk: impl FnMut(Chunk<'_>)) {
        self.cut(&[], true, chunk);
        if let Some(anchors) = &mut self.anchors {
            // Places whose window the end cut off are none.
            anchors.scanned = self.addr;
        }
    }

    /// All chunks below this address have been handed out.
    pub fn cut_to(&self) -> u64 {
        self.addr
    }

    /// What it takes; bytes.
    pub fn memory(&self) -> usize {
        self.held.capacity() + self.copy.capacity()
    }

    fn held_len(&self) -> usize {
        self.held.len() - self.start
    }

    fn cut(&mut self, piece: &[u8], last: bool, mut chunk: impl FnMut(Chunk<'_>)) {
        let parts = Parts {
            addr: self.addr,
            held: &self.held[self.start..],
            piece,
        };
        let end = parts.end();
        if let Some(anchors) = &mut self.anchors {
            anchors.scan(&parts, last, &mut self.copy);
        }
        while self.addr < end {
            if let Some(anchors) = &self.anchors {
                let horizon = self.addr + LOOKAHEAD_BYTES as u64;
                if !last && anchors.scanned < horizon {
                    break;
                }
                anchors.steer(&mut self.grid, self.addr, horizon);
            }
            let line = self.grid.line_after(self.addr);
            if line > end && !last {
                break;
            }
            let range = self.addr..line.min(end);
            if let Some(anchors) = &mut self.anchors {
                anchors.learn(&self.grid, range.end);
            }
            let bytes = parts.range(range.clone(), &mut self.copy);
            chunk(Chunk {
                addr: range.start,
                bytes,
                zero: is_zero(bytes),
            });
            self.addr = range.end;
        }
        let done = (self.addr - parts.addr) as usize;
        self.hold(done, piece);
    }

    /// Keeps what is left of the held bytes and the piece behind the first `done` of them.
    fn hold(&mut self, done: usize, piece: &[u8]) {
        let held = self.held_len();
        if done >= held {
            self.held.clear();
            self.start = 0;
            self.held.extend_from_slice(&piece[done - held..]);
            return;
        }
        self.start += done;
        // Moved once for each time that as much was added.
        if self.start >= self.held_len() {
            self.held.drain(..self.start);
            self.start = 0;
        }
        self.held.extend_from_slice(piece);
    }
}

impl Anchors {
    /// Looks for anchors in blocks whose bytes and those of the windows behind are there; up to the end if nothing follows.
    fn scan(&mut self, parts: &Parts<'_>, last: bool, copy: &mut Vec<u8>) {
        let (end, window) = (parts.end(), WINDOW as u64);
        loop {
            let block_end = (self.scanned / BLOCK as u64 + 1) * BLOCK as u64;
            let to = match block_end + window <= end {
                true => block_end + window,
                false if last && self.scanned + window < end => end,
                false => return,
            };
            let bytes = parts.range(self.scanned..to, copy);
            find_anchors(self.scanned, bytes, |anchor| {
                note(&mut self.recent, &mut self.ahead, anchor);
            });
            self.scanned = to - window;
        }
    }

    /// Moves the grid at `addr` if the anchors up to `horizon` say so.
    fn steer(&self, grid: &mut Grid, addr: u64, horizon: u64) {
        let near = self.ahead.iter().take_while(|a| a.addr < horizon);
        let present = grid.clone();
        let votes = near.filter_map(|anchor| {
            let offset = self.table.offset(anchor)?;
            Some(present.phase_for(anchor.addr, offset))
        });
        grid.steer(addr, votes);
    }

    /// The anchors below `end` lie on this grid.
    fn learn(&mut self, grid: &Grid, end: u64) {
        while let Some(anchor) = self.ahead.pop_front_if(|anchor| anchor.addr < end) {
            self.table.learn(&anchor, grid.offset(anchor.addr));
        }
    }
}

/// Adds an anchor, unless the same one was near: what repeats at short distances says nothing of a place.
fn note(recent: &mut VecDeque<Anchor>, ahead: &mut VecDeque<Anchor>, anchor: Anchor) {
    let same = recent.iter_mut().find(|known| known.id == anchor.id);
    let near = match same {
        Some(known) => {
            let distance = anchor.addr - std::mem::replace(&mut known.addr, anchor.addr);
            distance < MOVE_DISTANCE
        }
        None => {
            if recent.len() == RECENT_ANCHORS {
                recent.pop_front();
            }
            recent.push_back(anchor);
            false
        }
    };
    if !near {
        ahead.push_back(anchor);
    }
}
