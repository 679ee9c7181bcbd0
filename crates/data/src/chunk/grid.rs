//! The grid that chunks lie on, and where it moves.
//!
//! Its lines are one chunk size apart. Its **phase** is the log address of a line, modulo that size: 0 at the start of a log,
//! so what nothing is known of is cut at round addresses, which are those of a file's pages where it was written from its start.
//!
//! Known anchors ahead **vote**: each names the phase with which its content would be cut as it was the last time. The grid
//! moves to the phase of the next vote, unless as many of the votes behind it are for the present phase: one anchor
//! that stands in several contents, or one that is taken for another, does not move it. Without votes it stays: content that was changed or
//! is new does not lose the phase of what is around it.
//!
//! Invariants: between two moves lie at least [`MOVE_DISTANCE`] bytes and a chunk, so that chunks shorter than the size stay
//! few with any content.

/// Least bytes between two moves.
pub const MOVE_DISTANCE: u64 = 32 << 10;
/// Votes that are counted.
const VOTES: usize = 4;

/// See the head of this module.
#[derive(Debug, Clone)]
pub struct Grid {
    size: u64,
    phase: u64,
    /// Where it moved last.
    moved_at: Option<u64>,
}

impl Grid {
    /// With lines at multiples of `size`.
    pub fn new(size: u64) -> Grid {
        Grid {
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

    /// The phase with which `addr` lies so far behind a line.
    pub fn phase_for(&self, addr: u64, offset: u64) -> u64 {
        addr.wrapping_sub(offset) % self.size
    }

    /// A chunk begins at `addr`; these are the votes ahead, by their addresses.
    pub fn steer(&mut self, addr: u64, votes: impl Iterator<Item = u64>) {
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

    fn steered(votes: &[u64]) -> u64 {
        let mut grid = Grid::new(4096);
        grid.steer(0, votes.iter().copied());
        grid.phase
    }

    #[test]
    fn it_moves_to_the_phase_that_comes_next_but_not_for_one_vote_among_others() {
        assert_eq!(steered(&[]), 0);
        assert_eq!(steered(&[0, 5, 5, 5]), 0);
        assert_eq!(steered(&[5]), 5);
        assert_eq!(steered(&[5, 5]), 5);
        assert_eq!(steered(&[5, 0]), 0);
        assert_eq!(steered(&[5, 0, 0, 5]), 0);
        assert_eq!(steered(&[5, 5, 0, 0]), 0);
        assert_eq!(steered(&[5, 5, 5, 0]), 5);
        assert_eq!(steered(&[5, 7, 7]), 5);
        // A fifth does not count.
        assert_eq!(steered(&[5, 5, 0, 0, 5]), 0);
    }

    #[test]
    fn it_rests_after_a_move_and_its_lines_follow_the_phase() {
        let mut grid = Grid::new(4096);
        grid.steer(10_000, [100].into_iter());
        assert_eq!((grid.line_after(10_000), grid.offset(12_388)), (12_388, 0));
        assert_eq!(grid.line_after(12_388), 16_484);
        assert_eq!((grid.line_after(0), grid.line_after(100)), (100, 4196));
        assert_eq!(grid.phase_for(5000, 4900), 100);
        assert_eq!(grid.phase_for(5, 10), 4091);
        grid.steer(10_000 + MOVE_DISTANCE - 1, [200].into_iter());
        assert_eq!(grid.phase, 100);
        grid.steer(10_000 + MOVE_DISTANCE, [200].into_iter());
        assert_eq!(grid.phase, 200);
    }
}
