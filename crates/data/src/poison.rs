//! A failed write or sync of a segment file leaves the disk in an unknown state. So the log store is poisoned: no more bytes are
//! appended until it is opened again.
//!
//! The key-value store has a flag of its own (`forebay_storage::StoreHealth`). Once that store is poisoned, the first call to it that
//! fails poisons the log store too. A poisoned log store does not poison the key-value store.
use forebay_proto::{Error, Result};
use forebay_storage::Error as StorageError;
use rustix::io::Errno;
use std::path::Path;

/// Says whether the log store still takes bytes, and why not.
#[derive(Debug)]
pub struct Poison(forebay_storage::Poison);

impl Poison {
    /// Not poisoned. `dir`: named in errors.
    pub fn new(dir: &Path) -> Poison {
        Poison(forebay_storage::Poison::new(dir))
    }

    /// # Errors
    /// `Poisoned` after a failed write.
    pub fn check(&self) -> Result<()> {
        Ok(self.0.check()?)
    }

    /// Passes the error on; anything but a full disk or a lack of descriptors poisons the log store.
    pub fn note(&self, error: Error) -> Error {
        if ![Errno::NOSPC, Errno::NFILE].contains(&error.errno()) && self.0.set(&error) {
            tracing::error!(%error, "a write failed; no more data is accepted until the store is opened again");
        }
        error
    }

    /// As `note`, for calls after which the state of earlier bytes is unknown (a failed sync): always poisons, unless there was no
    /// descriptor to make the call with.
    pub fn note_sync(&self, error: Error) -> Error {
        if error.errno() != Errno::NFILE && self.0.set(&error) {
            tracing::error!(%error, "a sync failed; no more data is accepted until the store is opened again");
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
