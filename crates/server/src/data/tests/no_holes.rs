//! Disks that cannot punch holes at all, and punches that fail: space still comes back, at once or at the next try.
use super::*;
use forebay_storage::fault::{Call, Watched};
use parking_lot::Mutex;
use rustix::io::Errno;

/// How a punch fails, and how many have not.
#[derive(Default)]
struct Holes {
    refuse: Option<Errno>,
    punched: u64,
}

#[derive(Clone, Default)]
struct NoHoles(Arc<Mutex<Holes>>);

impl NoHoles {
    fn refuse(&self, errno: Option<Errno>) {
        self.0.lock().refuse = errno;
    }
    fn punched(&self) -> u64 {
        self.0.lock().punched
    }
    /// A disk on which that is so.
    fn disk(&self) -> Watched {
        let holes = self.0.clone();
        Watched::new(OsIo, move |_, call| {
            if matches!(call, Call::Punch { .. }) {
                let mut holes = holes.lock();
                if let Some(errno) = holes.refuse {
                    return Err(errno.into());
                }
                holes.punched += 1;
            }
            Ok(())
        })
    }
}

/// A data plane on such a disk, with two logs of 2 MiB in full segments of their own.
fn two_logs() -> (TempDir, NoHoles, Data, [LogId; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let store = Arc::new(Store::open(Arc::new(OsIo), &store, Options::default()).unwrap());
    let disk = NoHoles::default();
    let io = Arc::new(disk.disk());
    let data = Data::open_quiet(io, &dir.path().join("data"), store, options()).unwrap();
    let data = data.0;
    let logs = [1, 2].map(|fid| {
        let log = data.create_log(Fid(fid)).unwrap();
        data.append(log, &pattern(log, 0, 2 << 20)).unwrap();
        data.flush(log, false).unwrap();
        log
    });
    data.inner.segments.seal_all();
    assert_eq!(data.inner.segments.count(), 2);
    (dir, disk, data, logs)
}

#[test]
fn without_holes_segments_are_still_emptied_and_removed() {
    for errno in [Errno::OPNOTSUPP, Errno::NOSYS] {
        let (_dir, disk, data, [dead, most]) = two_logs();
        disk.refuse(Some(errno));
        let before = data.inner.segments.sealed(|_| true);
        data.free(&[(dead, 0..2 << 20), (most, 100_000..2 << 20)])
            .unwrap();
        data.inner.clean(true).unwrap();
        let after = data.inner.segments.sealed(|_| true);
        assert!(before.iter().all(|s| !after.contains(s)), "{after:?}");
        let mut buf = vec![0; 100_000];
        data.read(most, 0, &mut buf).unwrap();
        assert!(buf == pattern(most, 0, 100_000));
    }
}

#[test]
fn a_failed_punch_is_tried_again() {
    let (_dir, disk, data, [a, b]) = two_logs();
    disk.refuse(Some(Errno::IO));
    data.free(&[(a, 0..1 << 20), (b, 0..1 << 20)]).unwrap();
    assert!(data.inner.clean(false).is_err());
    assert!(data.inner.clean(false).is_err(), "the places are forgotten");
    disk.refuse(None);
    data.inner.clean(false).unwrap();
    assert_eq!(disk.punched(), 2);
    assert!(data.inner.work.is_empty());
}

#[test]
fn a_place_that_cannot_be_punched_keeps_nothing_from_being_moved() {
    let (_dir, disk, data, [half, most]) = two_logs();
    disk.refuse(Some(Errno::IO));
    data.free(&[(half, 0..1 << 20), (most, 100_000..2 << 20)])
        .unwrap();
    let emptied = data.inner.mostly_dead();
    assert_eq!(emptied.len(), 1);
    assert!(data.inner.clean(true).is_err());
    assert!(data.inner.segments.usage(emptied[0]).is_none());
    let mut buf = vec![0; 100_000];
    data.read(most, 0, &mut buf).unwrap();
    assert!(buf == pattern(most, 0, 100_000));
    disk.refuse(None);
    data.inner.clean(false).unwrap();
    assert!(data.inner.work.is_empty());
}
