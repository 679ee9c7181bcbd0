//! Reads like those of Pagoda, which analyses climate data in parallel (Pattern PLFS, section 5 and figure 20; its trace is not
//! public): for each time step, a process reads its part of each variable. Variables lie in segments of their own, with data of
//! different types, so each is read with a length and a stride of its own: regular, but not one simple stride.
//!
//! ```text
//! step 0: [ variable 0: row row row ... ][ variable 1: row . row . row . ... ][ ... ]   step 1: ...
//!           row = a part of each rank       every second row is read
//! ```

use super::{CallRange, Layout};

/// One variable of a step.
struct PagodaVariable {
    /// Rows of it that are read.
    rows: u64,
    /// Bytes of a rank's part of a row.
    len: u64,
    /// One row in so many is read.
    every: u64,
}

const fn variable(rows: u64, len: u64, every: u64) -> PagodaVariable {
    PagodaVariable { rows, len, every }
}

/// Variables of a step, in their order in the file and in the order of the reads.
const VARIABLES: [PagodaVariable; 6] = [
    variable(32, 4096, 1),
    variable(24, 8192, 2),
    variable(48, 2048, 3),
    variable(16, 16384, 1),
    variable(64, 1024, 4),
    variable(12, 12288, 2),
];

/// See the module.
#[derive(Debug, Clone)]
pub struct Pagoda {
    /// Number of ranks.
    pub ranks: u32,
    /// Time steps.
    pub steps: u64,
}

impl Pagoda {
    /// Bytes of a variable in a step.
    fn segment(&self, v: &PagodaVariable) -> u64 {
        v.rows * v.every * v.len * u64::from(self.ranks)
    }
}

impl Layout for Pagoda {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn files(&self) -> Vec<String> {
        vec!["pagoda".into()]
    }

    fn calls(&self, _rank: u32) -> u64 {
        self.steps * VARIABLES.iter().map(|v| v.rows).sum::<u64>()
    }

    fn access(&self, rank: u32, index: u64) -> CallRange {
        let rows: u64 = VARIABLES.iter().map(|v| v.rows).sum();
        let step: u64 = VARIABLES.iter().map(|v| self.segment(v)).sum();
        let (mut start, mut row) = (index / rows * step, index % rows);
        let (mut stride, mut len) = (0, 0);
        for v in &VARIABLES {
            (stride, len) = (v.every * v.len * u64::from(self.ranks), v.len);
            if row < v.rows {
                break;
            }
            row -= v.rows;
            start += self.segment(v);
        }
        CallRange::shared(start + row * stride + u64::from(rank) * len, len)
    }
}
