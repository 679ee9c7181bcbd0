//! Extents that a commit without a sync has displaced: their bytes are kept until the bytes of the commit are on disk.
//!
//! The kernel writes dirty pages back in any order, so the records of such a commit may reach the disk before its bytes do. After a
//! power cut the index would then name bytes that are not there. Therefore:
//!
//! 1. The batch of the commit also writes a record of the extents that it displaces. Their bytes are not freed.
//! 2. From time to time the members with new bytes sync them, for all commits at once (`release`). Then the displaced extents become
//!    messages of the outbox, which free them, and the record is deleted.
//! 3. A start finds the records that a power cut left, and restores the displaced extents where the new bytes cannot be read
//!    (`files/restore`).
//!
//! ```text
//! DISPLACED  key  | number 8 |    grows in the order of commits here, also across restarts
//!            val  | 2 | postcard: DisplacedRecord |
//! ```
//!
//! Invariants:
//! - The bytes of a commit are in a segment before its record is; so a sync that begins after the record was seen covers them.
//! - A record of an earlier run is left to `restore`: only it knows whether the bytes made it to the disk.
use super::{RANGES_PER_MESSAGE, damaged};
use crate::{Error, Fid, Member, Result, keys};
use bytes::Bytes;
use forebay_index::Extent;
use forebay_storage::{Batch, Store};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const VERSION: u8 = 2;
/// Records that one batch turns into messages.
const RECORDS_PER_BATCH: usize = 256;

/// What one commit displaced here, and what it wrote where a power cut must not leave it unreadable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DisplacedRecord {
    /// The file.
    pub fid: Fid,
    /// Its size before, where that is known: at its owner.
    pub size: Option<u64>,
    /// The commit's sequence.
    pub seq: u64,
    /// What was displaced.
    pub extents: Vec<Extent>,
    /// First bytes and lengths of what was written to a file of which an fsync may have promised something, or in pages that have older
    /// bytes too: the kernel reads whole pages, so these must be readable for the older ones to be. At the owner also the last byte of a
    /// commit whose end is another member's part.
    pub beside: Vec<(u64, u64)>,
}

/// The records of one member.
pub(crate) struct DisplacedExtents {
    store: Arc<Store>,
    next: AtomicU64,
    /// Records below are of commits of earlier runs.
    first: AtomicU64,
    /// Members that wrote bytes of commits since they were last asked to bring them to disk.
    writers: Mutex<BTreeSet<Member>>,
    /// Files that got a record since the last release, and since the one before: a record may land just after a release.
    files: Mutex<[HashSet<Fid>; 2]>,
}

impl DisplacedExtents {
    pub(super) fn open(store: Arc<Store>) -> Result<DisplacedExtents> {
        let mut next = 0;
        for entry in keys::all(&store, keys::DISPLACED) {
            next = next.max(number(&entry?.0)? + 1);
        }
        Ok(DisplacedExtents {
            store,
            next: AtomicU64::new(next),
            first: AtomicU64::new(next),
            writers: Mutex::default(),
            files: Mutex::default(),
        })
    }

    /// Before a recovery: what it publishes late is of an earlier run, as is what that run held back. None of it is released before
    /// `begin_restore`.
    pub fn keep_all(&self) {
        self.first.store(u64::MAX, Ordering::SeqCst);
    }

    /// What is held back up to now is of earlier runs, and left to the restore.
    pub fn begin_restore(&self) {
        let next = self.next.load(Ordering::SeqCst);
        self.first.store(next, Ordering::SeqCst);
    }

    /// These members wrote bytes of a commit, in segments already, that is about to land and need not be on disk.
    pub fn note_writers(&self, writers: impl IntoIterator<Item = Member>) {
        self.writers.lock().extend(writers);
    }

    /// Whether there may be records of the file that are not released. All that is committed to it then needs one of its own: at a
    /// restore the older records must not be taken for what was before it.
    pub fn has_records(&self, fid: Fid) -> bool {
        self.files.lock().iter().any(|files| files.contains(&fid))
    }

