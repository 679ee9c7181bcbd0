//! Files for a process, without a mount: blocking, small, no async runtime.
//!
//! A [`Client`] speaks through the delegate of its node, exactly as the mount does, so what one writes the other
//! reads, with the same semantics: on one node a read sees every earlier write; on other nodes it does after
//! [`File::commit`] or [`File::close`].
//!
//! It has two backends: in the process of the server it calls the delegate ([`Client::new`]); in any other process of the same user it
//! asks the server of its node over a socket ([`Client::connect`], [`link`]). What a call means is the same.
//!
//! This crate knows paths, symbolic links and file positions. It must not know extents or logs: those belong
//! to the delegate. Staging and teams know member numbers, to place work. Names and errors follow `std::fs`.
//!
//! Permission bits are stored, not checked: a store belongs to one user, and a process that can open it can change
//! them. The kernel checks them on a mount.

mod attributes;
mod client;
mod dir;
pub mod embedded;
mod error;
mod file;
pub mod link;
mod lock;
mod metadata;
mod open;
mod path;
pub mod peer_credentials;
pub mod stage;
mod stream_position;
mod team;
pub mod team_ioctl;

pub use attributes::PathAttributes;
pub use client::Client;
pub use dir::{DirEntry, ReadDir};
pub use error::{Error, Result};
pub use file::File;
pub use forebay_server::delegate::Fallocate;
pub use forebay_server::{Kind, Lamination, SpaceTotals, Time};
pub use link::LinkError;
pub use lock::{HeldLock, LockMode, LockRange};
pub use metadata::Metadata;
pub use open::OpenOptions;
pub use team::{EmbeddedTeam, Team, TeamSpec};
