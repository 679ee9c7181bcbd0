//! Ranks as processes of an MPI job: OpenMPI or MPICH, started by `mpirun` or `srun`.
//!
//! ```text
//!  callers ----commands----> [ progress thread ] <----MPI----> the same thread of other processes
//!     ^                        |        |     |
//!     +----- replies ----------+        |     +--> pool: request handlers, as many threads as run at once
//!                                       +--------> mailbox: one-way messages, one thread, in order
//! ```
//!
//! - All MPI calls are made on one thread ([`engine`](self)), so `MPI_THREAD_FUNNELED` is enough. It spins, yields, then
//!   naps: idle it costs less than 1% of a core, and machines with more processes than cores work.
//! - A rank is a **member** number. [`Job::join`] exchanges who runs where, so a restart may permute the MPI ranks.
//! - Buffers of 16 KiB and more are sent from where they are and received into their final place, in pieces of 8 MiB. Memory in
//!   use is that of the messages under way.
//! - A request to oneself runs on the caller's thread, as on the local fabric; others run on a pool thread of the asked rank.
//!
//! # Death
//! A peer is dead when nothing was heard of it for [`Timing::limit`], when MPI reports an error on its link, or when it
//! sends what is no frame. Calls to it end with `Dead`, calls to others go on; callers' deadlines hold whatever happens.
//! **A peer that was declared dead stays dead for this job**, also if it was only slow: its late frames are dropped, and
//! it gets no heartbeats, so that it declares this rank dead too, and neither waits for the other. To come back the job is
//! restarted.
//!
//! `mpirun` ends all ranks when one dies unless told otherwise: `mpirun --enable-recovery` (OpenMPI 4). MPICH's Hydra
//! ends the job, which is then restarted.
//!
//! # The end
//! `MPI_Finalize` waits for all ranks. [`World::stop`] calls it only when every peer has said that it leaves; otherwise
//! it returns [`Ending::Abandoned`], and the process ends without it. `mpirun` then reports that a rank ended without
//! finalizing, which is so.

mod edge;
mod end;
mod engine;
mod frame;
mod identity;
mod idle;
mod link;
mod peers;
mod pool;
mod world;

pub use edge::library;
pub use end::MpiFabric;
pub use identity::{Identity, Refused};
pub use peers::{Health, Peer};
pub use world::{Ending, Job, StartError, Timing, World};
