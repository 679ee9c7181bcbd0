//! The cases: who writes which pieces of the file, with bytes or without.

use crate::harness::NamedCase;
use crate::index::Workload;

/// Bytes of a write of FS-TEST.
pub const SIZE: u64 = 4096;

/// One case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// What is written; of FS-TEST the writers, and the writes of each.
    pub name: &'static str,
    /// What is written.
    pub shape: PieceShape,
    /// Its bytes are written and read. Else only the index is.
    pub data: bool,
    /// It takes minutes, or gigabytes: only by name.
    pub large: bool,
}

/// The pieces of all writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceShape {
    /// So many writers, so many writes of [`SIZE`] each, in turn.
    FsTest(u32, u64),
    /// One dump of BTIO on a grid of so many points along each axis, by the square of so many processes.
    Bt(u64, u64),
}

impl Case {
    const fn new(name: &'static str, shape: PieceShape, data: bool, large: bool) -> Case {
        Case {
            name,
            shape,
            data,
            large,
        }
    }

    pub fn workload(&self) -> Workload {
        match self.shape {
            PieceShape::FsTest(writers, each) => Workload::Strided {
                writers,
                each,
                len: SIZE as u32,
            },
            PieceShape::Bt(grid, q) => Workload::bt(grid, q),
        }
    }
}

const K: u64 = 1024;

/// All of them. A tile of MPI-Tile-IO is written row by row, and 16 tiles lie beside each other.
pub const CASES: &[Case] = &[
    Case::new("fs-test-64x4k", PieceShape::FsTest(64, 4 * K), true, false),
    Case::new(
        "fs-test-16x16k",
        PieceShape::FsTest(16, 16 * K),
        true,
        false,
    ),
    Case::new("fs-test-512x1k", PieceShape::FsTest(512, K), false, false),
    Case::new(
        "fs-test-512x4k",
        PieceShape::FsTest(512, 4 * K),
        false,
        false,
    ),
    Case::new(
        "fs-test-512x16k",
        PieceShape::FsTest(512, 16 * K),
        false,
        false,
    ),
    Case::new(
        "fs-test-512x64k",
        PieceShape::FsTest(512, 64 * K),
        false,
        true,
    ),
    Case::new(
        "fs-test-512x256k",
        PieceShape::FsTest(512, 256 * K),
        false,
        true,
    ),
    Case::new("tile-io", PieceShape::FsTest(16, 32 * K), false, false),
    Case::new("btio-c", PieceShape::Bt(162, 8), false, false),
    Case::new("btio-d", PieceShape::Bt(408, 12), false, false),
    Case::new("btio-e", PieceShape::Bt(1020, 20), false, true),
];

impl NamedCase for Case {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_large(&self) -> bool {
        self.large
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_done() {
        for case in CASES.iter().filter(|c| c.name.starts_with("fs-test")) {
            let work = case.workload();
            let shape = format!("fs-test-{}x{}k", work.writers(), work.each(0) / K);
            assert_eq!(case.name, shape);
        }
    }
}
