//! What the members of a service tell each other, and the nouns that they say it with.
//!
//! | module | what it is |
//! |---|---|
//! | `ids` | members, fids, logs |
//! | `attr` | attributes of files, and what a caller wants to do with them |
//! | `error` | what an operation can fail with |
//! | `inode`, `intents` | what members tell each other of operations on names |
//! | `meta`, `files`, `data`, `locks` | requests to one part of a member, with their replies |
//! | `wire` | what a message is: a request of some part, a reply, an error |
//!
//! Architecture invariant: this crate knows what a request says, never how it is carried out: it opens no store, starts no
//! thread, and keeps no state.
mod attr;
pub mod data;
mod error;
pub mod files;
mod ids;
mod inode;
pub mod intents;
pub mod locks;
pub mod meta;
mod wire;

pub use attr::*;
pub use error::{Error, Result};
pub use ids::*;
pub use inode::Inode;
pub use wire::*;
