//! The keys of containers' records.
//!
//! ```text
//! 0  1  kind: 0 place and chunks (`record`), 1 counts (`counts`), 2 fingerprints (`fingerprints`), 4 base (`bases`)
//! 1  8  container, u64 big-endian
//! ```
//! Kind 3, with eight zero bytes, is one record of all containers: which saved index of chunks is theirs (`settle/saved`).
use super::ContainerId;
use crate::keyspaces::CONTAINERS;
use bytes::Bytes;
use forebay_storage::{Result, Store};
use std::ops::Bound;

/// The key of the record of a saved index.
pub const SAVED_INDEX: [u8; 9] = [3, 0, 0, 0, 0, 0, 0, 0, 0];

/// What a record says of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// Where it lies, and its chunks.
    Chunks = 0,
    /// How often each chunk is named.
    Counts = 1,
    /// The fingerprint of each chunk.
    Fingerprints = 2,
    /// What it is encoded against, or was: those chunks are counted once more for it.
    Base = 4,
}

impl RecordKind {
    /// All of them.
    pub const ALL: [RecordKind; 4] = [
        RecordKind::Chunks,
        RecordKind::Counts,
        RecordKind::Fingerprints,
        RecordKind::Base,
    ];

    /// Those that go with the container.
    pub const OF_CONTAINER: [RecordKind; 3] = [
        RecordKind::Chunks,
        RecordKind::Counts,
        RecordKind::Fingerprints,
    ];

    /// The key of this record of a container.
    pub fn key(self, id: ContainerId) -> [u8; 9] {
        let mut key = [self as u8; 9];
        key[1..].copy_from_slice(&id.to_be_bytes());
        key
    }

    /// All records of this kind, in the order of the containers: the key's container, if it has one, and the value.
    pub fn all(
        self,
        store: &Store,
    ) -> impl Iterator<Item = Result<(Option<ContainerId>, Bytes)>> + use<> {
        let (first, end) = ([self as u8], [self as u8 + 1]);
        let records = store.scan(CONTAINERS, Bound::Included(&first), Bound::Excluded(&end));
        records.map(|entry| entry.map(|(key, value)| (split_key(&key).map(|(_, id)| id), value)))
    }
}

/// Kind and container of the record that has this key. `None`: no record has it.
pub fn split_key(key: &[u8]) -> Option<(RecordKind, ContainerId)> {
    let (kind, id) = key.split_first()?;
    let kind = RecordKind::ALL.into_iter().find(|k| *k as u8 == *kind)?;
    Some((kind, ContainerId::from_be_bytes(id.try_into().ok()?)))
}
