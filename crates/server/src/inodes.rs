//! The inode records of one member, and its counters.
//!
//! Invariants:
//! - `meta` and `files` both change inodes. Each change happens under the inode's lock and lands in one batch with
//!   whatever belongs to it, so a crash never splits an inode from its entries, orphan record or extents.
//! - The lock of a directory also serialises changes of its entries.
//! - No one holds an inode lock while it calls another member.
//! - A fid is handed out once, also across crashes.
//!
//! Record of an inode (keyspace `INODES`, key: fid, 8 bytes big-endian):
//!
//! ```text
//! 0         1
//! +---------+------------------------------------------------+
//! | version | the fields of `Inode` in order, as postcard    |
//! +---------+------------------------------------------------+
//! ```
//!
//! The version is 2. Version 1 has no layout, the last field: it is read as `Spread` if anything was ever published, else
//! as `Fresh`. Another one is refused: it is a store of a newer Forebay. The store's blocks and log records carry the
//! checksums.
use crate::{Attr, Error, Fid, Kind, Lamination, Layout, Member, Result, Time, keys};
use bytes::Bytes;
use forebay_storage::{Batch, Store};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use std::sync::Arc;

/// The record of one file, directory, symlink, FIFO or socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// What it is; never changes.
    pub kind: Kind,
    /// Permission and set-id bits (0o7777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names of a file; 2 plus subdirectories of a directory; 0 once removed.
    pub nlink: u32,
    /// Device number (unused by the kinds that exist, kept for `mknod`).
    pub rdev: u32,
    /// Published size in bytes.
    pub size: u64,
    /// Bytes of logs this file holds.
    pub bytes: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of the content (or of a directory's entries).
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Sequence of the last published commit or truncate; doubles as the generation.
    pub seq: u64,
    /// Whether the content is read-only.
    pub lamination: Lamination,
    /// Directories: the parent, for `..` and the loop check.
    pub parent: Fid,
    /// Directories: removed; nothing may be created in it any more.
    pub dead: bool,
    /// Symlinks: where to.
    pub target: Vec<u8>,
    /// Files: where the extents are kept.
    pub layout: Layout,
}

impl Inode {
    /// Counts bytes that came and went. Members tell their numbers; no sum of them is an overflow.
    pub fn count(&mut self, added: u64, freed: u64) {
        self.bytes = self.bytes.saturating_add(added).saturating_sub(freed);
    }

    /// What `stat` shows of it.
    pub fn attr(&self, fid: Fid) -> Attr {
        Attr {
            fid,
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size: if self.kind == Kind::Symlink {
                self.target.len() as u64
            } else {
                self.size
            },
            bytes: self.bytes,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            generation: self.seq,
            lamination: self.lamination,
            layout: self.layout,
        }
    }

    /// No one may write, by the mode.
    pub fn read_only_mode(&self) -> bool {
        self.mode & 0o222 == 0
    }
}

const STRIPES: usize = 1024;
const VERSION: u8 = 2;
/// Without the layout.
const VERSION_1: u8 = 1;

/// One member's inodes.
pub struct Inodes {
    store: Arc<Store>,
    member: Member,
    locks: Vec<Mutex<()>>,
    fids: Counter,
}

impl Inodes {
    /// The inodes in `store`, which is the store of `member`.
    ///
    /// # Errors
    /// When the fid counter cannot be read.
    pub fn new(store: Arc<Store>, member: Member) -> Result<Inodes> {
        Ok(Inodes {
            fids: Counter::open(store.clone(), b"fid", 2)?,
            store,
            member,
            locks: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        })
    }

    /// A fid that was never used.
    ///
    /// # Errors
    /// When the counter cannot be moved on disk.
    pub fn mint(&self) -> Result<Fid> {
        Ok(Fid::new(self.member, self.fids.next()?))
    }

