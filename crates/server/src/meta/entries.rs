//! Directory entries: key `(directory fid, name)`, value what the name names.
//!
//! ```text
//! key    0        8                    value  0          1        9
//!        +--------+------------------+        +----------+--------+
//!        | dir BE | name, 1..=255 B  |        | 1k, kind | fid BE |
//!        +--------+------------------+        +----------+--------+
//! ```
//!
//! Big-endian, so that one directory's entries are one range in name order. The value's first byte is 0x10 (the
//! format) plus the kind, kept here so that listings and rename rules need no look at the inode.
use crate::{DirEntry, Error, Fid, Kind, Result, keys};
use bytes::Bytes;
use forebay_proto::intents::EntryTarget;
use forebay_storage::{Batch, Store};
use std::ops::Bound;

const FORMAT: u8 = 0x10;
/// The kinds by their numbers.
const KINDS: [Kind; 7] = [
    Kind::File,
    Kind::Dir,
    Kind::Symlink,
    Kind::Fifo,
    Kind::Socket,
    Kind::CharDevice,
    Kind::BlockDevice,
];

fn key(dir: Fid, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + name.len());
    key.extend_from_slice(&dir.0.to_be_bytes());
    key.extend_from_slice(name);
    key
}

fn encode(entry: EntryTarget) -> [u8; 9] {
    let mut value = [FORMAT | entry.kind as u8; 9];
    value[1..].copy_from_slice(&entry.fid.0.to_be_bytes());
    value
}

fn decode(key: &[u8], value: &[u8]) -> Result<EntryTarget> {
    let damaged = || {
        let (dir, name) = key.split_at(key.len().min(8));
        let name = String::from_utf8_lossy(name);
        Error::Corrupt(format!(
            "entry {name:?} of directory {dir:02x?} is damaged; run `forebay fsck`"
        ))
    };
    let value = <[u8; 9]>::try_from(value).map_err(|_| damaged())?;
    let kind = usize::from(value[0] ^ FORMAT);
    let kind = *KINDS.get(kind).ok_or_else(damaged)?;
    let fid = keys::fid_of(&value[1..]).ok_or_else(damaged)?;
    Ok(EntryTarget { fid, kind })
}

/// What `name` in `dir` names.
pub(crate) fn get(store: &Store, dir: Fid, name: &[u8]) -> Result<Option<EntryTarget>> {
    let key = key(dir, name);
    store
        .get(keys::DENTRIES, &key)?
        .map(|value| decode(&key, &value))
        .transpose()
}

/// Adds the entry, or its removal, to `batch`.
pub(crate) fn set(batch: &mut Batch, dir: Fid, name: &[u8], to: Option<EntryTarget>) {
    match to {
        Some(entry) => batch.put(
            keys::DENTRIES,
            key(dir, name),
            Bytes::copy_from_slice(&encode(entry)),
        ),
        None => batch.delete(keys::DENTRIES, key(dir, name)),
    };
}

/// Entries of `dir` after `after` in name order, at most `limit`.
pub(crate) fn list(
    store: &Store,
    dir: Fid,
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<DirEntry>> {
    // No name is empty, so excluding the bare fid starts at the first entry.
    let from = key(dir, after.unwrap_or_default());
    let end = keys::prefix_end(&dir.0.to_be_bytes());
    let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let mut entries = Vec::new();
    for item in store
        .scan(keys::DENTRIES, Bound::Excluded(&from), to)
        .take(limit)
    {
        let (key, value) = item?;
        let entry = decode(&key, &value)?;
        entries.push(DirEntry {
            name: key[8..].to_vec(),
            fid: entry.fid,
            kind: entry.kind,
        });
    }
    Ok(entries)
}

/// Whether `dir` has no entry.
pub(crate) fn is_empty(store: &Store, dir: Fid) -> Result<bool> {
    Ok(list(store, dir, None, 1)?.is_empty())
}

/// Every entry of the store, for checking: `(directory, name, what it names)`.
pub(crate) fn all(store: &Store) -> impl Iterator<Item = Result<(Fid, Vec<u8>, EntryTarget)>> {
    keys::all(store, keys::DENTRIES).map(|item| {
        let (key, value) = item?;
        let entry = decode(&key, &value)?;
        let (dir, name) = key.split_at(8);
        let mut fid = [0; 8];
        fid.copy_from_slice(dir);
        Ok((Fid(u64::from_be_bytes(fid)), name.to_vec(), entry))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back_and_damage_is_found() {
        for (number, kind) in (0x10..).zip(KINDS) {
            let entry = EntryTarget {
                fid: Fid::new(3, 77),
                kind,
            };
            assert_eq!(encode(entry)[0], number);
            assert_eq!(decode(b"12345678x", &encode(entry)).unwrap(), entry);
        }
        assert!(matches!(
            decode(b"12345678x", &[0x17; 9]),
            Err(Error::Corrupt(_))
        ));
        assert!(matches!(
            decode(b"12345678x", &[0x10; 8]),
            Err(Error::Corrupt(_))
        ));
        assert!(matches!(decode(b"1", &[]), Err(Error::Corrupt(_))));
    }
}
