//! Runs of table files are merged in the background: several though puts come, two once there are no more, and those that a restart
//! finds too.
use forebay_index::Settings;
use forebay_index::{Change, Extent, ExtentIndex};
use forebay_storage::{Batch, Engine, Options, OsIo, Store};
use forebay_testkit::wait::{LIMIT, until_or};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const RECORDS: u64 = 500;

struct World {
    store: Arc<Store>,
    index: ExtentIndex,
}

impl World {
    fn open(dir: &Path) -> World {
        let store = Arc::new(Store::open(Arc::new(OsIo), dir, Options::default()).unwrap());
        let index = ExtentIndex::open(&store, Settings::default()).unwrap();
        World { store, index }
    }

    /// Puts pieces that lie between those of other numbers, and brings them to disk as a run of their own.
    fn run(&self, number: u64) {
        let put = |i| {
            Change::Put(Extent {
                offset: (i * 64 + number) * 1000,
                len: 900,
                member: 1,
                log: number,
                addr: i * 900,
                seq: 1,
            })
        };
        let changes: Vec<Change> = (0..RECORDS).map(put).collect();
        let mut batch = Batch::new();
        self.index.change(&mut batch, 5, &changes).unwrap();
        self.store.apply(batch).unwrap();
        self.index.engine().flush().unwrap();
    }

    fn is_one_run_of(&self, records: u64) {
        let stats = || self.index.engine().stats();
        until_or(LIMIT, || format!("{:?}", stats()), || stats().runs == 1);
        assert_eq!(stats().table_records, records);
        let all = self.index.get(5, 0..u64::MAX >> 1, usize::MAX).unwrap();
        assert_eq!(all.len() as u64, records);
    }
}

#[test]
fn two_runs_become_one_when_no_puts_come_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    (0..2).for_each(|n| world.run(n));
    world.is_one_run_of(2 * RECORDS);
    // The thread looks again after others have flushed.
    (2..4).for_each(|n| world.run(n));
    world.is_one_run_of(4 * RECORDS);
    world.store.close().unwrap();

    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    (0..2).for_each(|n| world.run(n));
    world.store.close().unwrap();
    drop(world);
    let world = World::open(dir.path());
    world.is_one_run_of(2 * RECORDS);
    world.store.close().unwrap();
}

#[test]
fn some_runs_become_one_though_puts_come() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let (start, mut number) = (Instant::now(), 0);
    while world.index.engine().stats().compactions == 0 {
        assert!(start.elapsed() < LIMIT, "{number} runs");
        world.run(number % 64);
        number += 1;
    }
    world.store.close().unwrap();
}
