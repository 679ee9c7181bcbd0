//! A node server: attributes, ranges, the data plane, and the delegate that speaks to the node's own clients.
//!
//! | module | what it is | must not know |
//! |---|---|---|
//! | `meta` | names, directories, attributes that this member owns | extents, logs |
//! | `files` | content of the files it owns: sequences, commits, extents of its slices | names, log bytes |
//! | `data` | its logs, packed into segment files | files beyond their number |
//! | `locks` | advisory locks on the files it owns; what its node waits for | what a file holds |
//! | `delegate` | every file operation of the node's clients | what another member stores, and how |
//! | `peers`, `proto`, `node` | requests between members, and the wiring of one | what requests mean |
//! | `service`, `layout`, `superblock`, `config` | a service in one process and its directory | |
//!
//! Architecture invariant: parts of different members meet only through requests of `proto`; so members can become
//! processes without a change in `meta`, `files`, `data` and `delegate`.

mod buffers;
pub mod config;
pub mod data;
pub mod delegate;
mod error;
pub mod files;
pub mod fsck;
pub mod inodes;
pub mod keys;
pub mod layout;
pub mod locks;
pub mod meta;
mod node;
pub mod outbox;
mod peers;
pub mod proto;
pub mod service;
pub mod superblock;
#[doc(hidden)]
pub mod testing;
pub mod types;

pub use config::{Config, Consistency};
pub use delegate::Delegate;
pub use error::{Error, Result};
pub use node::Node;
pub use peers::{Parts, Peers};
pub use service::Service;
pub use types::*;
