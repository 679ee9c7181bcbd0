//! The transport between server processes that this program was built with: MPI (cargo feature `mpi`), or none.
pub use built_in::{IS_BUILT_IN, library, start};

#[cfg(feature = "mpi")]
mod built_in {
    pub use forebay_mpi::start;

    /// Whether there is one.
    pub const IS_BUILT_IN: bool = true;

    /// What the MPI says of itself; `None`: there is none.
    pub fn library() -> Option<String> {
        Some(forebay_mpi::library())
    }
}

#[cfg(not(feature = "mpi"))]
mod built_in {
    use forebay_fabric::session::{PendingSession, StartError};

    /// Whether there is one.
    pub const IS_BUILT_IN: bool = false;

    /// What the MPI says of itself; `None`: there is none.
    pub fn library() -> Option<String> {
        None
    }

    /// Fails: there is none.
    ///
    /// # Errors
    /// Always.
    pub fn start() -> Result<PendingSession, StartError> {
        Err(StartError::Transport {
            transport: "MPI",
            reason: String::from("this forebay was built without it"),
            advice: "build it where mpicc is",
        })
    }
}
