//! The keyspaces of a member's store and who writes each. One place for those of all crates: no two have the same number.
use crate::{Fid, Result};
use bytes::Bytes;
pub use forebay_data::keyspaces::{CONTAINERS, COUNTERS, LOGS, SPANS};
use forebay_storage::{Batch, Keyspace, Scan, Store};
use std::ops::Bound;

/// Inodes by fid (big-endian). Written by `meta` and `files` through `inodes`.
pub const INODES: Keyspace = Keyspace(0);
/// Directory entries by (directory fid, name). Written by `meta`.
pub const DENTRIES: Keyspace = Keyspace(1);
/// Extended attributes by (fid, name). Written by `meta`.
pub const XATTRS: Keyspace = Keyspace(2);
/// Patterns and holes of files, by (fid, kind, sequence, number). Written by `files` (`files/patterns` draws them). Extents are
/// kept by `forebay_index`, in an engine of the store.
pub const PATTERNS: Keyspace = Keyspace(3);
/// Staged changes of commits not yet published, and the last sequence published here by file. Written by `files`
/// (`files/records.rs` draws the keys).
pub const STAGED: Keyspace = Keyspace(5);
/// Namespace intents, prepared entries, applied steps, orphans. Written by `meta`.
pub const INTENTS: Keyspace = Keyspace(6);
/// Messages that must arrive (freed extents), by (member, number). Written by `outbox`.
pub const OUTBOX: Keyspace = Keyspace(7);
/// Decisions of commits over several members; by file: receipts, aborts, which members have parts. Written by `files`
/// (`files/records.rs` draws the keys).
pub const DECISIONS: Keyspace = Keyspace(8);
/// Inodes without a name that wait for their last close, by fid: nothing, or 1 for a file that never had a name and may get one.
/// Written by `inodes`.
pub const ORPHANS: Keyspace = Keyspace(10);
/// What commits displaced whose own bytes may not be on disk yet, by number. Written by `outbox`.
pub const DISPLACED: Keyspace = Keyspace(12);

/// Every keyspace, with the crate that owns its records.
pub const KEYSPACE_CRATES: [(Keyspace, &str); 14] = [
    (INODES, "forebay-server"),
    (DENTRIES, "forebay-server"),
    (XATTRS, "forebay-server"),
    (PATTERNS, "forebay-server"),
    (SPANS, "forebay-data"),
    (STAGED, "forebay-server"),
    (INTENTS, "forebay-server"),
    (OUTBOX, "forebay-server"),
    (DECISIONS, "forebay-server"),
    (LOGS, "forebay-data"),
    (ORPHANS, "forebay-server"),
    (COUNTERS, "forebay-data"),
    (DISPLACED, "forebay-server"),
    (CONTAINERS, "forebay-data"),
];

// Numbers are handed out in order; a number that two crates took shows here, when this is compiled.
const _: () = {
    let mut i = 0;
    while i < KEYSPACE_CRATES.len() {
        assert!(
            KEYSPACE_CRATES[i].0.0 as usize == i,
            "a keyspace has the number of another one"
        );
        i += 1;
    }
};

/// The first key after all that start with `prefix`. `None`: there is none, for `prefix` has only bytes 255.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|b| *b != u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

/// The fid that a key begins with.
pub fn fid_of(key: &[u8]) -> Option<Fid> {
    let (fid, _) = key.split_first_chunk::<8>()?;
    Some(Fid(u64::from_be_bytes(*fid)))
}

/// All records of a keyspace.
pub(crate) fn all(store: &Store, keyspace: Keyspace) -> Scan {
    store.scan(keyspace, Bound::Unbounded, Bound::Unbounded)
}

/// Those that can be read; damage is told with the store.
pub(crate) fn readable(store: &Store, keyspace: Keyspace) -> impl Iterator<Item = (Bytes, Bytes)> {
    all(store, keyspace).filter_map(Result::ok)
}

/// The records whose keys start with `prefix`.
pub(crate) fn with_prefix(store: &Store, keyspace: Keyspace, prefix: &[u8]) -> Scan {
    let end = prefix_end(prefix);
    // Without the upper end a scan would step over the deletes of all records after these.
    let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    store.scan(keyspace, Bound::Included(prefix), to)
}

/// The records whose keys start with this fid.
pub(crate) fn records_of(store: &Store, keyspace: Keyspace, fid: Fid) -> Scan {
    with_prefix(store, keyspace, &fid.0.to_be_bytes())
}

/// Adds to `batch` the removal of every record whose key starts with `prefix`.
pub(crate) fn delete_prefix(
    store: &Store,
    batch: &mut Batch,
    keyspace: Keyspace,
    prefix: &[u8],
) -> Result<()> {
    for entry in with_prefix(store, keyspace, prefix) {
        batch.delete(keyspace, entry?.0);
    }
    Ok(())
}

/// The inodes of the store that have no name.
pub(crate) fn orphans(store: &Store) -> impl Iterator<Item = Result<Fid>> {
    all(store, ORPHANS).filter_map(|entry| match entry {
        Ok((key, _)) => fid_of(&key).map(Ok),
        Err(e) => Some(Err(e.into())),
    })
}

#[cfg(test)]
mod tests {
    use super::prefix_end;

    #[test]
    fn what_is_behind_a_prefix() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(&[1, 255, 255]), Some(vec![2]));
        assert_eq!(prefix_end(&[255, 255]), None);
        assert_eq!(prefix_end(b""), None);
    }
}
