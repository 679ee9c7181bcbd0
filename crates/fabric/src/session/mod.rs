//! The session layer between the processes of a job: everything except moving bytes.
//!
//! A session makes the processes that a launcher started the members of one service, knows which of them are alive, and carries the
//! messages of its fabrics between them. Below it is a [`ByteTransport`] (see `mpi`). Another network needs only another
//! `ByteTransport`.
//!
//! ```text
//!  callers ----commands----> [ progress thread ] <----bytes----> the same thread of other processes
//!     ^                        |        |     |
//!     +----- replies ----------+        |     +--> pool: request handlers, as many threads as run at once
//!                                       +--------> mailbox: one-way messages, one thread, in order
//! ```
//!
//! - A rank is a **member** number. [`PendingSession::join`] exchanges who runs where, so a restart may permute the processes.
//! - Buffers of 16 KiB and more are sent from where they are and received into their final place. Memory in use is that of the
//!   messages under way.
//! - A request to oneself runs on the caller's thread, as on the local fabric. Other requests run on a pool thread of the target
//!   rank.
//!
//! # Death
//! A peer is dead when it has been silent for [`Timing::limit`], when the transport reports an error on its link, or when it sends
//! an invalid frame. Calls to it end with `Dead`, calls to others continue, and callers' deadlines hold in any case. **A peer that
//! was declared dead stays dead for this job**, even if it was only slow. Its late frames are dropped, and it gets no heartbeats,
//! so that it declares this rank dead too and neither waits for the other. It comes back only with a restart of the job.
//!
//! # The end
//! Ending a transport may wait for all processes, as `MPI_Finalize` does. So [`Session::stop`] ends it only when every peer has
//! said that it leaves. Otherwise it returns [`SessionEnd::Abandoned`], and the process exits without ending the transport.

mod byte_transport;
mod commands;
mod endpoint;
mod frame;
mod handle;
mod handler_pool;
mod handshake;
mod link;
mod peers;
mod progress;
mod start;
mod timing;

pub use byte_transport::{ByteTransport, Pause, Waker};
pub use endpoint::SessionFabric;
pub use handle::Session;
pub use handshake::{Identity, IdentityError};
pub use peers::{Health, Peer};
pub use progress::SessionEnd;
pub use start::{PendingSession, StartError, start};
pub use timing::Timing;
