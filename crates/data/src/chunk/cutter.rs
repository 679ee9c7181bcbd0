//! The cutter: turns the bytes of a log, pushed in pieces of any length, into chunks.
//!
//! ```text
//!          addr                        addr + LOOKAHEAD_BYTES
//! ----------|-----------------------------------|-------------|-----> log addresses
//!  handed    the next chunk begins here,         anchors are
//!  out       on the grid that the anchors        found up to
//!            up to the lookahead choose          `scanned`
//! ```
//!
//! Invariant: where the grid lies is decided with the anchors of exactly [`LOOKAHEAD_BYTES`], or of fewer at the end of the input.
//! So the cuts do not depend on how the input was split into pieces.
use super::anchor::{Anchor, AnchorFinder, BLOCK, WINDOW};
use super::anchor_table::AnchorTable;
use super::grid::{ChunkGrid, MOVE_DISTANCE};
use super::parts::SplitBytes;
use super::zero::is_zero;
use super::{Chunk, ChunkSize, LOOKAHEAD_BYTES};
use std::collections::VecDeque;
use std::sync::Arc;

/// Anchors that a new one is compared with.
const RECENT_ANCHORS: usize = 8;

/// Cuts the bytes of one log, in the order of their addresses.
///
/// On a grid that content chooses, a chunk is handed out once [`LOOKAHEAD_BYTES`] from its start on were pushed, or at
/// [`Cutter::finish`].
#[derive(Debug)]
pub struct Cutter {
    grid: ChunkGrid,
    /// The anchors that move the grid; `None` for a fixed grid.
    anchors: Option<Anchors>,
    /// Bytes not handed out yet, from `start` on; the first is at `addr`.
    held: Vec<u8>,
    start: usize,
    addr: u64,
    /// Buffer for a chunk that lies in two pieces.
    copy: Vec<u8>,
}

/// The anchors of bytes that are not handed out yet.
#[derive(Debug)]
struct Anchors {
    table: Arc<AnchorTable>,
    finder: AnchorFinder,
    /// By address; those of bytes that are handed out are removed.
    ahead: VecDeque<Anchor>,
    /// The newest distinct anchors, with the last position of each; also of repeats that are not in `ahead`.
    recent: VecDeque<Anchor>,
    scanned: u64,
}

