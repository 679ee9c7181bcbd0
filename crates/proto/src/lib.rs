//! The protocol between the members of a service: requests, replies, and the types in them.
//!
//! | module | what it is |
//! |---|---|
//! | `ids` | numbers of members, files, logs |
//! | `error` | what an operation can fail with, and its form on the wire |
//! | `hint_text` | the codec hint of a file, as it travels and is stored |
//! | `attr`, `inode` | attributes of files, and what a caller wants to do with them |
//! | `placement` | which rank a member runs at; which member has which slices of a file |
//! | `call` | a request and the one reply it has; how requests are declared and encoded |
//! | `intents` | what requests say of operations on names that span members |
//! | `meta`, `files`, `data`, `locks` | the requests to each part of a member, each with its fields and its reply |
//! | `wire` | what travels: a request to some part, a one-way message; the list of the parts |
//! | `peers` | asking other members, and bringing their requests to the parts of this one |
//!
//! Each uses only those above it in this table.
//!
//! Architecture invariant: this crate knows what a request says, never how it is executed. It opens no store and starts no
//! thread.
mod attr;
pub mod call;
pub mod data;
mod error;
pub mod files;
mod hint_text;
mod ids;
mod inode;
pub mod intents;
pub mod locks;
pub mod meta;
pub mod peers;
pub mod placement;
mod wire;

pub use attr::*;
pub use error::{Error, Result, WireError};
pub use ids::*;
pub use inode::Inode;
pub use peers::{PeerRpc, Peers};
pub use wire::{
    InvalidationDone, KernelInvalidation, MemberPart, MemberServices, OneWay, PeerCall, Request,
    VERSION,
};
