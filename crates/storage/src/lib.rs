//! Interface sketch of the storage core: an in-memory stand-in behind the lasting interface.
//! (Replaced file by file by the real core; the public names stay.)
#![allow(missing_docs)]

mod batch;
mod error;
mod io;
mod store;

pub use batch::{Batch, Op};
pub use error::{Error, Result};
pub use io::{DirEntry, File, Io, OsIo};
pub use store::{Durability, Keyspace, Options, Scan, Snapshot, Stats, Store};
