//! What the data plane may use: live bytes against the quota, buffer memory against its budget, and whether a failed
//! write has closed it.
use crate::Result;
use forebay_storage::Error as StorageError;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A number of bytes with a limit.
#[derive(Debug)]
pub struct Meter {
    used: AtomicU64,
    limit: u64,
}

impl Meter {
    /// Nothing used yet.
    pub fn new(limit: u64) -> Meter {
        Meter {
            used: AtomicU64::new(0),
            limit,
        }
    }
    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
    /// The limit, bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }
    /// Takes `n` bytes, or nothing if that is over the limit.
    pub fn try_take(&self, n: u64) -> bool {
        let fits = |used: u64| used.checked_add(n).filter(|total| *total <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }
    /// Takes `n` bytes, whatever the limit.
    pub fn take(&self, n: u64) {
        self.used.fetch_add(n, Relaxed);
    }
    /// Gives `n` bytes back.
    pub fn give(&self, n: u64) {
        let before = self.used.fetch_sub(n, Relaxed);
        debug_assert!(before >= n, "gave back more than was taken");
    }
}

/// Closed after a failed write, until the store is opened again.
#[derive(Debug)]
pub struct Health {
    dir: PathBuf,
    bad: AtomicBool,
    reason: Mutex<String>,
}

impl Health {
    /// In good health. `dir`: named in errors.
    pub fn new(dir: &Path) -> Health {
        Health {
            dir: dir.to_owned(),
            bad: AtomicBool::new(false),
            reason: Mutex::default(),
        }
    }

    /// # Errors
    /// `Poisoned` after a failed write.
    pub fn check(&self) -> Result<()> {
        if !self.bad.load(Relaxed) {
            return Ok(());
        }
        Err(StorageError::Poisoned {
            path: self.dir.clone(),
            reason: self.reason.lock().clone(),
        }
        .into())
    }

    /// Passes the error on; anything but a want of room or descriptors closes the data plane for writes.
    pub fn note(&self, error: crate::Error) -> crate::Error {
        if ![Errno::NOSPC, Errno::NFILE].contains(&error.errno()) && !self.bad.swap(true, Relaxed) {
            tracing::error!(%error, "a write failed; no more data is accepted until the store is opened again");
            *self.reason.lock() = error.to_string();
        }
        error
    }

    /// As `note`, for calls after which the state of earlier bytes is unknown (a failed sync): always closes, unless there was no
    /// descriptor to make the call with.
    pub fn note_sync(&self, error: crate::Error) -> crate::Error {
        if error.errno() != Errno::NFILE && !self.bad.swap(true, Relaxed) {
            tracing::error!(%error, "a sync failed; no more data is accepted until the store is opened again");
            *self.reason.lock() = error.to_string();
        }
        error
    }
}

/// The storage error of a failed call; a full disk or quota becomes `NoSpace`, a want of descriptors `NoDescriptors`.
pub fn io_error(what: &'static str, path: &Path, source: std::io::Error) -> crate::Error {
    StorageError::io(what, path, source).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_stops_at_its_limit() {
        let m = Meter::new(10);
        assert!(m.try_take(10) && !m.try_take(1));
        m.give(3);
        assert!(!m.try_take(4) && m.try_take(3));
        m.take(5);
        assert_eq!((m.used(), m.limit()), (15, 10));
    }

    #[test]
    fn only_a_want_of_room_or_descriptors_leaves_it_open() {
        let health = Health::new(Path::new("data"));
        let full = io_error(
            "write",
            Path::new("x"),
            std::io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error()),
        );
        assert_eq!(health.note(full).errno(), Errno::NOSPC);
        for note in [Health::note, Health::note_sync] {
            let none = io_error("open", Path::new("x"), Errno::MFILE.into());
            assert_eq!(note(&health, none).errno(), Errno::NFILE);
        }
        assert!(health.check().is_ok());
        let bad = io_error(
            "write",
            Path::new("x"),
            std::io::Error::from_raw_os_error(Errno::IO.raw_os_error()),
        );
        assert_eq!(health.note(bad).errno(), Errno::IO);
        assert!(health.check().is_err());
    }
}
