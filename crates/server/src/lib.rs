//! Interface sketch of the node server; helpers fill the parts, the names between parts stay.
#![allow(missing_docs)]

pub mod config;
pub mod data;
pub mod delegate;
mod error;
pub mod files;
pub mod fsck;
pub mod inodes;
pub mod keys;
pub mod layout;
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
