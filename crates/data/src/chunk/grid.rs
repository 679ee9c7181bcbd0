//! The grid on which chunks are cut, and when it moves. (Anchors: see `anchor`.)
//!
//! Its lines are one chunk size apart. Its **phase** is the log address of a line modulo the chunk size. At the start of a log the
//! phase is 0. So unknown content is cut at round log addresses; these are page boundaries of a file that was written from its
//! start.
//!
//! Each anchor ahead that the table knows is a **vote** for a phase: the one that cuts its content where it was cut last time. The
//! phase of the next vote is the candidate. The grid moves to it if, among the next [`VOTES`] votes, more are for the candidate
//! than for the present phase. So one stray anchor (in several contents, or mistaken for another) does not move the grid. Without
//! votes the grid stays, so new or changed bytes keep the phase of the content around them.
//!
//! Invariant: two moves are at least [`MOVE_DISTANCE`] bytes and a chunk apart. So chunks shorter than the chunk size stay few,
//! whatever the content.

/// Bytes between two moves, at least.
pub const MOVE_DISTANCE: u64 = 32 << 10;
/// Votes that are counted for a decision.
const VOTES: usize = 4;

/// See the head of this module.
#[derive(Debug, Clone)]
pub struct ChunkGrid {
    size: u64,
    phase: u64,
    /// Where it moved last.
    moved_at: Option<u64>,
}

impl ChunkGrid {
    /// With lines at multiples of `size`.
    pub fn new(size: u64) -> ChunkGrid {
        ChunkGrid {
            size,
            phase: 0,
            moved_at: None,
        }
    }

    /// The first line behind `addr`.
    pub fn line_after(&self, addr: u64) -> u64 {
        addr + self.size - self.offset(addr)
    }

    /// How far `addr` lies behind a line.
    pub fn offset(&self, addr: u64) -> u64 {
        addr.wrapping_sub(self.phase) % self.size
    }

    /// The phase of a grid on which `addr` lies `offset` bytes after a line.
    pub fn phase_for(&self, addr: u64, offset: u64) -> u64 {
        addr.wrapping_sub(offset) % self.size
    }

    /// Moves the grid before the chunk that begins at `addr`, if the votes ahead (phases, in the order of their addresses) say so.
    pub fn update_phase(&mut self, addr: u64, votes: impl Iterator<Item = u64>) {
        let distance = MOVE_DISTANCE.max(self.size);
        if self.moved_at.is_some_and(|at| addr < at + distance) {
            return;
        }
        let (mut next, mut for_next, mut for_present) = (self.phase, 0, 0);
        for vote in votes.take(VOTES) {
            if for_next == 0 {
                next = vote;
            }
            if vote == self.phase {
                for_present += 1;
            }
            if vote == next {
                for_next += 1;
            }
        }
        if for_next > for_present {
            self.phase = next;
            self.moved_at = Some(addr);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase_after(votes: &[u64]) -> u64 {
        let mut grid = ChunkGrid::new(4096);
        grid.update_phase(0, votes.iter().copied());
        grid.phase
    }

    #[test]
    fn it_moves_to_the_phase_that_comes_next_but_not_for_one_vote_among_others() {
        assert_eq!(phase_after(&[]), 0);
        assert_eq!(phase_after(&[0, 5, 5, 5]), 0);
        assert_eq!(phase_after(&[5]), 5);
        assert_eq!(phase_after(&[5, 5]), 5);
        assert_eq!(phase_after(&[5, 0]), 0);
        assert_eq!(phase_after(&[5, 0, 0, 5]), 0);
        assert_eq!(phase_after(&[5, 5, 0, 0]), 0);
        assert_eq!(phase_after(&[5, 5, 5, 0]), 5);
        assert_eq!(phase_after(&[5, 7, 7]), 5);
        // A fifth does not count.
        assert_eq!(phase_after(&[5, 5, 0, 0, 5]), 0);
    }

    #[test]
    fn it_rests_after_a_move_and_its_lines_follow_the_phase() {
        let mut grid = ChunkGrid::new(4096);
        grid.update_phase(10_000, [100].into_iter());
        assert_eq!((grid.line_after(10_000), grid.offset(12_388)), (12_388, 0));
        assert_eq!(grid.line_after(12_388), 16_484);
        assert_eq!((grid.line_after(0), grid.line_after(100)), (100, 4196));
        assert_eq!(grid.phase_for(5000, 4900), 100);
        assert_eq!(grid.phase_for(5, 10), 4091);
        grid.update_phase(10_000 + MOVE_DISTANCE - 1, [200].into_iter());
        assert_eq!(grid.phase, 100);
        grid.update_phase(10_000 + MOVE_DISTANCE, [200].into_iter());
        assert_eq!(grid.phase, 200);
    }
}
