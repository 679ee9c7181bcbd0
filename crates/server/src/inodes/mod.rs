//! The inode records of one member, their locks, and their fids.
//!
//! Invariants:
//! - `meta` and `files` both change inodes. Each change happens under the inode's lock and is in one batch with all that
//!   belongs to it, so a crash never splits an inode from its entries, orphan record or extents.
//! - The lock of a directory also serialises changes of its entries.
//! - No one holds an inode lock while it calls another member.
//! - A fid is handed out once, also across crashes.
//! - What may be leased to other nodes' kernels (`leases`) changes only within a `LeaseChange`.
pub(crate) mod leases;
pub(crate) mod record;

use crate::{Error, Fid, Kind, Member, Result, keys};
use bytes::Bytes;
use forebay_data::Counter;
use forebay_storage::{Batch, Store};
use leases::LeaseTable;
use parking_lot::{Mutex, MutexGuard};
pub use record::Inode;
pub(crate) use record::decode;
use rustix::io::Errno;
use std::sync::Arc;

const STRIPES: usize = 1024;
/// The orphan record of a file that may get its first name.
const LINKABLE: [u8; 1] = [1];

/// A mode after a change by someone without privilege: set-uid goes, set-gid too where the group may execute (without that it means
/// mandatory locking, and Linux leaves it alone).
pub fn without_set_ids(mode: u32) -> u32 {
    let group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    mode & !(0o4000 | group)
}

/// One member's inodes.
pub struct Inodes {
    store: Arc<Store>,
    member: Member,
    locks: Vec<Mutex<()>>,
    fids: Counter,
    /// Which kernels may keep what of them.
    pub(crate) leases: LeaseTable,
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
            leases: LeaseTable::default(),
        })
    }

    /// A fid that was never used.
    ///
    /// # Errors
    /// When the counter cannot be moved on disk.
    pub fn allocate_fid(&self) -> Result<Fid> {
        Ok(Fid::new(self.member, self.fids.next()?))
    }

    /// Serialises changes of this inode (and of directory `fid`'s entries). Take at most one, or use
    /// `lock_many`.
    pub fn lock(&self, fid: Fid) -> MutexGuard<'_, ()> {
        self.locks[stripe(fid)].lock()
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
    pub fn put(&self, batch: &mut Batch, fid: Fid, inode: &Inode) {
        batch.put(keys::INODES, key(fid), record::encode(inode));
    }

    /// Writes the record, and nothing else, with what `batch` may use of a full disk.
    ///
    /// # Errors
    /// When the store fails.
    pub fn write(&self, mut batch: Batch, fid: Fid, inode: &Inode) -> Result<()> {
        self.put(&mut batch, fid, inode);
        Ok(self.store.apply(batch)?)
    }

    /// Adds the removal of the bare record to `batch`. To remove a file or directory for good, use `remove`.
    pub fn delete(&self, batch: &mut Batch, fid: Fid) {
        batch.delete(keys::INODES, key(fid));
    }

    /// Adds to `batch` the record that a file or directory has no name. `linkable`: it never had one, and may get one.
    pub fn put_orphan(&self, batch: &mut Batch, fid: Fid, linkable: bool) {
        let value: &[u8] = if linkable { &LINKABLE } else { &[] };
        batch.put(keys::ORPHANS, key(fid), Bytes::copy_from_slice(value));
    }

    /// Adds to `batch` that the inode has a name.
    pub fn delete_orphan(&self, batch: &mut Batch, fid: Fid) {
        batch.delete(keys::ORPHANS, key(fid));
    }

    /// Whether the inode has no name and may get its first one.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn linkable(&self, fid: Fid) -> Result<bool> {
        let record = self.store.get(keys::ORPHANS, &fid.0.to_be_bytes())?;
        Ok(record.is_some_and(|value| value[..] == LINKABLE))
    }

    /// Adds to `batch` the removal of everything kept under this fid in the inode keyspaces: the record, the orphan
    /// record and the extended attributes.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn remove(&self, batch: &mut Batch, fid: Fid) -> Result<()> {
        self.delete(batch, fid);
        self.delete_orphan(batch, fid);
        keys::delete_prefix(&self.store, batch, keys::XATTRS, &fid.0.to_be_bytes())
    }

    /// Whether the inode, as it was read, has extended attributes.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn has_xattrs(&self, fid: Fid, inode: &Inode) -> Result<bool> {
        let first = keys::records_of(&self.store, keys::XATTRS, fid).next();
        Ok(inode.codec.is_some() || first.transpose()?.is_some())
    }
}

fn key(fid: Fid) -> Bytes {
    Bytes::copy_from_slice(&fid.0.to_be_bytes())
}

fn stripe(fid: Fid) -> usize {
    (fid.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize % STRIPES
}
/// Removed directories whose records a member still has: they stay for a while, so that processes inside them get
/// answers. What cannot be read is left out; `fsck` tells of it where it checks it.
pub(crate) fn removed_directories(store: &Store) -> u64 {
    let directories = keys::orphans(store).filter_map(|fid| {
        let fid = fid.ok()?;
        let record = store.get(keys::INODES, &fid.0.to_be_bytes()).ok()??;
        (decode(fid, &record).ok()?.kind == Kind::Dir).then_some(())
    });
    directories.count() as u64
}

#[cfg(test)]
mod tests;
