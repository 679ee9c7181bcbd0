//! What can go wrong in a store: few kinds, each telling the user what to do next.
use std::io;
use std::path::{Path, PathBuf};

/// Result of the storage core.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a store answers when it cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused a call.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb: "read", "create".
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Bytes on disk are not what was written there.
    #[error("{}: {what} at byte {offset} is damaged (checksum {found:08x}, expected {expected:08x}); run `forebay fsck`", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// The damaged structure: "block", "record".
        what: &'static str,
        /// Where it starts in the file, in bytes.
        offset: u64,
        /// The checksum (or value) that should be there.
        expected: u32,
        /// The checksum (or value) that is there.
        found: u32,
    },
    /// A file is of a newer version, or no file of ours.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is the matter, and what to do.
        reason: String,
    },
    /// No room. Earlier data is intact; deleting works.
    #[error("{}: no space left; free some, earlier data is intact", path.display())]
    NoSpace {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// An earlier write failed; nothing more is accepted until the store is opened again.
    #[error("{}: closed after a failed write ({reason}); open the store again", path.display())]
    Poisoned {
        /// The store.
        path: PathBuf,
        /// The failure that poisoned it.
        reason: String,
    },
}

impl Error {
    /// Wraps a system error; a full disk (or quota) becomes [`Error::NoSpace`].
    pub fn io(what: &'static str, path: &Path, source: io::Error) -> Error {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace { path },
            _ => Error::Io { what, path, source },
        }
    }

    /// Wraps the error of a call after which the file's state is unknown (a sync): never `NoSpace`,
    /// because the bytes it covered cannot be taken back.
    pub(crate) fn hard(what: &'static str, path: &Path, source: io::Error) -> Error {
        Error::Io {
            what,
            path: path.to_path_buf(),
            source,
        }
    }

    /// A caller's mistake, before anything was written.
    pub(crate) fn invalid(path: &Path, reason: &'static str) -> Error {
        let source = io::Error::new(io::ErrorKind::InvalidInput, reason);
        Error::Io {
            what: "use",
            path: path.to_path_buf(),
            source,
        }
    }

    /// Whether the cause is a full disk.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::NoSpace { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_its_own_kind() {
        let path = Path::new("x");
        assert!(Error::io("write", path, io::ErrorKind::StorageFull.into()).is_no_space());
        assert!(Error::io("write", path, io::ErrorKind::QuotaExceeded.into()).is_no_space());
        assert!(!Error::io("write", path, io::ErrorKind::Other.into()).is_no_space());
        assert!(!Error::hard("sync", path, io::ErrorKind::StorageFull.into()).is_no_space());
    }
}
