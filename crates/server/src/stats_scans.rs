//! The scans behind [`CachedStats`](crate::cached_stats::CachedStats): of a member's records, and of its segment files on the disk.
use crate::cached_stats::StatsScan;
use crate::{Error, Fid, Kind, MemberParts, Result, files, inodes, keys};
use forebay_index::ExtentIndex;
use forebay_storage::Store;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What only a scan of every record tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// See [`MemberStatus::files`](crate::MemberStatus::files).
    pub files: u64,
    /// See [`MemberStatus::logical_bytes`](crate::MemberStatus::logical_bytes).
    pub logical_bytes: u64,
    /// See [`MemberStatus::extents`](crate::MemberStatus::extents).
    pub extents: u64,
    /// See [`MemberStatus::undelivered`](crate::MemberStatus::undelivered).
    pub undelivered: u64,
    /// See [`MemberStatus::patterns`](crate::MemberStatus::patterns).
    pub patterns: u64,
    /// See [`MemberStatus::pattern_bytes`](crate::MemberStatus::pattern_bytes).
    pub pattern_bytes: u64,
    /// See [`MemberStatus::pattern_extents`](crate::MemberStatus::pattern_extents).
    pub pattern_extents: u64,
}

/// Counts the records of a store.
pub(crate) struct RecordScan(pub Arc<Store>);

impl StatsScan for RecordScan {
    type Stats = RecordCounts;

    fn scan(&self, stop: &AtomicBool) -> Result<RecordCounts> {
        let mut counted = RecordCounts::default();
        let all = |keyspace| {
            let scan = self.0.scan(keyspace, Bound::Unbounded, Bound::Unbounded);
            scan.filter_map(|entry| {
                if stop.load(Ordering::Relaxed) {
                    return Some(Err(Error::Refused("the service stops".into())));
                }
                match entry {
                    // What is after it is not counted; the damage itself is told.
                    Err(forebay_storage::Error::Corrupt { .. }) => None,
                    entry => Some(entry.map_err(Error::from)),
                }
            })
        };
        for entry in all(keys::INODES) {
            let (key, value) = entry?;
            let fid = <[u8; 8]>::try_from(&key[..]).map_or(0, u64::from_be_bytes);
            // A damaged record is one that `fsck` tells of; it must not keep all others from being counted.
            let Ok(inode) = inodes::decode(Fid(fid), &value) else {
                counted.files += 1;
                continue;
            };
            // Records of removed directories stay for a while, so that processes inside them get answers.
            counted.files += u64::from(!(inode.kind == Kind::Dir && inode.dead));
            if inode.kind == Kind::File {
                counted.logical_bytes += inode.size;
            }
        }
        for entry in ExtentIndex::of(&self.0)?.iter()? {
            if entry.is_err() {
                // The same.
                break;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Refused("the service stops".into()));
            }
            counted.extents += 1;
        }
        for entry in all(keys::PATTERNS) {
            let (key, value) = entry?;
            counted.pattern_bytes += (key.len() + value.len()) as u64;
            // One that cannot be read is no pattern; `fsck` tells of it.
            if let Some(extents) = files::pattern_extents(&key, &value) {
                counted.patterns += 1;
                counted.pattern_extents += extents;
            }
        }
        for entry in all(keys::OUTBOX) {
            entry?;
            counted.undelivered += 1;
        }
        Ok(counted)
    }

    fn changes(&self) -> Option<u64> {
        Some(self.0.stats().puts)
    }
}

/// Measures what segment files take on the disk.
pub(crate) struct DiskScan(pub Arc<MemberParts>);

impl StatsScan for DiskScan {
    type Stats = u64;

    fn scan(&self, stop: &AtomicBool) -> Result<u64> {
        self.0.data.disk_bytes(stop)
    }

    fn changes(&self) -> Option<u64> {
        None
    }
}