    /// Serialises changes of this inode (and of directory `fid`'s entries). Take at most one, or use `lock2` or
    /// `lock_many`.
    pub fn lock(&self, fid: Fid) -> MutexGuard<'_, ()> {
        self.locks[stripe(fid)].lock()
    }

    /// Locks two inodes in one order, whatever the order asked.
    pub fn lock2(&self, a: Fid, b: Fid) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (x, y) = (stripe(a).min(stripe(b)), stripe(a).max(stripe(b)));
        let first = self.locks[x].lock();
        (first, (x != y).then(|| self.locks[y].lock()))
    }

    /// Locks any number of inodes in one order, whatever the order asked; repetitions are fine.
    pub fn lock_many(&self, fids: impl IntoIterator<Item = Fid>) -> Vec<MutexGuard<'_, ()>> {
        let mut stripes: Vec<usize> = fids.into_iter().map(stripe).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|s| self.locks[s].lock()).collect()
    }

    /// The inode as last written.
    ///
    /// # Errors
    /// `ESTALE` if there is none.
    pub fn get(&self, fid: Fid) -> Result<Inode> {
        self.find(fid)?.ok_or(Error::Posix(Errno::STALE))
    }

    /// The inode, if there is one.
    ///
    /// # Errors
    /// When the store cannot be read, or the record is damaged.
    pub fn find(&self, fid: Fid) -> Result<Option<Inode>> {
        match self.store.get(keys::INODES, &fid.0.to_be_bytes())? {
            Some(value) => decode(fid, &value).map(Some),
            None => Ok(None),
        }
    }

    /// Adds the record to `batch`.
    #[expect(clippy::expect_used, reason = "proved beside the call")]
    pub fn put(&self, batch: &mut Batch, fid: Fid, inode: &Inode) {
        // postcard fails only for sequences of unknown length and full fixed buffers: an inode has neither.
        let value = postcard::to_extend(inode, vec![VERSION])
            .expect("an inode has no type that postcard refuses");
        batch.put(
            keys::INODES,
            Bytes::copy_from_slice(&fid.0.to_be_bytes()),
            value,
        );
    }

    /// Adds the removal of the bare record to `batch`. To remove a file or directory for good, use `remove`.
    pub fn delete(&self, batch: &mut Batch, fid: Fid) {
        batch.delete(keys::INODES, Bytes::copy_from_slice(&fid.0.to_be_bytes()));
    }

    /// Adds to `batch` the removal of everything kept under this fid in the inode keyspaces: the record, the orphan
    /// record and the extended attributes.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn remove(&self, batch: &mut Batch, fid: Fid) -> Result<()> {
        self.delete(batch, fid);
        batch.delete(keys::ORPHANS, Bytes::copy_from_slice(&fid.0.to_be_bytes()));
        for item in keys::records_of(&self.store, keys::XATTRS, fid) {
            batch.delete(keys::XATTRS, item?.0);
        }
        Ok(())
    }

    /// Whether the inode has extended attributes.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn has_xattrs(&self, fid: Fid) -> Result<bool> {
        let first = keys::records_of(&self.store, keys::XATTRS, fid).next();
        Ok(first.transpose()?.is_some())
    }

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

