//! Transport between ranks: requests with replies, one-way messages, bulk bytes with both.
//!
//! What this crate knows: ranks, messages, deadlines, who is dead. What it must not know: what a message means,
//! where anything is stored. In a [`session`] a rank is the number of a member; which process runs it is agreed at the handshake.
//!
//! A transport implements [`Fabric`] and passes the conformance suite (`tests/it/conformance`). Here are [`local`] (ranks are
//! threads of one process), [`session`] (ranks are processes of a job), and [`fault`], a wrapper that loses, delays and kills
//! on purpose. A session needs a [`ByteTransport`](session::ByteTransport): the crate `forebay-mpi` has one. [`ring`] stands on any
//! fabric: collectives of many ranks with one.

mod error;
mod fabric;
pub mod fault;
pub mod local;
mod message;
mod port;
mod replier;
mod reply_slot;
pub mod ring;
pub mod session;

pub use error::Error;
pub use fabric::{Fabric, Handler};
pub use message::{Message, Rank};
pub use replier::Replier;
