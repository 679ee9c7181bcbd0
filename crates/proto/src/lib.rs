//! What the members of a service tell each other, and the nouns that they say it with.
//!
//! | module | what it is |
//! |---|---|
//! | `ids` | members, fids, logs |
//! | `attr` | attributes of files, and what a caller wants to do with them |
//! | `error` | what an operation can fail with |
//! | `data`, `files` | requests to one part of a member, with their replies |
//!
//! Architecture invariant: this crate knows what a request says, never how it is carried out: it opens no store, starts no
//! thread, and keeps no state.
mod attr;
pub mod data;
mod error;
pub mod files;
mod ids;

pub use attr::*;
pub use error::{Error, Result};
pub use ids::*;
