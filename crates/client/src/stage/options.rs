//! The options of a run, and the number of its job.
use super::hash::StableHash;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From a directory into the service.
    In,
    /// From the service into a directory.
    Out,
}

/// One source and the name it gets in the target; in the service, paths start at its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPair {
    /// What is copied.
    pub from: PathBuf,
    /// What it becomes.
    pub to: PathBuf,
}

/// A test's look at a file whose temporary copy has just been written: the path of its target, and of the copy.
pub type AfterCopyHook = Arc<dyn Fn(&Path, &Path) + Send + Sync>;

/// How.
#[derive(Clone)]
pub struct StageOptions {
    /// Reads every copy again and compares checksums, before it gets its name.
    pub verify: bool,
    /// Everything is on disk at the end, and each file before it gets its name.
    pub sync: bool,
    /// Files in flight at each node.
    pub jobs: usize,
    /// Files larger than this are divided into pieces; bytes.
    pub large: u64,
    /// Size of the pieces, bytes.
    pub piece: u64,
    /// Files that are brought to disk together.
    pub batch_files: usize,
    /// And bytes of these.
    pub batch_bytes: u64,
    /// Paths of plain directories that a walk must not enter.
    pub avoid: Vec<PathBuf>,
    /// Another process leads: it counts and names what all walks find, and does the end.
    pub follows: bool,
    #[doc(hidden)]
    pub hook: Option<AfterCopyHook>,
}

impl Default for StageOptions {
    fn default() -> StageOptions {
        StageOptions {
            verify: false,
            sync: true,
            jobs: 4,
            large: 256 << 20,
            piece: 64 << 20,
            batch_files: 4096,
            batch_bytes: 1 << 30,
            avoid: Vec::new(),
            follows: false,
            hook: None,
        }
    }
}

/// The number of a job: the same for the same direction and pairs, whenever and wherever.
pub fn job_number(direction: Direction, pairs: &[PathPair]) -> u64 {
    let start = StableHash::new(3).number(u64::from(direction == Direction::In));
    let pair = |hash: StableHash, pair: &PathPair| {
        let from = hash.add(pair.from.as_os_str().as_bytes()).add(&[0]);
        from.add(pair.to.as_os_str().as_bytes()).add(&[0])
    };
    pairs.iter().fold(start, pair).finish()
}
