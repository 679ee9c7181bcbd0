//! Workloads: the records that each writer writes, computed, not stored.
//!
//! # Invariants
//! - The records of a workload cover its file once: none overlap.
//! - A writer appends to a log of its own in the order of its records, so addresses count up by the lengths before.
//!
//! # The three workloads
//! - **Strided** (IOR, N-1 fixed stride): transfer `i` of writer `w` lies at `(i * writers + w) * len`. MPI-Tile-IO is of this
//!   kind too: the row of a tile is a record, and rows of the tiles beside each other take turns in the file.
//! - **Bt** (see [`Btio`]): the grid of NAS BT in the diagonal multi-partition of `make_set` and `set_constants` of the NAS
//!   Parallel Benchmarks. One dump is written by the loops of `output_timestep` (`simple_mpiio`): cells, then z, then y; a
//!   record is one line of a cell along x.

use forebay_trace::workload::{Btio, BtioCell, Layout as _};

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
    Bt(Vec<Vec<BtioCell>>),
}

impl Workload {
    /// `each` records of `len` bytes for each of `writers`.
    pub fn strided(writers: u32, each: u64, len: u32) -> Workload {
        Workload::Strided { writers, each, len }
    }

    /// BT on a grid of `grid` points along each axis, by `q * q` processes.
    pub fn bt(grid: u64, q: u64) -> Workload {
        let q = q as u32;
        let bt = Btio { q, grid, dumps: 1 };
        let cells = |p| bt.cells(p).collect();
        Workload::Bt((0..bt.ranks()).map(cells).collect())
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
                last.map_or(0, |cell| cell.first + cell.calls())
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
                let (offset, len, addr) = cells[at - 1].call(i);
                (offset, len as u32, addr)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a point of BT: five doubles.
    const POINT: u64 = 40;

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
}
