//! After a failed write or sync nobody knows what the disk holds. So no more data is accepted until the store is opened again.
use forebay_proto::{Error, Result};
use forebay_storage::Error as StorageError;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Says whether the store still takes data, and why not.
#[derive(Debug)]
pub struct Poison {
    dir: PathBuf,
    poisoned: AtomicBool,
    reason: Mutex<String>,
}

impl Poison {
    /// Not poisoned. `dir`: named in errors.
    pub fn new(dir: &Path) -> Poison {
        Poison {
            dir: dir.to_owned(),
            poisoned: AtomicBool::new(false),
            reason: Mutex::default(),
        }
    }

    /// # Errors
    /// `Poisoned` after a failed write.
    pub fn check(&self) -> Result<()> {
        if !self.poisoned.load(Relaxed) {
            return Ok(());
        }
        Err(StorageError::Poisoned {
            path: self.dir.clone(),
            reason: self.reason.lock().clone(),
        }
        .into())
    }

    /// Passes the error on; anything but a full disk or a lack of descriptors poisons the store.
    pub fn note(&self, error: Error) -> Error {
        if ![Errno::NOSPC, Errno::NFILE].contains(&error.errno())
            && !self.poisoned.swap(true, Relaxed)
        {
            tracing::error!(%error, "a write failed; no more data is accepted until the store is opened again");
            *self.reason.lock() = error.to_string();
        }
        error
    }

    /// As `note`, for calls after which the state of earlier bytes is unknown (a failed sync): always poisons, unless there was no
    /// descriptor to make the call with.
    pub fn note_sync(&self, error: Error) -> Error {
        if error.errno() != Errno::NFILE && !self.poisoned.swap(true, Relaxed) {
            tracing::error!(%error, "a sync failed; no more data is accepted until the store is opened again");
            *self.reason.lock() = error.to_string();
        }
        error
    }
}

/// The storage error of a failed call; a full disk or quota becomes `NoSpace`, a lack of descriptors `NoDescriptors`.
pub fn io_error(what: &'static str, path: &Path, source: std::io::Error) -> Error {
    StorageError::io(what, path, source).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_disk_or_a_lack_of_descriptors_does_not_poison() {
        let poison = Poison::new(Path::new("data"));
        let full = io_error(
            "write",
            Path::new("x"),
            std::io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error()),
        );
        assert_eq!(poison.note(full).errno(), Errno::NOSPC);
        for note in [Poison::note, Poison::note_sync] {
            let none = io_error("open", Path::new("x"), Errno::MFILE.into());
            assert_eq!(note(&poison, none).errno(), Errno::NFILE);
        }
        assert!(poison.check().is_ok());
        let bad = io_error(
            "write",
            Path::new("x"),
            std::io::Error::from_raw_os_error(Errno::IO.raw_os_error()),
        );
        assert_eq!(poison.note(bad).errno(), Errno::IO);
        assert!(poison.check().is_err());
    }
}
