//! Errors of the library: the operation, the path, and the errno of the corresponding system call.
use crate::link::{CallError, LinkError};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// The result of a call of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. [`Error::errno`] is the number the system call of the same name fails with on a mount.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on a name: open, create, rename, stat.
    #[error("cannot {operation} {}: {source}", path.display())]
    Name {
        /// What was asked, such as `open`.
        operation: &'static str,
        /// The path as the caller gave it.
        path: PathBuf,
        /// The outcome.
        source: forebay_server::Error,
    },
    /// An operation on bytes of an open file.
    #[error("cannot {operation} {} at offset {offset} ({len} bytes): {source}", path.display())]
    Bytes {
        /// What was asked, such as `read`.
        operation: &'static str,
        /// The path the file was opened by.
        path: PathBuf,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
        /// The outcome.
        source: forebay_server::Error,
    },
    /// There is no server, or no answer of it.
    #[error("cannot {operation} {}: {source}", path.display())]
    Link {
        /// What was asked, such as `open`.
        operation: &'static str,
        /// The path as the caller gave it.
        path: PathBuf,
        /// Why not, and what to do.
        source: LinkError,
    },
}

impl Error {
    /// The number the system call of the same name fails with.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Name { source, .. } | Error::Bytes { source, .. } => source.errno(),
            Error::Link { source, .. } => source.errno(),
        }
    }

    /// The path the failed call named.
    pub fn path(&self) -> &Path {
        match self {
            Error::Name { path, .. } | Error::Bytes { path, .. } | Error::Link { path, .. } => path,
        }
    }

    /// The standard library's word for [`Error::errno`].
    pub fn kind(&self) -> io::ErrorKind {
        io::Error::from_raw_os_error(self.errno().raw_os_error()).kind()
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

/// Adds the operation and the path to the outcome of a call.
pub(crate) trait WithPath<T> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T>;
    /// The same for `len` bytes at `offset`.
    fn at_bytes(self, operation: &'static str, path: &Path, offset: u64, len: u64) -> Result<T>;
}

impl<T, E: Into<CallError>> WithPath<T> for Result<T, E> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|e| {
            let path = path.to_path_buf();
            match e.into() {
                CallError::Service(source) => Error::Name {
                    operation,
                    path,
                    source,
                },
                CallError::Link(source) => Error::Link {
                    operation,
                    path,
                    source,
                },
            }
        })
    }

    fn at_bytes(self, operation: &'static str, path: &Path, offset: u64, len: u64) -> Result<T> {
        self.map_err(|e| match e.into() {
            CallError::Service(source) => Error::Bytes {
                operation,
                path: path.to_path_buf(),
                offset,
                len,
                source,
            },
            CallError::Link(source) => Error::Link {
                operation,
                path: path.to_path_buf(),
                source,
            },
        })
    }
}
