//! Errors that concern one file of a run; each says whether the source or the target failed.
use std::io;
use std::path::{Path, PathBuf};

/// What went wrong with one name.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// A call failed.
    #[error("cannot {step} {}: {error}", path.display())]
    Io {
        step: &'static str,
        path: PathBuf,
        error: io::Error,
        target: bool,
    },
    /// It is not at rest.
    #[error("{}: it changed while it was copied; stage it again when it is at rest", path.display())]
    Changed { path: PathBuf },
    /// What was written is not what is read again.
    #[error("{}: the copy differs from the source in the {len} bytes at {offset}; look at the target's disk, and stage it again", path.display())]
    Differs {
        path: PathBuf,
        offset: u64,
        len: u64,
    },
    /// A further name of a file that has none.
    #[error("{}: the file it is another name of was not copied; see the line about that one", path.display())]
    Uncopied { path: PathBuf },
    /// The run is ending; nobody needs to hear of this name.
    #[error("stopped")]
    Stopped,
}

/// Adds what was being done, and to what, to an error.
pub trait StageErrorContext<T> {
    /// On the source.
    fn on_source(self, step: &'static str, path: &Path) -> Result<T, StageError>;
    /// On the target.
    fn on_target(self, step: &'static str, path: &Path) -> Result<T, StageError>;
}

impl<T> StageErrorContext<T> for io::Result<T> {
    fn on_source(self, step: &'static str, path: &Path) -> Result<T, StageError> {
        self.map_err(|error| failed(step, path, error, false))
    }
    fn on_target(self, step: &'static str, path: &Path) -> Result<T, StageError> {
        self.map_err(|error| failed(step, path, error, true))
    }
}

fn failed(step: &'static str, path: &Path, error: io::Error, target: bool) -> StageError {
    StageError::Io {
        step,
        path: path.to_path_buf(),
        error,
        target,
    }
}
