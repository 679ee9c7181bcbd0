//! One index record: an extent of a file, or a delete (a tombstone).
use crate::Extent;
use serde::{Deserialize, Serialize};

/// Bytes of a record before compression: fid 8, offset 8, len 4, member 2, log 8, addr 8, seq 8.
pub const RECORD: usize = 46;

/// Where a record stands in the order of all: by file, then by offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The file.
    pub fid: u64,
    /// Offset of the first byte.
    pub offset: u64,
}

impl Key {
    /// No key is below.
    pub const MIN: Key = Key { fid: 0, offset: 0 };
    /// No key is above.
    pub const MAX: Key = Key {
        fid: u64::MAX,
        offset: u64::MAX,
    };

    /// A number in the order of keys.
    #[inline]
    pub(in crate::csm) fn number(self) -> u128 {
        u128::from(self.fid) << 64 | u128::from(self.offset)
    }
}

/// An extent of a file; of no bytes: what stood at its key is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// File and offset.
    pub key: Key,
    /// Number of bytes, at most [`MAX_EXTENT`](crate::MAX_EXTENT); 0 for a delete.
    pub len: u32,
    /// The member whose store has the bytes.
    pub member: u16,
    /// The log there.
    pub log: u64,
    /// Address of the first byte in the log.
    pub addr: u64,
    /// The commit that published it.
    pub seq: u64,
}

impl Record {
    /// The record of an extent, which is stored and so is short enough.
    pub fn put(fid: u64, extent: &Extent) -> Record {
        Record {
            key: Key {
                fid,
                offset: extent.offset,
            },
            len: extent.len as u32,
            member: extent.member,
            log: extent.log,
            addr: extent.addr,
            seq: extent.seq,
        }
    }

    /// The record that removes what stands at `key`.
    pub fn delete(key: Key) -> Record {
        Record {
            key,
            len: 0,
            member: 0,
            log: 0,
            addr: 0,
            seq: 0,
        }
    }

    /// The extent; `None` for a delete.
    pub fn extent(&self) -> Option<Extent> {
        (self.len > 0).then(|| self.stored())
    }

    /// The extent of a record that is no delete.
    pub(crate) fn stored(&self) -> Extent {
        Extent {
            offset: self.key.offset,
            len: self.len.into(),
            member: self.member,
            log: self.log,
            addr: self.addr,
            seq: self.seq,
        }
    }
}
