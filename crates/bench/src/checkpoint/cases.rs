//! The cases: who writes which pieces of the file, with bytes or without.

use crate::harness::Case;
use crate::index::Workload;
use PieceShape::{Bt, FsTest};

/// Bytes of a write of FS-TEST.
pub const SIZE: u64 = 4096;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    /// By whom.
    pub shape: PieceShape,
    /// Its bytes are written and read. Else only the index is.
    pub data: bool,
}

/// The pieces of all writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceShape {
    /// So many writers, so many writes of [`SIZE`] each, in turn.
    FsTest(u32, u64),
    /// One dump of BTIO on a grid of so many points along each axis, by the square of so many processes.
    Bt(u64, u64),
}

impl Pieces {
    pub fn workload(&self) -> Workload {
        match self.shape {
            FsTest(writers, each) => Workload::Strided {
                writers,
                each,
                len: SIZE as u32,
            },
            Bt(grid, q) => Workload::bt(grid, q),
        }
    }
}

const K: u64 = 1024;

/// With bytes.
const fn whole(shape: PieceShape) -> Pieces {
    let data = true;
    Pieces { shape, data }
}

/// The index alone.
const fn index(shape: PieceShape) -> Pieces {
    let data = false;
    Pieces { shape, data }
}

/// All of them: of FS-TEST the writers, and the writes of each. A tile of MPI-Tile-IO is written row by row, and 16 tiles lie beside
/// each other.
pub const CASES: &[Case<Pieces>] = &[
    Case::new("fs-test-64x4k", whole(FsTest(64, 4 * K))),
    Case::new("fs-test-16x16k", whole(FsTest(16, 16 * K))),
    Case::new("fs-test-512x1k", index(FsTest(512, K))),
    Case::new("fs-test-512x4k", index(FsTest(512, 4 * K))),
    Case::new("fs-test-512x16k", index(FsTest(512, 16 * K))),
    Case::large("fs-test-512x64k", index(FsTest(512, 64 * K))),
    Case::large("fs-test-512x256k", index(FsTest(512, 256 * K))),
    Case::new("tile-io", index(FsTest(16, 32 * K))),
    Case::new("btio-c", index(Bt(162, 8))),
    Case::new("btio-d", index(Bt(408, 12))),
    Case::large("btio-e", index(Bt(1020, 20))),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_done() {
        for case in CASES.iter().filter(|c| c.name.starts_with("fs-test")) {
            let work = case.work.workload();
            let shape = format!("fs-test-{}x{}k", work.writers(), work.each(0) / K);
            assert_eq!(case.name, shape);
        }
    }
}
