//! A log that grows long for other reasons than the index: its files go all the same, as the index brings the little that it has into
//! files of its own. With a thread of its own, and without.
use forebay_index::Settings;
use forebay_index::{Change, Extent, ExtentIndex};
use forebay_storage::fault::FaultIo;
use forebay_storage::{Batch, Keyspace, Options, Store};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const WAL: u64 = 6000;

#[test]
fn log_files_go_although_the_index_has_few_entries() {
    for background in [false, true] {
        let options = Options {
            memtable_bytes: 2000,
            wal_bytes: WAL,
            background,
            ..Options::default()
        };
        let store = Store::open(Arc::new(FaultIo::new(1)), Path::new("/s"), options).unwrap();
        let index = ExtentIndex::open(
            &store,
            Settings {
                background,
                ..Settings::default()
            },
        )
        .unwrap();
        let extent = |offset: u64| Extent {
            offset,
            len: 10,
            member: 0,
            log: 3,
            addr: offset,
            seq: 1,
        };
        for n in 0..400u64 {
            let mut batch = Batch::new();
            batch.put(Keyspace(0), n.to_be_bytes().to_vec(), vec![n as u8; 500]);
            // Now and then one for the index, far less than would fill its MemTable.
            if n % 100 == 0 {
                let put = Change::Put(extent(n * 1000));
                index.change(&mut batch, 7, &[put]).unwrap();
            }
            store.apply(batch).unwrap();
        }
        // Two full log files are let be, and a few while it works.
        let most = 6 * WAL;
        let mut logged = store.stats().wal_bytes;
        for _ in 0..1000 {
            if logged <= most || !background {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            logged = store.stats().wal_bytes;
        }
        assert!(logged <= most, "background {background}: {logged} bytes");
        let all = index.get(7, 0..1 << 30, 99).unwrap();
        assert_eq!(all.len(), 4);
    }
}
