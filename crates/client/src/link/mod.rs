//! The link: the backend of a process that is not the server, over a socket of its node's server.
//!
//! ```text
//!  Client, File, Team                                server process
//!  LinkClient     one a Client; connects anew        LinkServer   accepts, and watches for ends
//!  LinkSession    this process at one server    ->   Session      what the process has open there
//!  ReadPipeline   small reads of a file, ahead
//!  DirectReader   large ones and those at random places, of the server's segment files
//!  Connection     one call at a time            ->   thread       the same calls of the embedded backend
//! ```
//!
//! Invariants:
//! - A call means what it means in the server's process, because that is where it is carried out, by the same functions. Only some
//!   reads are made by the client itself, as the server has said for these bytes, and while nothing has changed since (`direct_read`).
//! - If the client dies, the server closes its files, releases its locks and leaves its teams. If the server dies, calls fail, and
//!   the next call on a path connects to the server process that was started in its place.
//! - A forked child shares no connection with its parent (`process_local`).
mod address;
mod client;
mod connection;
mod direct_read;
mod error;
mod file;
#[cfg(test)]
mod fuzz;
mod located_windows;
mod polling;
mod process_local;
mod read_ahead;
mod read_pipeline;
mod request;
mod segment_files;
pub mod server;
mod session;
mod shared_buffer;
mod socket;
mod team;
pub mod wire;

pub use address::{SOCKET_VARIABLE, remove_left_sockets, socket_of};
pub(crate) use client::LinkClient;
pub(crate) use error::CallError;
pub use error::LinkError;
pub(crate) use file::LinkFile;
pub(crate) use process_local::ProcessLocal;
pub(crate) use request::{
    Describe, GetXattr, HardLink, Laminate, List, ListAfter, ListXattrs, Make, PathCall, ReadLink,
    RemoveDir, RemoveFile, RemoveXattr, Rename, SetAttributes, SetXattr, Space, Stat,
};
pub(crate) use team::LinkTeam;
