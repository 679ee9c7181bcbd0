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
    /// Cubes written one behind the other.
    pub dumps: u64,
}

impl Default for Btio {
    /// 16 ranks, class W, two dumps.
    fn default() -> Btio {
        Btio {
            q: 4,
            grid: 24,
            dumps: 2,
        }
    }
}

impl Btio {
    /// First point and number of points of cell `at` along an edge: the first cells take the remainder.
    fn edge(&self, at: u64) -> (u64, u64) {
        let (size, larger) = (self.grid / u64::from(self.q), self.grid % u64::from(self.q));
        (at * size + at.min(larger), size + u64::from(at < larger))
    }

    fn cell(&self, rank: u32, layer: u64) -> (u64, u64) {
        let (q, rank) = (u64::from(self.q), u64::from(rank));
        ((rank % q + layer) % q, (rank / q + q - layer % q) % q)
    }

    fn rows(&self, rank: u32, layer: u64) -> u64 {
        let (_, y) = self.cell(rank, layer);
        self.edge(y).1 * self.edge(layer).1
    }

    fn dump_rows(&self, rank: u32) -> u64 {
        (0..u64::from(self.q))
            .map(|layer| self.rows(rank, layer))
            .sum()
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
        self.dump_rows(rank) * self.dumps
    }

    fn access(&self, rank: u32, index: u64) -> CallRange {
        let per_dump = self.dump_rows(rank);
        let (dump, mut row, mut layer) = (index / per_dump, index % per_dump, 0);
        while row >= self.rows(rank, layer) {
            row -= self.rows(rank, layer);
            layer += 1;
        }
        let (cell_x, cell_y) = self.cell(rank, layer);
        let ((x, width), (y, height), (z, _)) =
            (self.edge(cell_x), self.edge(cell_y), self.edge(layer));
        let (y, z) = (y + row % height, z + row / height);
        let point = ((dump * self.grid + z) * self.grid + y) * self.grid + x;
        CallRange {
            file: 0,
            offset: point * POINT,
            len: width * POINT,
        }
    }
}
