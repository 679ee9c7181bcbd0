//! Disks that cannot punch holes at all, and punches that fail: space still comes back, at once or at the next try.
use super::*;
use forebay_storage::{DirEntry, File, Io};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::io;

/// How a punch fails, and how many have not.
#[derive(Default)]
struct Holes {
    refuse: Option<Errno>,
    punched: u64,
}

#[derive(Clone, Default)]
struct NoHoles(Arc<Mutex<Holes>>);

struct NoHolesFile(Arc<dyn File>, NoHoles);

impl NoHoles {
    fn refuse(&self, errno: Option<Errno>) {
        self.0.lock().refuse = errno;
    }
    fn punched(&self) -> u64 {
        self.0.lock().punched
    }
}

impl File for NoHolesFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(buf, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.allocate(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut holes = self.1.0.lock();
        if let Some(errno) = holes.refuse {
            return Err(errno.into());
        }
        holes.punched += 1;
        self.0.punch(offset, len)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

impl Io for NoHoles {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(NoHolesFile(OsIo.open(path)?, self.clone())))
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(NoHolesFile(OsIo.create(path)?, self.clone())))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsIo.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        OsIo.remove(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        OsIo.exists(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        OsIo.list(dir)
    }
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        OsIo.create_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        OsIo.sync_dir(dir)
    }
    fn space(&self, dir: &Path) -> io::Result<(u64, u64)> {
        OsIo.space(dir)
    }
}

/// A data plane on such a disk, with two logs of 2 MiB in full segments of their own.
fn two_logs() -> (TempDir, NoHoles, Data, [LogId; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let store = Arc::new(Store::open(Arc::new(OsIo), &store, Options::default()).unwrap());
    let disk = NoHoles::default();
    let io = Arc::new(disk.clone());
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
