//! Errors of a store: few kinds, each telling the user what to do next.
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of the storage core.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a store answers when it cannot do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The operating system refused a call.
    #[error("{what} {}: {source}{}", path.display(), advice(what, source))]
    Io {
        /// What was being done, as a verb: "read", "create".
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: Arc<io::Error>,
    },
    /// Bytes on disk are not what was written there.
    #[error("{}: {what} at byte {offset} is damaged (checksum {found:08x}, expected {expected:08x}); `forebay fsck --repair` keeps what is whole, `forebay mount --salvage` reads it", path.display())]
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
    /// The process, or the machine, has no file descriptor left. The call was not made, so nothing changed: it may be tried again.
    #[error("{}: no file descriptor left to open it; nothing was changed, try again, and raise the limit on open files (`ulimit -n`)", path.display())]
    NoDescriptors {
        /// The file or directory that could not be opened.
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
    /// Wraps a system error; a full disk (or quota) becomes [`Error::NoSpace`], a want of descriptors [`Error::NoDescriptors`].
    pub fn io(what: &'static str, path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::no_space(path),
            _ => Error::state_unknown(what, path, source),
        }
    }

    /// There is no room for `path`, or in it.
    pub(crate) fn no_space(path: &Path) -> Error {
        let path = path.to_path_buf();
        Error::NoSpace { path }
    }

    /// Wraps the error of a call after which the file's state is unknown (a sync): never `NoSpace`,
    /// because the bytes it covered cannot be taken back. Without a descriptor it was not made at all.
    pub(crate) fn state_unknown(what: &'static str, path: &Path, source: io::Error) -> Error {
        let path = path.to_path_buf();
        match is_no_descriptor(&source) {
            true => Error::NoDescriptors { path },
            false => Error::Io {
                what,
                path,
                source: Arc::new(source),
            },
        }
    }

    /// Bytes of `path` that are not what was written there.
    pub fn corrupt(
        path: &Path,
        what: &'static str,
        offset: u64,
        expected: u32,
        found: u32,
    ) -> Error {
        Error::Corrupt {
            path: path.to_path_buf(),
            what,
            offset,
            expected,
            found,
        }
    }

    /// What `path` is, or is of, cannot be taken, and what to do.
    pub fn format(path: &Path, reason: impl Into<String>) -> Error {
        Error::Format {
            path: path.to_path_buf(),
            reason: reason.into(),
        }
    }

    /// A caller's mistake, before anything was written.
    pub(crate) fn invalid(path: &Path, reason: &'static str) -> Error {
        let source = io::Error::new(io::ErrorKind::InvalidInput, reason);
        Error::Io {
            what: "use",
            path: path.to_path_buf(),
            source: Arc::new(source),
        }
    }

    /// Whether this file cannot be read, or is damaged: nothing is short, nor is the store closed.
    pub fn is_of(&self, file: &Path) -> bool {
        match self {
            Error::Io { path, .. } | Error::Corrupt { path, .. } | Error::Format { path, .. } => {
                path == file
            }
            Error::NoSpace { .. } | Error::NoDescriptors { .. } | Error::Poisoned { .. } => false,
        }
    }

    /// The file or directory it is about.
    pub fn path(&self) -> &Path {
        match self {
            Error::Io { path, .. }
            | Error::Corrupt { path, .. }
            | Error::Format { path, .. }
            | Error::NoSpace { path }
            | Error::NoDescriptors { path }
            | Error::Poisoned { path, .. } => path,
        }
    }

    /// The same shortage for who needs what cannot be made in `dir` for now; other errors stay.
    pub fn at(self, dir: &Path) -> Error {
        let path = dir.to_path_buf();
        match self {
            Error::NoSpace { .. } => Error::NoSpace { path },
            Error::NoDescriptors { .. } => Error::NoDescriptors { path },
            other => other,
        }
    }

    /// What is damaged or missing, without what to do about it: for lists that say it once.
    pub fn without_advice(&self) -> String {
        match self {
            Error::Corrupt {
                path,
                what,
                offset,
                expected,
                found,
            } => format!(
                "{}: {what} at byte {offset} is damaged (checksum {found:08x}, expected {expected:08x})",
                path.display()
            ),
            Error::Io { what, path, source } => format!("{what} {}: {source}", path.display()),
            other => other.to_string(),
        }
    }

    /// Whether the cause is a full disk.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::NoSpace { .. })
    }

    /// Whether nothing changed, and the same may succeed later: a full disk, or no descriptor.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::NoSpace { .. } | Error::NoDescriptors { .. })
    }
}

/// What to do about a file of a store that is not there.
fn advice(what: &str, source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound if what == "open" => {
            "; put the file back from a copy, or keep what is whole: `forebay fsck --repair`, `forebay mount --salvage`"
        }
        _ => "",
    }
}

/// Says what an I/O call was for, and on which file, where it fails.
pub trait IoContext<T> {
    /// As [`Error::io`].
    ///
    /// # Errors
    /// That of the call.
    fn context(self, what: &'static str, path: &Path) -> Result<T>;

    /// The same of a call after which the state of the file is unknown, as of a sync: a full disk is no [`Error::NoSpace`].
    ///
    /// # Errors
    /// That of the call.
    fn state_unknown_context(self, what: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, what: &'static str, path: &Path) -> Result<T> {
        self.map_err(|e| Error::io(what, path, e))
    }

    fn state_unknown_context(self, what: &'static str, path: &Path) -> Result<T> {
        self.map_err(|e| Error::state_unknown(what, path, e))
    }
}

/// Whether a call failed because the process, or the machine, has no file descriptor left.
pub(crate) fn is_no_descriptor(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
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
        assert!(
            !Error::state_unknown("sync", path, io::ErrorKind::StorageFull.into()).is_no_space()
        );
    }

    #[test]
    fn a_call_without_a_descriptor_changed_nothing() {
        for errno in [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE] {
            for error in [Error::io, Error::state_unknown] {
                let error = error("open", Path::new("x"), errno.into());
                assert!(error.is_transient() && !error.is_no_space(), "{error}");
            }
        }
        let other = Error::state_unknown("sync", Path::new("x"), io::ErrorKind::StorageFull.into());
        assert!(!other.is_transient());
    }
}
