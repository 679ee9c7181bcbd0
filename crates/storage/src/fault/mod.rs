//! The fault-injecting implementation of [`Io`](crate::Io): a file system in memory that loses, tears and refuses writes.
//! For tests, of this crate and of others.
//!
//! # The fault model
//! A disk with a page cache in front of it, as POSIX allows it to be:
//! - **Unsynced bytes.** A write reaches the disk at `sync`. At a [`crash`](FaultIo::crash) each 512-byte sector of
//!   each file is, by the seed, as it was after *some* write since the last sync, or as at that sync: independently of
//!   all other sectors. So writes are torn, reordered and lost; a single sector never is torn. The file's
//!   length is drawn in the same way.
//! - **Unsynced names.** Created, renamed and removed entries of a directory reach the disk at `sync_dir` of it. At a
//!   crash each directory keeps, by the seed, a first part of its changes in order. Syncing a file does not
//!   bring its name to disk.
//! - **Failing calls.** [`fail_after`](FaultIo::fail_after) makes one call fail with a chosen kind of error; a failing write has
//!   written a first part of its bytes, but never all. A failed `sync` loses what it should have brought to disk: a
//!   later `sync` does not make up for it (as Linux behaves).
//! - **Stopped process.** [`stop_after`](FaultIo::stop_after) makes every call from a certain one on fail, as if the process was
//!   gone; a write that is stopped may be written in part.
//! - **Full disk.** [`set_capacity`](FaultIo::set_capacity) limits the bytes in 4 KiB pages that files own; a write
//!   beyond the limit fails with `StorageFull` after a first part. Names cost nothing; removed files give their pages
//!   back once nobody has them open.
//! - **Damage.** An [`Image`] can be changed byte by byte before it is opened again.
//!
//! Not in the model: sectors that change by themselves while mounted, bytes that reads return wrongly, directories that lose
//! changes out of order.
//!
//! All draws come from the seed and the order of calls: a single-threaded run replays exactly.
//!
//! # Examples
//! ```
//! use forebay_storage::fault::FaultIo;
//! use forebay_storage::{Batch, Durability, Keyspace, Options, Store};
//! use std::{path::Path, sync::Arc};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let disk = FaultIo::new(7);
//! let options = Options { durability: Durability::Disk, ..Options::default() };
//! let store = Store::open(Arc::new(disk.clone()), Path::new("/store"), options.clone())?;
//! let mut batch = Batch::new();
//! batch.put(Keyspace(0), "key", "value");
//! store.apply(batch)?;
//! let image = disk.crash();
//! drop(store);
//! let store = Store::open(Arc::new(FaultIo::with_image(&image, 8)), Path::new("/store"), options)?;
//! assert!(store.get(Keyspace(0), b"key")?.is_some());
//! # Ok(()) }
//! ```
mod calls;
mod disk;
mod held_sync;
mod hooked;
mod image;

pub use held_sync::HeldSync;
pub use hooked::{Call, HookedIo};
pub use image::Image;

use disk::Disk;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// See the [module](self). Clones share the disk.
#[derive(Clone)]
pub struct FaultIo {
    disk: Arc<Mutex<Disk>>,
}

impl FaultIo {
    /// An empty disk.
    pub fn new(seed: u64) -> FaultIo {
        FaultIo::with_image(&Image::default(), seed)
    }

    /// A disk that holds what an image holds, all of it synced.
    pub fn with_image(image: &Image, seed: u64) -> FaultIo {
        FaultIo {
            disk: Arc::new(Mutex::new(Disk::new(image, seed))),
        }
    }

    /// The power fails now: every call on this disk fails from now on, and what the disk then holds is returned.
    pub fn crash(&self) -> Image {
        let mut disk = self.disk.lock();
        disk.faults.stop();
        disk.crashed()
    }

    /// The process is killed now, the machine goes on: every call on this disk fails from now on; all that was written
    /// is returned.
    pub fn kill(&self) -> Image {
        let mut disk = self.disk.lock();
        disk.faults.stop();
        disk.live()
    }

    /// What a reader would see now. The disk goes on.
    pub fn image(&self) -> Image {
        self.disk.lock().live()
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.disk.lock().faults.calls
    }

    /// The `n`-th call from now (1 is the next) fails with `kind`, once.
    pub fn fail_after(&self, n: u64, kind: io::ErrorKind) {
        self.disk.lock().faults.fail_after(n, kind);
    }

    /// The `n`-th call from now (1 is the next) and all later ones fail.
    pub fn stop_after(&self, n: u64) {
        self.disk.lock().faults.stop_after(n);
    }

    /// The name of the call that failed as asked for, once it has.
    pub fn failed_call(&self) -> Option<&'static str> {
        self.disk.lock().faults.failed_call
    }

    /// Files may own this many bytes, in pages of 4 KiB.
    pub fn set_capacity(&self, bytes: u64) {
        self.disk.lock().capacity = bytes;
    }

    /// Bytes that files own, in pages of 4 KiB.
    pub fn used(&self) -> u64 {
        self.disk.lock().used()
    }
}

impl Default for FaultIo {
    fn default() -> FaultIo {
        FaultIo::new(0)
    }
}

#[cfg(test)]
mod tests;