impl Cutter {
    /// Cuts at multiples of the chunk size, whatever the content; for comparison.
    pub fn fixed(size: ChunkSize) -> Cutter {
        Cutter {
            grid: ChunkGrid::new(size.bytes() as u64),
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
                finder: AnchorFinder::new(),
                ahead: VecDeque::new(),
                recent: VecDeque::new(),
                scanned: 0,
            }),
            ..Cutter::fixed(size)
        }
    }

    /// Adds bytes at `addr`: at the end of what was pushed before, or after a gap, which ends the chunk before it. Calls `chunk`
    /// for each chunk that is complete now, in the order of addresses.
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

    /// Hands out the chunks of all that was pushed. The cutter can be used again, as after a gap.
    pub fn finish(&mut self, chunk: impl FnMut(Chunk<'_>)) {
        self.cut(&[], true, chunk);
        if let Some(anchors) = &mut self.anchors {
            // Positions whose window is cut off by the end are no anchors.
            anchors.scanned = self.addr;
        }
    }

    fn held_len(&self) -> usize {
        self.held.len() - self.start
    }

    fn cut(&mut self, piece: &[u8], last: bool, mut chunk: impl FnMut(Chunk<'_>)) {
        let parts = SplitBytes {
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
                anchors.update_phase(&mut self.grid, self.addr, horizon);
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

    /// Keeps the held bytes and the piece, without their first `done` bytes.
    fn hold(&mut self, done: usize, piece: &[u8]) {
        let held = self.held_len();
        if done >= held {
            self.held.clear();
            self.start = 0;
            self.held.extend_from_slice(&piece[done - held..]);
            return;
        }
        self.start += done;
        // Removed only when as many bytes are held as are removed: so a byte is moved once on average.
        if self.start >= self.held_len() {
            self.held.drain(..self.start);
            self.start = 0;
        }
        self.held.extend_from_slice(piece);
    }
}

impl Anchors {
    /// Finds the anchors of complete blocks (with the window after each); if it is the `last` piece, up to its end.
    fn scan(&mut self, parts: &SplitBytes<'_>, last: bool, copy: &mut Vec<u8>) {
        let (end, window) = (parts.end(), WINDOW as u64);
        loop {
            let block_end = (self.scanned / BLOCK as u64 + 1) * BLOCK as u64;
            let to = match block_end + window <= end {
                true => block_end + window,
                false if last && self.scanned + window < end => end,
                false => return,
            };
            let bytes = parts.range(self.scanned..to, copy);
            let (recent, ahead) = (&mut self.recent, &mut self.ahead);
            let at = self.scanned;
            self.finder
                .find(at, bytes, |anchor| note(recent, ahead, anchor));
            self.scanned = to - window;
        }
    }

    /// Moves the grid at `addr` if the votes of the anchors up to `horizon` say so.
    fn update_phase(&self, grid: &mut ChunkGrid, addr: u64, horizon: u64) {
        let near = self.ahead.iter().take_while(|a| a.addr < horizon);
        let present = grid.clone();
        let votes = near.filter_map(|anchor| {
            let offset = self.table.offset(anchor)?;
            Some(present.phase_for(anchor.addr, offset))
        });
        grid.update_phase(addr, votes);
    }

    /// Records in the table how the anchors below `end` lie on this grid.
    fn learn(&mut self, grid: &ChunkGrid, end: u64) {
        while let Some(anchor) = self.ahead.pop_front_if(|anchor| anchor.addr < end) {
            self.table.learn(&anchor, grid.offset(anchor.addr));
        }
    }
}

/// Adds an anchor, unless the same one came shortly before: repeating content does not identify a position.
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

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_testkit::random::{Random, seeded_bytes};
    use proptest::prelude::*;

    /// The most memory of a cutter, bytes: the bytes that wait to be cut, as many again that are cut but not removed yet, and the spare
    /// capacity of growing vectors.
    const MAX_CUTTER_BYTES: usize = 5 * (LOOKAHEAD_BYTES + crate::chunk::MAX_CHUNK_BYTES as usize);

    /// Contents that are cut in different ways: random bytes, zeros, constants, copies of what was before, at any place.
    fn content(seed: u64, len: usize) -> Vec<u8> {
        let mut random = Random::new(seed);
        let mut out: Vec<u8> = Vec::new();
        while out.len() < len {
            let n = 1 + random.index(200_000);
            match random.below(6) {
                0 => out.resize(out.len() + n, 0),
                1 => out.resize(out.len() + n, random.next() as u8),
                2 | 3 if !out.is_empty() => {
                    let from = random.index(out.len());
                    let to = out.len().min(from + n);
                    out.extend_from_within(from..to);
                }
                4 => {
                    let period = seeded_bytes(random.next(), 1 + random.index(500));
                    out.extend(period.iter().cycle().take(n));
                }
                _ => out.extend(seeded_bytes(random.next(), n)),
            }
        }
        out.truncate(len);
        out
    }

    fn cutter(size: u32, anchored: bool) -> Cutter {
        let size = ChunkSize::new(size).unwrap();
        match anchored {
            true => Cutter::anchored(Arc::new(AnchorTable::new(size, 1 << 14))),
            false => Cutter::fixed(size),
        }
    }

    /// Cuts it all from `addr` on in pieces of these sizes, over and over; the chunks as (address, length, zero).
    fn cut(
        mut cutter: Cutter,
        addr: u64,
        bytes: &[u8],
        pieces: &[usize],
    ) -> Vec<(u64, usize, bool)> {
        let mut chunks = Vec::new();
        let mut done = 0;
        let mut sizes = pieces.iter().cycle();
        let mut note = |chunk: Chunk<'_>| {
            let from = (chunk.addr - addr) as usize;
            assert_eq!(chunk.bytes, &bytes[from..from + chunk.bytes.len()]);
            chunks.push((chunk.addr, chunk.bytes.len(), chunk.zero));
        };
        while done < bytes.len() {
            let n = (*sizes.next().unwrap()).clamp(1, bytes.len() - done);
            cutter.push(addr + done as u64, &bytes[done..done + n], &mut note);
            done += n;
            assert!(cutter.held.capacity() + cutter.copy.capacity() <= MAX_CUTTER_BYTES);
        }
        cutter.finish(&mut note);
        assert_eq!(cutter.addr, addr + bytes.len() as u64);
        chunks
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(24, 2000)))]
        #[test]
        fn chunks_hold_every_byte_once_and_pieces_make_no_difference(
            seed: u64, len in 0usize..1_500_000, addr in 0u64..100_000, size in 12u32..=16, anchored: bool,
            pieces in prop::collection::vec(prop_oneof![1usize..300, 1usize..5000, 1usize..2_000_000], 1..5),
        ) {
            let bytes = content(seed, len);
            let whole = cut(cutter(1 << size, anchored), addr, &bytes, &[len]);
            let mut end = addr;
            for (at, n, zero) in &whole {
                prop_assert_eq!(*at, end);
                prop_assert!(*n > 0 && *n <= 1 << size);
                let from = (at - addr) as usize;
                prop_assert_eq!(*zero, bytes[from..from + n].iter().all(|b| *b == 0));
                end += *n as u64;
            }
            prop_assert_eq!(end, addr + len as u64);
            let short = whole.iter().filter(|chunk| chunk.1 < 1 << size).count() as u64;
            prop_assert!(short <= 2 + len as u64 / MOVE_DISTANCE.max(1 << size));
            // Very small pieces of much take long.
            let least = pieces.iter().map(|n| (*n).max(len / 3000)).collect::<Vec<_>>();
            prop_assert_eq!(whole, cut(cutter(1 << size, anchored), addr, &bytes, &least));
        }

        #[test]
        fn a_gap_ends_a_chunk_and_the_cutter_goes_on_behind_it(len in 1usize..20_000, gap in 1u64..20_000, anchored: bool) {
            let bytes = content(1, len);
            let mut cutter = cutter(4096, anchored);
            let mut chunks = Vec::new();
            for at in [0, len as u64 + gap] {
                cutter.push(at, &bytes, |chunk| chunks.push(chunk.range()));
            }
            prop_assert!(chunks.iter().any(|chunk| chunk.end == len as u64));
            cutter.finish(|chunk| chunks.push(chunk.range()));
            let bytes: u64 = chunks.iter().map(|chunk| chunk.end - chunk.start).sum();
            prop_assert_eq!(bytes, 2 * len as u64);
            prop_assert!(chunks.iter().all(|c| c.end <= len as u64 || c.start >= len as u64 + gap));
        }
    }

    #[test]
    fn without_anchors_chunks_end_at_multiples_of_their_size_at_once() {
        let mut cutter = cutter(8192, false);
        let mut ends = Vec::new();
        cutter.push(100, &[1; 20_000], |chunk| ends.push(chunk.range().end));
        assert_eq!(ends, [8192, 16_384]);
        cutter.finish(|chunk| ends.push(chunk.range().end));
        assert_eq!(ends, [8192, 16_384, 20_100]);
    }

    #[test]
    fn content_that_was_cut_before_is_cut_at_the_same_places_wherever_it_lies() {
        let bytes = seeded_bytes(5, 1 << 20);
        let table = Arc::new(AnchorTable::new(ChunkSize::MIN, 1 << 14));
        let cut_at = |addr| cut(Cutter::anchored(table.clone()), addr, &bytes, &[1 << 20]);
        let first = cut_at(0);
        for addr in [137, 4096, 9999] {
            let again: Vec<_> = cut_at(addr).iter().map(|c| (c.0 - addr, c.1)).collect();
            let same = first.iter().filter(|c| again.contains(&(c.0, c.1))).count();
            assert!(
                same >= first.len() - 1,
                "{same} of {} at {addr}",
                first.len()
            );
        }
    }
}
