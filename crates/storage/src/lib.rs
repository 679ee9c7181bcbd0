//! The log-structured storage core on which Forebay's stores stand: one write-ahead log, one manifest and one I/O trait
//! with its fault-injecting implementation, under engines that each keep one kind of a batch's changes.
//!
//! | module | what |
//! |---|---|
//! | `store` | what users call: open, apply, get, scan, close |
//! | `engine` | the trait that engines implement, and what they share: the end of the log, the manifest, file numbers |
//! | `rows` | the row engine: MemTables, levels of table files, block cache |
//! | `manifest`, `wal` | which files make up the store; every batch before it is applied |
//! | `newest_first`, `table_file`, `table_footer` | merging what engines read, and the files they read from |
//! | `io`, `pool`, `read_only`, [`fault`] | the I/O trait, and what implements it |
//! | `batch`, `options`, `error`, `names`, `encoding` | batches, settings and counters, errors, names of files, integers in files |
//! | `damage`, [`bit_correction`], `sectors`, `poison` | what is damaged, single flipped bits, unreadable sectors, stores that a failed write has closed |
//!
//! **Knows**: bytes, keys, batches, files. **Must not know**: files of the mounted file system, extents, ranks,
//! networks, configuration files.
//!
//! Architecture invariant: every byte reaches a disk through [`Io`]; nothing else in this crate opens a file of a store.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod batch;
pub mod bit_correction;
mod damage;
mod encoding;
mod engine;
mod error;
pub mod fault;
mod io;
mod manifest;
mod names;
mod newest_first;
mod options;
mod poison;
mod pool;
mod read_only;
mod rows;
mod sectors;
mod shared_sync;
mod store;
mod table_file;
mod table_footer;
mod wal;

pub use batch::{Batch, EngineEntry, Keyspace, Op};
pub use damage::{Damage, DamageNotes, LogCut, LogEnd, OpenReport, PossibleLoss};
pub use engine::{BackgroundWork, Engine, EngineHost, GroupSummary, LogTail, StoreHealth};
pub use error::{Error, IoContext, Result};
pub use io::{DirEntry, File, Io, OsIo, is_unsupported};
pub use manifest::{EngineEdit, Provenance};
pub use newest_first::{NewestFirst, SortedCursor};
pub use options::{Durability, Options, Stats};
pub use poison::Poison;
pub use pool::PooledIo;
pub use read_only::{ReadOnly, ReadOnlyFile};
pub use rows::{Scan, Snapshot};
#[doc(hidden)]
pub use store::RecordLocation;
pub use store::Store;
pub use table_file::{OpenTable, TableFile, UnreadableTables, remove_unnamed};
pub use table_footer::TableFooter;
