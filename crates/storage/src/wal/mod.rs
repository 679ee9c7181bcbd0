//! The write-ahead log: every batch as one record, before it is applied.
//!
//! A store's log is a series of files `wal-N.log` with rising `N`: a 32-byte [`header`], then [`record`]s whose payload is a
//! batch ([`payload`]). A file is removed when all engines hold its batches in files of their own. A MemTable of the
//! row engine ends with its log file.
//!
//! # Invariants
//! 1. Batches are numbered 1, 2, 3, ... ; the log holds them in this order without a gap, but for
//!    those that the manifest says are flushed.
//! 2. Bytes after the last whole record are never part of the log: a failed append is rolled
//!    back (full disk) or poisons the store (any other failure), so nothing follows torn bytes.
//! 3. A record's `synced` field never names a batch that was not on disk.
//! 4. After recovery no file holds a record after the point where the log was cut.
//!
//! # Why a crash is safe, case by case
//! - *While a record is written.* Its checksums fail, or its bytes are missing. It was not
//!   acknowledged at durability `disk` (the sync comes first), and at `process` only the power can
//!   cut a write short. Recovery cuts the log there and says so in a warning.
//! - *Power lost at durability `process`.* Any unsynced sectors may be missing, so whole records may
//!   follow a hole. None of them has a `synced` at or above the hole's batch, because that batch was
//!   never synced: recovery cuts at the hole, and what remains is a prefix of the batches.
//!   The batches after the hole were whole, so this is reported as a loss.
//! - *A byte changes, synced or not.* This is damage, not a crash. It is recognised in two ways: a later record says `synced` at or above
//!   the damaged batch, or the bytes are not such as a crash leaves ([`torn`]), because no sector of the record is as it was
//!   before. Opening for writing then fails with [`Corrupt`](crate::Error::Corrupt), for later batches may depend on the lost one. A
//!   store that is salvaged skips the batch and applies those that follow.
//! - *A damaged header or seal* costs nothing: records carry their file's number themselves, and a seal holds no batch.
//! - *A log file is gone, or ends early after a clean stop.* The manifest names a log file that there is, or the last batch of
//!   a closed store: that too is damage. Of a killed store, a file cut at the end of a record cannot be distinguished from one
//!   that a power failure cut; the open says after which batch the log ended, and through which everything was on disk.
//! - *The directory entry of a new log file is lost.* At `disk` it is synced before the first batch in
//!   it is acknowledged. At `process` its batches are missing: the gap in the numbers is cut like a hole.
//! - *Between cutting and the first new batch.* Files after the cut are removed, last one first, and the
//!   directory is synced before any batch gets a number again; a crash in between cuts again.
//! - *After a flush, before the log files are removed.* The manifest holds the flushed number;
//!   recovery skips those records. A record is never applied twice over newer data.
//! - *Disk full.* The append is rolled back to the last whole record. Reclaiming batches go
//!   on in the [`reserve`], whose blocks were allocated when the store was opened.
//! - *While the reserve becomes a log file.* It is one rename. Before it the reserve is still a reserve,
//!   after it an empty log file (zeros) that recovery reads as such.
pub mod check;
pub mod header;
pub mod payload;
pub mod record;
pub mod recovered;
pub mod recovery;
mod replay;
pub mod reserve;
pub mod torn;
pub mod writer;

use crate::File;
use std::path::PathBuf;
use std::sync::Arc;

/// A log file that is no longer written, and stays until its batches are flushed.
pub struct OldLog {
    /// The number in its name.
    pub number: u64,
    /// Its last batch.
    pub last: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where it is damaged and nothing is lost: seals, headers, and batches that a table file holds.
    pub harmless: Vec<u64>,
    /// The file and its path, if it may not be on disk yet.
    pub unsynced: Option<(Arc<dyn File>, PathBuf)>,
}

impl OldLog {
    /// Of which no batch is known yet.
    pub fn new(number: u64, bytes: u64) -> OldLog {
        OldLog {
            number,
            last: 0,
            bytes,
            harmless: Vec::new(),
            unsynced: None,
        }
    }
}

/// The kind of a log file.
pub const KIND: header::FileKind = header::FileKind {
    magic: *b"FBYWAL\r\n",
    version: 1,
    oldest: 1,
};
