//! The thread of the index panics: whoever puts, or waits for that thread, gets an error.

use forebay_index::Settings;
use forebay_index::{Change, Extent, ExtentIndex};
use forebay_storage::fault::{Call, FaultIo, HookedIo};
use forebay_storage::{Batch, Error, Options, Result, Store};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

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
        // A disk on which the thread of the index panics when it creates a file.
        let io = HookedIo::new(FaultIo::new(1), |_, call| {
            let create = matches!(call, Call::Create);
            let index = std::thread::current().name() == Some("index");
            assert!(!(create && index), "on purpose");
            Ok(())
        });
        let store = Store::open(Arc::new(io), Path::new("/store"), options).unwrap();
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
