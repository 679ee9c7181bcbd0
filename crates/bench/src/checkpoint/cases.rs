//! The cases: who writes which pieces of the file, with bytes or without.

use crate::harness::Case;
use crate::index::Workload;

/// Bytes of a write of FS-TEST.
pub const SIZE: u64 = 4096;

/// What is written.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointWork {
    /// By whom.
    pub workload: fn() -> Workload,
    /// Its bytes are written and read. Else only the index is.
    pub data: bool,
}

/// So many writers, so many writes of [`SIZE`] each, in turn.
pub fn fs_test(writers: u32, each: u64) -> Workload {
    Workload::strided(writers, each, SIZE as u32)
}

const K: u64 = 1024;

/// With bytes.
const fn whole(workload: fn() -> Workload) -> CheckpointWork {
    let data = true;
    CheckpointWork { workload, data }
}

/// The index alone.
const fn index(workload: fn() -> Workload) -> CheckpointWork {
    let data = false;
    CheckpointWork { workload, data }
}

/// All of them: of FS-TEST the writers, and the writes of each. A tile of MPI-Tile-IO is written row by row, and 16 tiles lie beside
/// each other.
pub const CASES: &[Case<CheckpointWork>] = &[
    Case::new("fs-test-64x4k", whole(|| fs_test(64, 4 * K))),
    Case::new("fs-test-16x16k", whole(|| fs_test(16, 16 * K))),
    Case::new("fs-test-512x1k", index(|| fs_test(512, K))),
    Case::new("fs-test-512x4k", index(|| fs_test(512, 4 * K))),
    Case::new("fs-test-512x16k", index(|| fs_test(512, 16 * K))),
    Case::large("fs-test-512x64k", index(|| fs_test(512, 64 * K))),
    Case::large("fs-test-512x256k", index(|| fs_test(512, 256 * K))),
    Case::new("tile-io", index(|| fs_test(16, 32 * K))),
    Case::new("btio-c", index(|| Workload::bt(162, 8))),
    Case::new("btio-d", index(|| Workload::bt(408, 12))),
    Case::large("btio-e", index(|| Workload::bt(1020, 20))),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_done() {
        for case in CASES.iter().filter(|c| c.name.starts_with("fs-test")) {
            let work = (case.work.workload)();
            let shape = format!("fs-test-{}x{}k", work.writers(), work.each(0) / K);
            assert_eq!(case.name, shape);
        }
    }
}
