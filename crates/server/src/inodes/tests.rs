//! Inodes: fids, locks, records of all versions, of a newer version, and damaged ones.
use super::record::{VERSION, VERSION_1, VERSION_2, VERSION_3};
use super::*;
use crate::{ExtentLayout, Time};
use forebay_storage::OsIo;

impl Inodes {
    /// Changes one inode under its lock; what `change` adds to the batch lands with it.
    ///
    /// # Errors
    /// `ESTALE` if there is none; whatever `change` fails with (then nothing is written).
    pub fn update<R>(
        &self,
        fid: Fid,
        change: impl FnOnce(&mut Inode, &mut Batch) -> Result<R>,
    ) -> Result<R> {
        let _lock = self.lock(fid);
        let mut inode = self.get(fid)?;
        let mut batch = Batch::new();
        let result = change(&mut inode, &mut batch)?;
        self.put(&mut batch, fid, &inode);
        self.store.apply(batch)?;
        Ok(result)
    }
}

fn store(dir: &tempfile::TempDir) -> Arc<Store> {
    Arc::new(Store::open(Arc::new(OsIo), dir.path(), Default::default()).unwrap())
}

#[test]
fn fids_are_never_handed_out_twice() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let mut last = Fid(0);
    for _ in 0..5 {
        let inodes = Inodes::new(store.clone(), 3).unwrap();
        for _ in 0..10 {
            let fid = inodes.allocate_fid().unwrap();
            assert!(fid > last && fid.owner() == 3);
            last = fid;
        }
    }
}

#[test]
fn bytes_that_members_tell_never_overflow() {
    let zero = Time { secs: 0, nanos: 0 };
    let mut inode = Inode {
        bytes: 10,
        ..Inode::new(Kind::File, 0, 0, 0, zero)
    };
    for (added, freed, left) in [
        (5, 3, 12),
        (0, 13, 0),
        (7, 0, 7),
        (u64::MAX, 7, u64::MAX - 7),
    ] {
        inode.count(added, freed);
        assert_eq!(inode.bytes, left);
    }
}

#[test]
fn records_of_a_newer_version_and_damage_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let inodes = Inodes::new(store.clone(), 0).unwrap();
    assert_eq!(inodes.get(Fid(7)).unwrap_err().errno(), Errno::STALE);
    for bad in [&[VERSION + 1, 0][..], &[VERSION, 77], &[]] {
        let mut batch = Batch::new();
        batch.put(keys::INODES, 7u64.to_be_bytes().to_vec(), bad.to_vec());
        store.apply(batch).unwrap();
        assert!(
            matches!(inodes.get(Fid(7)), Err(Error::Corrupt(_))),
            "{bad:?}"
        );
    }
}

#[test]
fn records_of_version_1_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let inodes = Inodes::new(store.clone(), 0).unwrap();
    // A file of 5 bytes, as version 1 wrote it; then the same before its first commit.
    let time = [2, 3];
    let record = |seq: u8, size: u8| {
        let head = [VERSION_1, 0, 0xa4, 3, 7, 8, 1, 0, size, size];
        let tail = [seq, 0, 1, 0, 0];
        [&head[..], &time, &time, &time, &tail].concat()
    };
    for (seq, size, layout) in [
        (9, 5, ExtentLayout::BySlice),
        (0, 0, ExtentLayout::OwnerOnly),
    ] {
        let mut batch = Batch::new();
        batch.put(keys::INODES, 7u64.to_be_bytes().to_vec(), record(seq, size));
        store.apply(batch).unwrap();
        let inode = inodes.get(Fid(7)).unwrap();
        assert_eq!((inode.mode, inode.uid, inode.gid), (0o644, 7, 8));
        assert_eq!((inode.size, inode.seq), (size.into(), seq.into()));
        assert_eq!((inode.mtime.nanos, inode.parent), (3, Fid(1)));
        assert_eq!((inode.layout, inode.codec), (layout, None));
    }
}

#[test]
fn records_of_versions_2_and_3_have_no_codec_hint() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let inodes = Inodes::new(store.clone(), 0).unwrap();
    let inode = Inode::new(Kind::File, 0o640, 7, 8, Time { secs: 2, nanos: 3 });
    let mut record = super::record::encode(&inode);
    assert_eq!((record[0], record.pop()), (VERSION, Some(0)));
    for version in [VERSION_2, VERSION_3] {
        record[0] = version;
        let mut batch = Batch::new();
        batch.put(keys::INODES, 7u64.to_be_bytes().to_vec(), record.clone());
        store.apply(batch).unwrap();
        assert_eq!(inodes.get(Fid(7)).unwrap(), inode);
    }
}

#[test]
fn a_codec_hint_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let inodes = Inodes::new(store.clone(), 0).unwrap();
    for hint in ["auto", "field,f32,stride=4294967295,row=4294967295"] {
        let inode = Inode {
            codec: Some(hint.parse().unwrap()),
            ..Inode::new(Kind::Dir, 0o755, 7, 8, Time { secs: 2, nanos: 3 })
        };
        inodes.write(Batch::new(), Fid(7), &inode).unwrap();
        assert_eq!(inodes.get(Fid(7)).unwrap(), inode);
    }
    // A hint that this version does not know is damage, and never another hint.
    let mut record = super::record::encode(&Inode {
        codec: Some("raw".parse().unwrap()),
        ..Inode::new(Kind::File, 0o640, 7, 8, Time { secs: 2, nanos: 3 })
    });
    let last = record.len() - 1;
    record[last] = b'x';
    let mut batch = Batch::new();
    batch.put(keys::INODES, 7u64.to_be_bytes().to_vec(), record);
    store.apply(batch).unwrap();
    assert!(matches!(inodes.get(Fid(7)), Err(Error::Corrupt(_))));
}

#[test]
fn many_locks_are_taken_in_one_order() {
    let dir = tempfile::tempdir().unwrap();
    let inodes = Inodes::new(store(&dir), 0).unwrap();
    let total = Mutex::new(0u32);
    std::thread::scope(|scope| {
        for turn in 0..4u64 {
            let (inodes, total) = (&inodes, &total);
            scope.spawn(move || {
                for i in 0..500 {
                    let mut fids = [Fid(2 + i % 3), Fid(2 + (i + turn) % 5), Fid(2), Fid(2)];
                    if turn % 2 == 0 {
                        fids.reverse();
                    }
                    let _locks = inodes.lock_many(fids);
                    // All of them hold the lock of inode 2.
                    let seen = *total.lock();
                    std::hint::black_box(seen);
                    *total.lock() = seen + 1;
                }
            });
        }
    });
    assert_eq!(*total.lock(), 2000);
}
