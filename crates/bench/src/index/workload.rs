//! What is written: the records of every writer of a workload, computed, not stored.
//!
//! # Invariants
//! - The records of a workload cover its file once: none overlap.
//! - A writer appends to a log of its own in the order of its records, so addresses count up by the lengths before.
//!
//! # The three workloads
//! - **Strided** (IOR, N-1 fixed stride): transfer `i` of writer `w` lies at `(i * writers + w) * len`. MPI-Tile-IO is of this
//!   kind too: the row of a tile is a record, and rows of the tiles beside each other take turns in the file.
//! - **Bt** (BTIO): the grid of NAS BT, 5 doubles a point, in the diagonal multi-partition of `make_set` and `set_constants`
//!   of the NAS Parallel Benchmarks: with `q * q` processes, process `p` has in layer `c` of `q` layers along z the
//!   cell with x coordinate `(p mod q + c) mod q` and y coordinate `(p / q - c) mod q`. The first `n mod q` cells of an axis are one point longer. One
//!   dump is written by the loops of `output_timestep` (`simple_mpiio`): cells, then z, then y; a record is one line of a cell along x.

/// One record: where its bytes lie in the file, and in which log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// The member with the log; the paper runs one server for the clients of a node.
    pub member: u16,
    /// The writer's log.
    pub log: u64,
    /// First byte in the log.
    pub addr: u64,
    /// The commit that publishes it.
    pub seq: u64,
}

/// A workload; see the head of this file.
#[derive(Debug, Clone)]
pub enum Workload {
    /// `each` records of `len` bytes for each of `writers`.
    Strided {
        /// Number of writers.
        writers: u32,
        /// Records of a writer.
        each: u64,
        /// Bytes of a record.
        len: u32,
    },
    /// The cells of every process.
    Bt(Vec<Vec<Cell>>),
}

/// A cell of the grid of BT, with what its process has written before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Its lowest point: x, y, z.
    low: [u64; 3],
    /// Points: x, y, z.
    size: [u64; 3],
    /// Points of the whole grid along an axis.
    grid: u64,
    /// Records before it.
    first: u64,
    /// Log bytes before it.
    addr: u64,
}

/// Bytes of a point of BT: five doubles.
const POINT: u64 = 40;

impl Workload {
    /// BT on a grid of `grid` points along each axis, by `q * q` processes.
    pub fn bt(grid: u64, q: u64) -> Workload {
        Workload::Bt((0..q * q).map(|p| cells(grid, q, p)).collect())
    }

    /// Number of writers.
    pub fn writers(&self) -> u32 {
        match self {
            Workload::Strided { writers, .. } => *writers,
            Workload::Bt(processes) => processes.len() as u32,
        }
    }

    /// Records of writer `w`.
    pub fn each(&self, w: u32) -> u64 {
        match self {
            Workload::Strided { each, .. } => *each,
            Workload::Bt(processes) => {
                let last = processes[w as usize].last();
                last.map_or(0, |cell| cell.first + cell.records())
            }
        }
    }

    /// All records.
    pub fn total(&self) -> u64 {
        (0..self.writers()).map(|w| self.each(w)).sum()
    }

    /// Record `i` of writer `w`. All of a writer's are published by one commit, the `w`-th.
    pub fn record(&self, w: u32, i: u64) -> Record {
        let (offset, len, addr) = match self {
            Workload::Strided { writers, len, .. } => {
                let bytes = u64::from(*len);
                let offset = (i * u64::from(*writers) + u64::from(w)) * bytes;
                (offset, *len, i * bytes)
            }
            Workload::Bt(processes) => {
                let cells = &processes[w as usize];
                let at = cells.partition_point(|cell| cell.first <= i);
                // The first cell begins with record 0.
                cells[at - 1].record(i)
            }
        };
        Record {
            offset,
            len,
            member: 0,
            log: u64::from(w),
            addr,
            seq: u64::from(w) + 1,
        }
    }
}

/// The cells of process `p` of `q * q`.
fn cells(grid: u64, q: u64, p: u64) -> Vec<Cell> {
    let (size, excess) = (grid / q, grid % q);
    let span = |at: u64| (at * size + at.min(excess), size + u64::from(at < excess));
    let (mut first, mut addr) = (0, 0);
    (0..q)
        .map(|c| {
            let at = [(p % q + c) % q, (p / q + q - c) % q, c];
            let cell = Cell {
                low: at.map(|at| span(at).0),
                size: at.map(|at| span(at).1),
                grid,
                first,
                addr,
            };
            first += cell.records();
            addr += cell.records() * cell.line();
            cell
        })
        .collect()
}

impl Cell {
    fn records(&self) -> u64 {
        self.size[1] * self.size[2]
    }

    /// Bytes of a line along x.
    fn line(&self) -> u64 {
        self.size[0] * POINT
    }

    /// `(offset, len, addr)` of record `i` of the process, which lies in this cell.
    fn record(&self, i: u64) -> (u64, u32, u64) {
        let n = i - self.first;
        let (y, z) = (
            self.low[1] + n % self.size[1],
            self.low[2] + n / self.size[1],
        );
        let point = self.low[0] + self.grid * (y + self.grid * z);
        let addr = self.addr + n * self.line();
        (point * POINT, self.line() as u32, addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte of the file once, logs without holes.
    fn covers(work: &Workload, bytes: u64) {
        let mut pieces = Vec::new();
        for w in 0..work.writers() {
            let mut addr = 0;
            for i in 0..work.each(w) {
                let r = work.record(w, i);
                assert_eq!((r.log, r.addr), (u64::from(w), addr));
                addr += u64::from(r.len);
                pieces.push((r.offset, u64::from(r.len)));
            }
        }
        assert_eq!(pieces.len() as u64, work.total());
        pieces.sort_unstable();
        let mut end = 0;
        for (offset, len) in pieces {
            assert_eq!(offset, end);
            end += len;
        }
        assert_eq!(end, bytes);
    }

    #[test]
    fn strided_writers_take_turns() {
        let work = Workload::Strided {
            writers: 16,
            each: 100,
            len: 1024,
        };
        covers(&work, 16 * 100 * 1024);
        assert_eq!(work.record(3, 2).offset, 35 * 1024);
        assert_eq!(work.record(3, 2).addr, 2048);
    }

    #[test]
    fn bt_cells_cover_the_grid_also_when_it_does_not_divide() {
        covers(&Workload::bt(12, 3), 12 * 12 * 12 * POINT);
        covers(&Workload::bt(14, 4), 14 * 14 * 14 * POINT);
    }

    #[test]
    fn bt_has_the_numbers_of_the_paper() {
        // Class C: 162 points, 64 processes, 0.2 M; D: 408, 144, 2.0 M; E: 1020, 400, 20.8 M.
        for (grid, q, records, line) in [
            (162, 8, 209_952, 21 * 40),
            (408, 12, 1_997_568, 1360),
            (1020, 20, 20_808_000, 2040),
        ] {
            let work = Workload::bt(grid, q);
            assert_eq!(u64::from(work.writers()), q * q);
            assert_eq!(work.total(), records);
            assert_eq!(u64::from(work.record(0, 0).len), line);
        }
    }

    #[test]
    fn a_process_of_bt_has_one_cell_in_every_layer_and_row_and_column() {
        let Workload::Bt(processes) = Workload::bt(20, 4) else {
            panic!("not BT");
        };
        for cells in processes {
            for axis in 0..3 {
                let mut lows: Vec<u64> = cells.iter().map(|c| c.low[axis]).collect();
                lows.sort_unstable();
                assert_eq!(lows, [0, 5, 10, 15]);
            }
        }
    }
}
