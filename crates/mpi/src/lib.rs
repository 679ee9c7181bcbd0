//! Sessions over MPI: processes of a job of OpenMPI or MPICH, started by `mpirun` or `srun`.
//!
//! What this crate knows: the calls of MPI. What it must not know: members, requests, who is dead.
//!
//! Everything that is not MPI's is in [`forebay_fabric::session`]. Here are safe wrappers of the calls of MPI, the
//! [`ByteTransport`] made of them, and how its thread waits.
//!
//! - All MPI calls are made on the session's progress thread, so `MPI_THREAD_FUNNELED` is enough. MPI has nothing to wait
//!   on, so that thread spins, yields, then naps: idle it costs less than 1 % of a core, and machines with more processes
//!   than cores work.
//! - Large buffers travel in pieces of 8 MiB.
//! - `mpirun` ends all ranks when one dies unless told otherwise: `mpirun --enable-recovery` (OpenMPI 4). MPICH's Hydra
//!   ends the job, which is then restarted.
//! - `MPI_Finalize` waits for all ranks. Where one is dead it is not called, and `mpirun` then reports that a rank ended
//!   without finalizing, which is so.
#![cfg(feature = "mpi")]

mod idle;
mod safe_calls;
mod transport;

pub use safe_calls::library;

use forebay_fabric::session::{self, ByteTransport, PendingSession, StartError};
use std::sync::atomic::{AtomicBool, Ordering};
use transport::MpiTransport;

static STARTED: AtomicBool = AtomicBool::new(false);

/// Starts MPI, on a thread of its own that all MPI calls of this process are made on. Start it before other
/// threads of the process fork, and fork no more after it.
///
/// # Errors
/// `Again`, `Transport`.
pub fn start() -> Result<PendingSession, StartError> {
    if STARTED.swap(true, Ordering::SeqCst) {
        return Err(StartError::Again(MpiTransport::NAME));
    }
    session::start(MpiTransport::init)
}
