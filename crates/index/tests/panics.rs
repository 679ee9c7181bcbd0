//! The thread of the index panics: whoever puts, or waits for that thread, gets an error.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

use forebay_index::csm::engine::Settings;
use forebay_index::{Change, Extent, ExtentIndex};
use forebay_storage::fault::FaultIo;
use forebay_storage::{Batch, DirEntry, Error, File, Io, Options, Result, Store};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A disk on which the thread of the index panics when it creates a file.
struct Panicking(FaultIo);

impl Io for Panicking {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.0.open(path)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        assert_ne!(std::thread::current().name(), Some("index"), "on purpose");
        self.0.create(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.0.list(dir)
    }
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.0.create_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }
    fn space(&self, dir: &Path) -> io::Result<(u64, u64)> {
        self.0.space(dir)
    }
}

/// The `n`th put, of a hundred extents that do not join.
fn put(store: &Store, index: &ExtentIndex, n: u64) -> Result<()> {
    let extent = |i: u64| Extent {
        offset: (n * 100 + i) * 1000,
        len: 10,
        member: 0,
        log: i.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        addr: (n * 100 + i).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 8,
        seq: n,
    };
    let changes: Vec<Change> = (0..100).map(|i| Change::Put(extent(i))).collect();
    let mut batch = Batch::new();
    index.change(&mut batch, 7, &changes)?;
    store.apply(batch)
}

#[test]
fn nobody_waits_for_the_thread_of_the_index_when_it_has_panicked() {
    let (tell, hear) = channel();
    // Left behind if it waits for ever.
    std::thread::spawn(move || {
        let options = Options {
            background: true,
            ..Options::default()
        };
        let io = Arc::new(Panicking(FaultIo::new(1)));
        let store = Store::open(io, Path::new("/store"), options).unwrap();
        let settings = Settings {
            memtable_bytes: 4096,
            buffer_bytes: 4096,
            ..Settings::default()
        };
        let index = ExtentIndex::open(&store, settings).unwrap();
        let refused = (0..10_000).find_map(|n| put(&store, &index, n).err());
        tell.send((refused, put(&store, &index, 10_000))).unwrap();
    });
    let (refused, later) = hear.recv_timeout(Duration::from_secs(60)).unwrap();
    for error in [refused.unwrap(), later.unwrap_err()] {
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    }
}
