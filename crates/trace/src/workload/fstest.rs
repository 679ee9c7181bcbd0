//! LANL's FS-TEST: checkpoints of many equal writes (Pattern PLFS, section 3.1: 512 ranks, 4 KiB, 16 Ki to 256 Ki writes).

use super::{CallRange, Layout};

/// How the ranks' writes lie in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsTestShape {
    /// One file, ranks in turn.
    Strided,
    /// One file, each rank its own part.
    Segmented,
    /// A file for each rank.
    FilePerRank,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct FsTest {
    /// Number of ranks.
    pub ranks: u32,
    /// Writes of a rank.
    pub writes: u64,
    /// Bytes of a write.
    pub size: u64,
    /// How they lie.
    pub shape: FsTestShape,
}

impl Default for FsTest {
    /// 16 ranks, 256 strided writes of 4 KiB.
    fn default() -> FsTest {
        FsTest {
            ranks: 16,
            writes: 256,
            size: 4096,
            shape: FsTestShape::Strided,
        }
    }
}

impl Layout for FsTest {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn files(&self) -> Vec<String> {
        match self.shape {
            FsTestShape::FilePerRank => {
                (0..self.ranks).map(|r| format!("fs-test.{r:05}")).collect()
            }
            FsTestShape::Strided | FsTestShape::Segmented => vec!["fs-test".into()],
        }
    }

    fn calls(&self, _rank: u32) -> u64 {
        self.writes
    }

    fn access(&self, rank: u32, index: u64) -> CallRange {
        let (file, place) = match self.shape {
            FsTestShape::Strided => (0, index * u64::from(self.ranks) + u64::from(rank)),
            FsTestShape::Segmented => (0, u64::from(rank) * self.writes + index),
            FsTestShape::FilePerRank => (rank, index),
        };
        CallRange {
            file,
            offset: place * self.size,
            len: self.size,
        }
    }
}
