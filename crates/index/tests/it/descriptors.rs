//! No file descriptor is left while the index brings its records to disk: nothing has changed, and it is tried again.

use forebay_index::Settings;
use forebay_index::{Change, Extent, ExtentIndex};
use forebay_storage::fault::{Call, FaultIo, HookedIo};
use forebay_storage::{Batch, Engine, Error, Options, Store};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_flush_that_cannot_open_the_directory_leaves_the_store_open() {
    let none_left = Arc::new(AtomicBool::new(false));
    let refuse = none_left.clone();
    let io = HookedIo::new(FaultIo::new(1), move |_, call| match call {
        Call::SyncDir if refuse.load(Ordering::Relaxed) => Err(Errno::MFILE.into()),
        _ => Ok(()),
    });
    let options = Options {
        background: false,
        ..Options::default()
    };
    let store = Store::open(Arc::new(io), Path::new("/store"), options).unwrap();
    let settings = Settings {
        background: false,
        ..Settings::default()
    };
    let index = ExtentIndex::open(&store, settings).unwrap();
    let extent = Extent {
        offset: 0,
        len: 10,
        member: 0,
        log: 1,
        addr: 0,
        seq: 1,
    };
    let mut batch = Batch::new();
    index.change(&mut batch, 7, &[Change::Put(extent)]).unwrap();
    store.apply(batch).unwrap();
    none_left.store(true, Ordering::Relaxed);
    let refused = index.engine().flush().unwrap_err();
    assert!(matches!(refused, Error::NoDescriptors { .. }), "{refused}");
    none_left.store(false, Ordering::Relaxed);
    index.engine().flush().unwrap();
    assert_eq!(index.engine().stats().table_records, 1);
    assert_eq!(index.get(7, 0..100, 9).unwrap(), [extent]);
    store.close().unwrap();
}
