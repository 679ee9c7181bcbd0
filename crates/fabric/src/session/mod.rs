//! The session layer between the processes of a job: everything except moving bytes.
//!
//! A session makes the processes that a launcher started the members of one service, knows which of them live, and carries
//! the messages of its fabrics between them. Below it is a [`ByteTransport`] (see `mpi`); another network needs another one of
//! those, and nothing else.
//!
//! ```text
//!  callers ----commands----> [ progress thread ] <----bytes----> the same thread of other processes
//!     ^                        |        |     |
//!     +----- replies ----------+        |     +--> pool: request handlers, as many threads as run at once
//!                                       +--------> mailbox: one-way messages, one thread, in order
//! ```
//!
//! - A rank is a **member** number. [`PendingSession::join`] exchanges who runs where, so a restart may permute the processes.
//! - Buffers of 16 KiB and more are sent from where they are and received into their final place. Memory in use is that
//!   of the messages under way.
//! - A request to oneself runs on the caller's thread, as on the local fabric; others run on a pool thread of the asked rank.
//!
//! # Death
//! A peer is dead when nothing was heard of it for [`Timing::limit`], when the transport reports an error on its link, or when
//! it sends an invalid frame. Calls to it end with `Dead`, calls to others go on; callers' deadlines hold whatever happens.
//! **A peer that was declared dead stays dead for this job**, also if it was only slow: its late frames are dropped, and
//! it gets no heartbeats, so that it declares this rank dead too, and neither waits for the other. To come back the job is
//! restarted.
//!
//! # The end
//! The end of a transport may wait for all processes, as `MPI_Finalize` does. [`Session::stop`] ends it only when every
//! peer has said that it leaves; otherwise it returns [`SessionEnd::Abandoned`], and the process ends without it.

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