    /// Adds to `batch`, a commit's, what it displaces and what it writes in pages of older bytes. Its own bytes need not
    /// be on disk yet: the displaced ones are freed once they are. Call [`Outbox::wake`](super::Outbox::wake) once the
    /// batch is applied.
    ///
    /// # Errors
    /// When the record cannot be encoded.
    pub fn record(&self, batch: &mut Batch, held: &DisplacedRecord) -> Result<()> {
        self.files.lock()[0].insert(held.fid);
        // One record at least: it may hold nothing but what was written beside.
        let mut parts = held.extents.chunks(RANGES_PER_MESSAGE);
        let (mut part, mut beside) = (parts.next().unwrap_or_default(), &held.beside[..]);
        loop {
            let record = DisplacedRecord {
                extents: part.to_vec(),
                beside: beside.to_vec(),
                ..*held
            };
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let value = postcard::to_extend(&record, vec![VERSION])
                .map_err(|e| Error::Refused(format!("displaced bytes cannot be recorded: {e}")))?;
            batch.put(keys::DISPLACED, number.to_be_bytes().to_vec(), value);
            beside = &[];
            match parts.next() {
                Some(next) => part = next,
                None => return Ok(()),
            }
        }
    }

    /// Turns the records of this run into messages, once `sync` has brought all bytes of a member to disk.
    ///
    /// # Errors
    /// As `sync` and the store: the records stay.
    pub(super) fn release(
        &self,
        sync: impl Fn(Member) -> Result<()>,
        message: impl Fn(&mut Batch, &[Extent]),
    ) -> Result<()> {
        let records = self.records(self.first.load(Ordering::SeqCst))?;
        let mut writers = match records.is_empty() {
            true => BTreeSet::new(),
            false => std::mem::take(&mut *self.writers.lock()),
        };
        while let Some(writer) = writers.first().copied() {
            if let Err(e) = sync(writer) {
                self.writers.lock().extend(writers);
                return Err(e);
            }
            writers.remove(&writer);
        }
        for some in records.chunks(RECORDS_PER_BATCH) {
            let mut batch = Batch::reclaiming();
            for (number, held) in some {
                batch.delete(keys::DISPLACED, number.to_be_bytes().to_vec());
                message(&mut batch, &held.extents);
            }
            self.store.apply(batch)?;
        }
        // Only now: where a member cannot be asked, the records stay.
        let mut files = self.files.lock();
        files[1] = std::mem::take(&mut files[0]);
        Ok(())
    }

    /// What earlier runs held back, by number.
    ///
    /// # Errors
    /// When the store cannot be read, or a record is damaged.
    pub fn held_back(&self) -> Result<Vec<(u64, DisplacedRecord)>> {
        let mut left = self.records(0)?;
        let first = self.first.load(Ordering::SeqCst);
        left.retain(|(number, _)| *number < first);
        Ok(left)
    }

    fn records(&self, from: u64) -> Result<Vec<(u64, DisplacedRecord)>> {
        read(&self.store, from)
    }
}

/// All records from this number on.
pub(super) fn read(store: &Store, from: u64) -> Result<Vec<(u64, DisplacedRecord)>> {
    let mut records = Vec::new();
    let from = from.to_be_bytes();
    for entry in store.scan(keys::DISPLACED, Bound::Included(&from), Bound::Unbounded) {
        let (key, value) = entry?;
        let held = match value.split_first() {
            Some((&VERSION, rest)) => {
                postcard::from_bytes(rest).map_err(|_| damaged("displaced extents"))?
            }
            _ => return Err(damaged("version")),
        };
        records.push((number(&key)?, held));
    }
    Ok(records)
}

/// The files of which a start may put back what commits displaced. What cannot be read is left out.
pub(crate) fn files_with_displaced(store: &Store) -> BTreeSet<Fid> {
    let records = keys::all(store, keys::DISPLACED);
    let fid = |value: Bytes| {
        let (_, rest) = value.split_first()?;
        Some(postcard::from_bytes::<DisplacedRecord>(rest).ok()?.fid)
    };
    let values = records.filter_map(|entry| Some(entry.ok()?.1));
    values.filter_map(fid).collect()
}

fn number(key: &[u8]) -> Result<u64, Error> {
    let key = <[u8; 8]>::try_from(key);
    key.map(u64::from_be_bytes).map_err(|_| damaged("key"))
}
