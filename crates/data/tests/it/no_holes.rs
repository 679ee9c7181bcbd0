//! Disks that cannot punch holes at all, punches that fail, and small holes, which are not punched at first: space still comes back, at
//! once or when it is needed.
use crate::common::{options, pattern};
use forebay_data::{LogId, LogStore, LogStoreOptions};
use forebay_proto::Fid;
use forebay_storage::fault::{Call, HookedIo};
use forebay_storage::{Io, Options, OsIo, Store};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How a punch fails, and how many have not.
#[derive(Default)]
struct Punches {
    refuse: Option<Errno>,
    punched: u64,
    /// The disk has no room for a write before so many are punched.
    full_until: u64,
}

#[derive(Clone, Default)]
struct HolePunches(Arc<Mutex<Punches>>);

impl HolePunches {
    fn refuse(&self, errno: Option<Errno>) {
        self.0.lock().refuse = errno;
    }
    fn punched(&self) -> u64 {
        self.0.lock().punched
    }
    /// A disk on which that is so.
    fn disk(&self) -> HookedIo {
        let holes = self.0.clone();
        HookedIo::new(OsIo, move |_, call| {
            if matches!(call, Call::Punch { .. }) {
                let mut holes = holes.lock();
                if let Some(errno) = holes.refuse {
                    return Err(errno.into());
                }
                holes.punched += 1;
            } else if matches!(call, Call::Write { .. }) {
                let holes = holes.lock();
                if holes.punched < holes.full_until {
                    return Err(Errno::NOSPC.into());
                }
            }
            Ok(())
        })
    }
}

/// A log store on such a disk, with two logs of 2 MiB in full segments of their own.
struct TwoLogs {
    dir: TempDir,
    disk: HolePunches,
    store: LogStore,
    logs: [LogId; 2],
}

impl TwoLogs {
    fn new() -> TwoLogs {
        TwoLogs::with(options())
    }

    fn with(options: LogStoreOptions) -> TwoLogs {
        let dir = tempfile::tempdir().unwrap();
        let records = dir.path().join("store");
        let records = Arc::new(Store::open(Arc::new(OsIo), &records, Options::default()).unwrap());
        let disk = HolePunches::default();
        let open = || {
            let (io, dir) = (Arc::new(disk.disk()), dir.path().join("data"));
            LogStore::open(io, &dir, records.clone(), options.clone()).unwrap()
        };
        let store = open();
        let logs = [1, 2].map(|fid| {
            let log = store.create_log(Fid(fid), Default::default()).unwrap();
            store.append(log, &pattern(log, 0, 2 << 20)).unwrap();
            store.flush(log, false).unwrap();
            log
        });
        drop(store);
        // Nothing is appended to a segment after a start.
        let store = open();
        assert_eq!(store.stats().segments, 2);
        TwoLogs {
            store,
            dir,
            disk,
            logs,
        }
    }

    fn reopened(self) -> TwoLogs {
        let records = self.dir.path().join("store");
        drop(self.store);
        let records = Arc::new(Store::open(Arc::new(OsIo), &records, Options::default()).unwrap());
        let (io, data) = (Arc::new(self.disk.disk()), self.dir.path().join("data"));
        let store = LogStore::open(io, &data, records, options()).unwrap();
        TwoLogs { store, ..self }
    }

    fn segments(&self) -> BTreeSet<String> {
        let files = std::fs::read_dir(self.dir.path().join("data")).unwrap();
        let name = |file: std::io::Result<std::fs::DirEntry>| file.unwrap().file_name();
        files.map(|f| name(f).into_string().unwrap()).collect()
    }

    fn assert_read(&self, log: LogId, len: usize) {
        let mut buf = vec![0; len];
        self.store.read(log, 0, &mut buf).unwrap();
        assert!(buf == pattern(log, 0, len));
    }
}

#[test]
fn without_holes_segments_are_still_emptied_and_removed() {
    for errno in [Errno::OPNOTSUPP, Errno::NOSYS] {
        let two = TwoLogs::new();
        let [dead, most] = two.logs;
        two.disk.refuse(Some(errno));
        let before = two.segments();
        let freed = [(dead, 0..2 << 20), (most, 100_000..2 << 20)];
        two.store.free(&freed).unwrap();
        two.store.clean(true).unwrap();
        assert!(before.is_disjoint(&two.segments()));
        two.assert_read(most, 100_000);
    }
}

#[test]
fn a_failed_punch_is_tried_again() {
    let two = TwoLogs::new();
    let [a, b] = two.logs;
    two.disk.refuse(Some(Errno::IO));
    two.store.free(&[(a, 0..1 << 20), (b, 0..1 << 20)]).unwrap();
    assert!(two.store.clean(false).is_err());
    assert!(two.store.clean(false).is_err(), "the ranges are forgotten");
    two.disk.refuse(None);
    two.store.clean(false).unwrap();
    assert_eq!((two.disk.punched(), two.store.stats().cleaning), (2, 0));
}

#[test]
fn a_range_that_cannot_be_punched_keeps_nothing_from_being_moved() {
    let two = TwoLogs::new();
    let [half, most] = two.logs;
    two.disk.refuse(Some(Errno::IO));
    let before = two.segments();
    let freed = [(half, 0..1 << 20), (most, 100_000..2 << 20)];
    two.store.free(&freed).unwrap();
    assert!(two.store.clean(true).is_err());
    assert_eq!(before.intersection(&two.segments()).count(), 1);
    two.assert_read(most, 100_000);
    two.disk.refuse(None);
    two.store.clean(false).unwrap();
    assert_eq!(two.store.stats().cleaning, 0);
}

#[test]
fn small_holes_are_punched_once_the_disk_is_full() {
    let two = TwoLogs::with(LogStoreOptions {
        background: true,
        ..options()
    });
    let [log, other] = two.logs;
    let small = (0..16).map(|n| (log, n * (64 << 10)..n * (64 << 10) + 8192));
    let large = (other, 0..128 << 10);
    let freed: Vec<_> = small.chain([large]).collect();
    two.store.free(&freed).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while two.disk.punched() == 0 || two.store.stats().cleaning > 0 {
        assert!(Instant::now() < deadline, "nothing is punched");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (free, total) = OsIo.space(two.dir.path()).unwrap();
    if free > (8 << 30).min(total / 2) {
        assert_eq!(two.disk.punched(), 1, "small ones split the file");
    }
    two.disk.0.lock().full_until = 17;
    let new = two.store.create_log(Fid(3), Default::default()).unwrap();
    two.store.append(new, &pattern(new, 0, 1 << 20)).unwrap();
    two.store.flush(new, false).unwrap();
    two.assert_read(new, 1 << 20);
    assert_eq!(two.disk.punched(), 17);
}

#[test]
fn small_holes_are_known_again_after_a_start_and_those_that_are_punched_left_alone() {
    let two = TwoLogs::new();
    let [log, other] = two.logs;
    let small = |log| (0..16).map(move |n| (log, n * (64 << 10)..n * (64 << 10) + 8192));
    two.store.free(&small(log).collect::<Vec<_>>()).unwrap();
    two.store.clean(false).unwrap();
    assert_eq!(two.disk.punched(), 16);
    two.store.free(&small(other).collect::<Vec<_>>()).unwrap();
    let two = two.reopened();
    two.store.clean(false).unwrap();
    assert_eq!(two.disk.punched(), 32);
}
