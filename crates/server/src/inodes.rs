//! The inode records of one member, and its counters. Both `meta` and `files` change inodes, so each change happens
//! under the inode's lock and in one batch with whatever belongs to it.
use crate::{Attr, Error, Fid, Kind, Lamination, Member, Result, Time, keys};
use bytes::Bytes;
use forebay_storage::{Batch, Store};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The record of one file, directory, symlink, FIFO or socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub rdev: u32,
    pub size: u64,
    /// Bytes of logs this file holds.
    pub bytes: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// Sequence of the last published commit or truncate; doubles as the generation.
    pub seq: u64,
    pub lamination: Lamination,
    /// Directories: the parent, for `..` and the loop check.
    pub parent: Fid,
    /// Directories: removed; nothing may be created in it any more.
    pub dead: bool,
    /// Symlinks: where to.
    pub target: Vec<u8>,
}

impl Inode {
    pub fn attr(&self, fid: Fid) -> Attr {
        Attr {
            fid, kind: self.kind, mode: self.mode, uid: self.uid, gid: self.gid, nlink: self.nlink,
            size: if self.kind == Kind::Symlink { self.target.len() as u64 } else { self.size },
            bytes: self.bytes, atime: self.atime, mtime: self.mtime, ctime: self.ctime,
            generation: self.seq, lamination: self.lamination,
        }
    }
}

const STRIPES: usize = 1024;

/// One member's inodes.
pub struct Inodes {
    store: Arc<Store>,
    member: Member,
    locks: Vec<Mutex<()>>,
    fids: Counter,
}

impl Inodes {
    pub fn new(store: Arc<Store>, member: Member) -> Result<Inodes> {
        Ok(Inodes {
            fids: Counter::open(store.clone(), b"fid", 2)?,
            store, member,
            locks: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        })
    }
    /// A fid that was never used.
    pub fn mint(&self) -> Result<Fid> { Ok(Fid::new(self.member, self.fids.next()?)) }
    /// Serialises changes of this inode (and of directory `fid`'s entries). Take at most one, or use `lock2`.
    pub fn lock(&self, fid: Fid) -> MutexGuard<'_, ()> { self.locks[stripe(fid)].lock() }
    /// Locks two inodes in one order, whatever the order asked.
    pub fn lock2(&self, a: Fid, b: Fid) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (x, y) = (stripe(a).min(stripe(b)), stripe(a).max(stripe(b)));
        let first = self.locks[x].lock();
        (first, (x != y).then(|| self.locks[y].lock()))
    }
    /// `ESTALE` if there is none.
    pub fn get(&self, fid: Fid) -> Result<Inode> {
        let value = self.store.get(keys::INODES, &fid.0.to_be_bytes())?.ok_or(Errno::STALE)?;
        decode(fid, &value)
    }
    pub fn put(&self, batch: &mut Batch, fid: Fid, inode: &Inode) {
        // An inode holds no type that postcard cannot write.
        let value = postcard::to_stdvec(inode).unwrap_or_default();
        batch.put(keys::INODES, Bytes::copy_from_slice(&fid.0.to_be_bytes()), value);
    }
    pub fn delete(&self, batch: &mut Batch, fid: Fid) {
        batch.delete(keys::INODES, Bytes::copy_from_slice(&fid.0.to_be_bytes()));
    }
    /// Changes one inode under its lock; what `change` adds to the batch lands with it.
    pub fn update<R>(&self, fid: Fid, change: impl FnOnce(&mut Inode, &mut Batch) -> Result<R>) -> Result<R> {
        let _lock = self.lock(fid);
        let mut inode = self.get(fid)?;
        let mut batch = Batch::new();
        let result = change(&mut inode, &mut batch)?;
        self.put(&mut batch, fid, &inode);
        self.store.apply(batch)?;
        Ok(result)
    }
}

fn stripe(fid: Fid) -> usize { (fid.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize % STRIPES }

fn decode(fid: Fid, value: &[u8]) -> Result<Inode> {
    postcard::from_bytes(value).map_err(|e| Error::Corrupt(format!("inode {:#x}: {e}; run `forebay fsck`", fid.0)))
}

/// Numbers that never repeat, also after a crash: reserved on disk in blocks, handed out from memory.
pub struct Counter {
    store: Arc<Store>,
    name: &'static [u8],
    next: Mutex<(u64, u64)>,
}

const BLOCK: u64 = 1 << 16;

impl Counter {
    pub fn open(store: Arc<Store>, name: &'static [u8], first: u64) -> Result<Counter> {
        let next = match store.get(keys::COUNTERS, name)? {
            Some(v) => <[u8; 8]>::try_from(&v[..]).map(u64::from_be_bytes)
                .map_err(|_| Error::Corrupt(format!("counter {}", String::from_utf8_lossy(name))))?,
            None => first,
        };
        Ok(Counter { store, name, next: Mutex::new((next, next)) })
    }
    pub fn next(&self) -> Result<u64> {
        let mut state = self.next.lock();
        if state.0 == state.1 {
            let limit = state.1 + BLOCK;
            let mut batch = Batch::new();
            batch.put(keys::COUNTERS, Bytes::from_static(self.name), Bytes::copy_from_slice(&limit.to_be_bytes()));
            self.store.apply(batch)?;
            state.1 = limit;
        }
        let n = state.0;
        state.0 += 1;
        Ok(n)
    }
}
