//! BTIO: the output of the NAS BT benchmark. A cube of `grid`^3 points of 40 bytes (five doubles), x fastest, is split
//! into `q`^3 cells; each of the `q`^2 ranks owns `q` cells on a diagonal, one in each layer of z. A call is one row of x
//! in one cell. Each dump appends a whole cube.
//!
//! Rank `r` owns, in layer `c`, the cell `x = (r % q + c) % q`, `y = (r / q - c) mod q`.

use super::{CallRange, Layout};

/// Bytes of a grid point.
const POINT: u64 = 40;

/// See the module.
#[derive(Debug, Clone)]
pub struct Btio {
    /// Cells along an edge; the number of ranks is its square.
    pub q: u32,
    /// Points along an edge of the cube; at least `q`. The classes are S 12, W 24, A 64, B 102, C 162, D 408, E 1020.
    pub grid: u64,
    /// Cubes written one after the other.
    pub dumps: u64,
}

/// A rank's cell in one layer of z.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BtioCell {
    /// Its lowest point: x, y, z.
    pub low: [u64; 3],
    /// Points: x, y, z.
    pub size: [u64; 3],
    /// Points along an edge of the cube.
    pub grid: u64,
    /// Calls of the rank before it in a dump.
    pub first: u64,
    /// Bytes of these calls.
    pub bytes_before: u64,
}

impl BtioCell {
    /// Number of calls: rows.
    pub fn calls(&self) -> u64 {
        self.size[1] * self.size[2]
    }

    /// Bytes of a call.
    fn len(&self) -> u64 {
        self.size[0] * POINT
    }

    /// Call `index` of the rank in the first dump, which is one of this cell: its offset, length, and bytes of the calls before it.
    pub fn call(&self, index: u64) -> (u64, u64, u64) {
        let row = index - self.first;
        let [x, y, z] = self.low;
        let (y, z) = (y + row % self.size[1], z + row / self.size[1]);
        let point = (z * self.grid + y) * self.grid + x;
        let before = self.bytes_before + row * self.len();
        (point * POINT, self.len(), before)
    }
}

impl Btio {
    /// First point and number of points of cell `at` along an edge: the first cells take the remainder.
    fn edge(&self, at: u64) -> (u64, u64) {
        let (size, larger) = (self.grid / u64::from(self.q), self.grid % u64::from(self.q));
        (at * size + at.min(larger), size + u64::from(at < larger))
    }

    /// The cells of a rank, in the order in which it writes them.
    pub fn cells(&self, rank: u32) -> impl Iterator<Item = BtioCell> + '_ {
        let (q, rank) = (u64::from(self.q), u64::from(rank));
        let (mut first, mut bytes_before) = (0, 0);
        (0..q).map(move |layer| {
            let at = [(rank + layer) % q, (rank / q + q - layer) % q, layer];
            let cell = BtioCell {
                low: at.map(|at| self.edge(at).0),
                size: at.map(|at| self.edge(at).1),
                grid: self.grid,
                first,
                bytes_before,
            };
            first += cell.calls();
            bytes_before += cell.calls() * cell.len();
            cell
        })
    }

    fn dump_calls(&self, rank: u32) -> u64 {
        self.cells(rank).map(|cell| cell.calls()).sum()
    }
}

impl Layout for Btio {
    fn ranks(&self) -> u32 {
        self.q * self.q
    }

    fn files(&self) -> Vec<String> {
        vec!["btio".into()]
    }

    fn calls(&self, rank: u32) -> u64 {
        self.dump_calls(rank) * self.dumps
    }

    fn access(&self, rank: u32, index: u64) -> CallRange {
        let per_dump = self.dump_calls(rank);
        let (dump, row) = (index / per_dump, index % per_dump);
        // Every row of a dump is in a cell.
        let mut cells = self.cells(rank);
        let found = cells.find(|cell| row < cell.first + cell.calls());
        let (offset, len, _) = found.map_or((0, 0, 0), |cell| cell.call(row));
        CallRange::shared(
            dump * self.grid * self.grid * self.grid * POINT + offset,
            len,
        )
    }
}
