//! The transport between server processes that this program was built with: MPI (cargo feature `mpi`), or none.
#[cfg(not(feature = "mpi"))]
use forebay_fabric::session::{Joining, StartError};

#[cfg(feature = "mpi")]
pub use forebay_fabric::mpi::start;

/// Fails: there is none.
///
/// # Errors
/// Always.
#[cfg(not(feature = "mpi"))]
pub fn start() -> Result<Joining, StartError> {
    Err(StartError::Transport {
        transport: "MPI",
        reason: String::from("this forebay was built without it"),
        advice: "build it where mpicc is",
    })
}

/// Whether there is one.
pub const IS_BUILT_IN: bool = cfg!(feature = "mpi");

/// What the MPI says of itself; `None`: there is none.
pub fn library() -> Option<String> {
    #[cfg(feature = "mpi")]
    return Some(forebay_fabric::mpi::library());
    #[cfg(not(feature = "mpi"))]
    None
}
