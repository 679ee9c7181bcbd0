//! The log-structured storage core on which Forebay's stores stand: write-ahead log, MemTable, table
//! files, manifest, compaction, block cache, and the one I/O trait with its fault-injecting twin.
//!
//! **Knows**: bytes, keys, batches, files. **Must not know**: files of the mounted file system, extents, ranks,
//! networks, configuration files.
//!
//! Architecture invariant: every byte reaches a disk through [`Io`]; nothing else in this crate opens a file.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod batch;
mod block;
mod cache;
mod compaction;
pub mod correction;
mod damage;
mod error;
pub mod fault;
mod io;
mod lineage;
mod manifest;
mod memtable;
mod merge;
mod names;
mod options;
mod pool;
mod read_only;
mod sectors;
mod side;
mod store;
mod table;
mod wal;
mod wire;

pub use batch::{Batch, Keyspace, Op, SideEntry};
pub use damage::{Damage, DamageNotes, LogCut, LogEnd, Lost, Opened};
pub use error::{Error, Result, Shortage};
pub use io::{DirEntry, File, Io, OsIo};
pub use lineage::Lineage;
pub use options::{Durability, Options, Stats};
pub use pool::PooledIo;
pub use read_only::ReadOnly;
pub use sectors::read as read_around_bad_sectors;
pub use side::{Side, SideEdit, SideHost};
#[doc(hidden)]
pub use store::StoredPiece;
pub use store::{Scan, Snapshot, Store};
