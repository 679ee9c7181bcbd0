//! Advisory locks on open files: byte ranges, and whole files.
//!
//! A lock belongs to the [`File`] through which it was taken, as `F_OFD_SETLK` and `flock` have it: two files of one process
//! exclude each other, and closing a `File` releases its locks. Ranges and whole-file locks know nothing of each other.
//!
//! Taking a lock sees what was published before it, on any node; giving one up publishes what this node wrote to the file.
use crate::File;
use crate::embedded::FileLock;
use crate::error::{Result, WithPath};
use crate::file::FileBackend;
use crate::link::CallError;
use forebay_server::proto::locks::LockSpace;
pub use forebay_server::proto::locks::{HeldLock, LockMode};
use rustix::io::Errno;
use std::ops::{Bound, Range, RangeBounds};

/// What of a file is locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockRange {
    /// These bytes, which need not exist.
    Bytes(Range<u64>),
    /// The file as a whole (`flock`).
    WholeFile,
}

impl LockRange {
    /// Bytes, by any range; without an end, all that there can be.
    pub fn bytes(range: impl RangeBounds<u64>) -> LockRange {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        LockRange::Bytes(start..end)
    }

    fn parts(&self) -> (LockSpace, Range<u64>) {
        match self {
            LockRange::Bytes(range) => (LockSpace::Record, range.clone()),
            LockRange::WholeFile => (LockSpace::Flock, 0..u64::MAX),
        }
    }
}

impl File {
    /// Locks, and waits for it as long as others hold what is in the way. A mode that this file holds on these bytes is replaced.
    ///
    /// # Errors
    /// `EDEADLK` if the wait for bytes would never end; `EINTR` if the server stops; `EINVAL` for an empty range; `ENOLCK` if locks that
    /// this file held were lost with the member that kept them; `EIO`.
    pub fn lock(&self, range: &LockRange, mode: LockMode) -> Result<()> {
        let lock = file_lock(range, mode);
        let locked = match &self.backend {
            FileBackend::Embedded(file) => file
                .lock(&lock, std::process::id(), Some(&mut || true))
                .map_err(CallError::from),
            FileBackend::Link(file) => file.lock(lock, true),
        };
        locked.at("lock", self.path())
    }

    /// Locks, if nothing is in the way; whether it has.
    ///
    /// # Errors
    /// As [`File::lock`], which waits.
    pub fn try_lock(&self, range: &LockRange, mode: LockMode) -> Result<bool> {
        let lock = file_lock(range, mode);
        let locked = match &self.backend {
            FileBackend::Embedded(file) => file
                .lock(&lock, std::process::id(), None)
                .map_err(CallError::from),
            FileBackend::Link(file) => file.lock(lock, false),
        };
        match locked.at("lock", self.path()) {
            Err(crate::Error::Name { source, .. }) if source.errno() == Errno::AGAIN => Ok(false),
            locked => locked.map(|()| true),
        }
    }

    /// Publishes what this node wrote to the file, and gives up what this file holds of the range.
    ///
    /// # Errors
    /// Those of [`File::commit`] (the lock is given up all the same); `ENOLCK` if it was lost.
    pub fn unlock(&self, range: &LockRange) -> Result<()> {
        let (space, range) = range.parts();
        let unlocked = match &self.backend {
            FileBackend::Embedded(file) => file.unlock(space, range).map_err(CallError::from),
            FileBackend::Link(file) => file.unlock(space, range),
        };
        unlocked.at("unlock", self.path())
    }

    /// The lock that would be in the way, if any. Its `pid` is 0 for a process of another node.
    ///
    /// # Errors
    /// `EIO` if the file's owner does not answer.
    pub fn test_lock(&self, range: &LockRange, mode: LockMode) -> Result<Option<HeldLock>> {
        let lock = file_lock(range, mode);
        let held = match &self.backend {
            FileBackend::Embedded(file) => file
                .test_lock(&lock, std::process::id())
                .map_err(CallError::from),
            FileBackend::Link(file) => file.test_lock(lock),
        };
        held.at("look for locks on", self.path())
    }
}

fn file_lock(range: &LockRange, mode: LockMode) -> FileLock {
    let (space, range) = range.parts();
    FileLock { space, range, mode }
}