fn stripe(fid: Fid) -> usize {
    (fid.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize % STRIPES
}

/// Removed directories whose records a member still has: they stay for a while, so that processes inside them get
/// answers. What cannot be read is left out; `fsck` tells of it where it checks it.
pub(crate) fn removed_directories(store: &Store) -> u64 {
    let orphans = store.scan(keys::ORPHANS, Bound::Unbounded, Bound::Unbounded);
    let directories = orphans.filter_map(|entry| {
        let (key, _) = entry.ok()?;
        let fid = Fid(u64::from_be_bytes(key[..].try_into().ok()?));
        let inode = decode(fid, &store.get(keys::INODES, &key).ok()??).ok()?;
        (inode.kind == Kind::Dir).then_some(())
    });
    directories.count() as u64
}

/// Reads a record of keyspace `INODES`.
pub(crate) fn decode(fid: Fid, value: &[u8]) -> Result<Inode> {
    let fields = |bytes: &[u8]| {
        postcard::from_bytes::<Inode>(bytes)
            .map_err(|e| Error::Corrupt(format!("inode {:#x}: {e}; run `forebay fsck`", fid.0)))
    };
    match value.split_first() {
        Some((&VERSION, rest)) => fields(rest),
        Some((&VERSION_1, rest)) => {
            // The layout is the last field: one byte, of the first kind.
            let mut inode = fields(&[rest, &[0]].concat())?;
            if inode.seq > 0 {
                inode.layout = Layout::Spread;
            }
            Ok(inode)
        }
        Some((version, _)) => Err(Error::Corrupt(format!(
            "inode {:#x}: record version {version}, known is {VERSION}; use the newer Forebay that wrote it",
            fid.0
        ))),
        None => Err(Error::Corrupt(format!(
            "inode {:#x}: empty record; run `forebay fsck`",
            fid.0
        ))),
    }
}

/// Numbers that never repeat, also after a crash: reserved on disk in blocks, handed out from memory.
pub struct Counter {
    store: Arc<Store>,
    name: &'static [u8],
    /// The next number, and the end of the reserved block.
    next: Mutex<(u64, u64)>,
}

const BLOCK: u64 = 1 << 16;

impl Counter {
    /// The counter called `name` in `store`; a new one starts at `first`.
    ///
    /// # Errors
    /// When the store cannot be read, or the record is damaged.
    pub fn open(store: Arc<Store>, name: &'static [u8], first: u64) -> Result<Counter> {
        let next = match store.get(keys::COUNTERS, name)? {
            Some(v) => <[u8; 8]>::try_from(&v[..])
                .map(u64::from_be_bytes)
                .map_err(|_| {
                    let name = String::from_utf8_lossy(name);
                    Error::Corrupt(format!(
                        "counter {name}: {} bytes, not 8; run `forebay fsck`",
                        v.len()
                    ))
                })?,
            None => first,
        };
        Ok(Counter {
            store,
            name,
            next: Mutex::new((next, next)),
        })
    }

    /// A number above all handed out before.
    ///
    /// # Errors
    /// When the next block cannot be reserved on disk.
    pub fn next(&self) -> Result<u64> {
        let mut state = self.next.lock();
        if state.0 == state.1 {
            let limit = state.1 + BLOCK;
            // Deleting takes numbers too (intents): they must come on a full disk.
            let mut batch = Batch::reclaiming();
            batch.put(
                keys::COUNTERS,
                Bytes::from_static(self.name),
                Bytes::copy_from_slice(&limit.to_be_bytes()),
            );
            self.store.apply(batch)?;
            // On disk whatever the durability: other members' records name these numbers, and must not meet them again
            // with another meaning after a power loss.
            self.store.sync()?;
            state.1 = limit;
        }
        let n = state.0;
        state.0 += 1;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_storage::OsIo;

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
                let fid = inodes.mint().unwrap();
                assert!(fid > last && fid.owner() == 3);
                last = fid;
            }
        }
        let counter = Counter::open(store, b"over blocks", 1).unwrap();
        let numbers: Vec<u64> = (0..BLOCK + 10).map(|_| counter.next().unwrap()).collect();
        assert_eq!(numbers, (1..BLOCK + 11).collect::<Vec<u64>>());
    }

    #[test]
    fn bytes_that_members_tell_never_overflow() {
        let zero = Time { secs: 0, nanos: 0 };
        let mut inode = Inode {
            kind: Kind::File,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size: 0,
            bytes: 10,
            atime: zero,
            mtime: zero,
            ctime: zero,
            seq: 0,
            lamination: Lamination::None,
            parent: Fid::ROOT,
            dead: false,
            target: Vec::new(),
            layout: Layout::Fresh,
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
        for (seq, size, layout) in [(9, 5, Layout::Spread), (0, 0, Layout::Fresh)] {
            let mut batch = Batch::new();
            batch.put(keys::INODES, 7u64.to_be_bytes().to_vec(), record(seq, size));
            store.apply(batch).unwrap();
            let inode = inodes.get(Fid(7)).unwrap();
            assert_eq!((inode.mode, inode.uid, inode.gid), (0o644, 7, 8));
            assert_eq!((inode.size, inode.seq), (size.into(), seq.into()));
            assert_eq!((inode.mtime.nanos, inode.parent), (3, Fid(1)));
            assert_eq!(inode.layout, layout);
        }
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
}
