//! Blocks: the unit in which table files are read, verified and cached. Entries are rows; of each key only the part is stored that
//! differs from the key before (prefix compression).
//!
//! ```text
//!  count varint | count times: shared varint | suffix length varint | value length + 1 varint, 0 = delete | suffix | value
//! ```
//!
//! Invariant: a decoded [`Block`] is in strictly ascending key order, whatever the bytes were. The checksum of a block is in its
//! table's metadata region, not in the block.
use crate::encoding::{Cursor, put_varint};
use bytes::Bytes;

/// One entry on its way into a block. Keys start with the keyspace byte. `None` marks a delete.
pub type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// The version of this layout, which is recorded in table files: a file with another version is refused.
pub const FORMAT: u32 = 1;

/// A decoded block: entries in key order, in one buffer.
#[derive(Debug, Clone, Default)]
pub struct Block {
    data: Bytes,
    slots: Vec<EntrySlot>,
}

#[derive(Debug, Clone, Copy)]
struct EntrySlot {
    start: u32,
    key: u32,
    value: u32,
}

const DELETED: u32 = u32::MAX;
/// Values up to this size are copied out of a block: a reader that keeps one must not keep the block.
const COPY: usize = 512;

impl Block {
    /// Decodes a block. `None` if the bytes are no block.
    pub fn decode(bytes: &[u8]) -> Option<Block> {
        let mut cursor = Cursor::new(bytes);
        let count = usize::try_from(cursor.varint()?).ok()?;
        // Each entry takes three bytes or more: a damaged count must not reserve the whole memory.
        let mut block = BlockBuilder::with_capacity(bytes.len() * 2, count.min(bytes.len() / 3));
        for _ in 0..count {
            let shared = usize::try_from(cursor.varint()?).ok()?;
            let suffix = usize::try_from(cursor.varint()?).ok()?;
            let value = usize::try_from(cursor.varint()?).ok()?;
            let suffix = cursor.take(suffix)?;
            let value = if value == 0 {
                None
            } else {
                Some(cursor.take(value - 1)?)
            };
            block.push(shared, suffix, value)?;
        }
        cursor.is_empty().then(|| block.finish())
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.data.len() + self.slots.len() * size_of::<EntrySlot>() + size_of::<Block>()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the block has no entries.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The key at `i`, which must be below [`len`](Block::len).
    pub fn key(&self, i: usize) -> &[u8] {
        let s = self.slots[i];
        &self.data[s.start as usize..(s.start + s.key) as usize]
    }

    /// The key at `i` without its first `skip` bytes, sharing the block's memory.
    pub fn shared_key(&self, i: usize, skip: usize) -> Bytes {
        let s = self.slots[i];
        self.data
            .slice(s.start as usize + skip..(s.start + s.key) as usize)
    }

    /// The value at `i`; `None` for a delete.
    pub fn value(&self, i: usize) -> Option<&[u8]> {
        let s = self.slots[i];
        let from = (s.start + s.key) as usize;
        (s.value != DELETED).then(|| &self.data[from..from + s.value as usize])
    }

    /// The value at `i`, sharing the block's memory.
    pub fn shared_value(&self, i: usize) -> Option<Bytes> {
        self.value(i).map(|v| self.data.slice_ref(v))
    }

    /// The first entry with a key at or above `key`.
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.slots.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) < key {
                low = middle + 1
            } else {
                high = middle
            }
        }
        low
    }

    /// The value of `key`: `None` if it is not here, `Some(None)` if it was deleted.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let i = self.lower_bound(key);
        if i >= self.len() || self.key(i) != key {
            return None;
        }
        Some(self.value(i).map(|v| {
            if v.len() <= COPY {
                Bytes::copy_from_slice(v)
            } else {
                self.data.slice_ref(v)
            }
        }))
    }
}

/// Collects the entries of a block being decoded.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    data: Vec<u8>,
    slots: Vec<EntrySlot>,
}

impl BlockBuilder {
    /// With room for `bytes` of keys and values.
    pub fn with_capacity(bytes: usize, entries: usize) -> BlockBuilder {
        BlockBuilder {
            data: Vec::with_capacity(bytes),
            slots: Vec::with_capacity(entries),
        }
    }

    /// Adds an entry whose key shares its first `shared` bytes with the entry before.
    /// `None` if that entry is shorter, or if the keys do not ascend.
    pub fn push(&mut self, shared: usize, suffix: &[u8], value: Option<&[u8]>) -> Option<()> {
        let last = self.slots.last().copied();
        let before = last.map_or(0..0, |s| s.start as usize..(s.start + s.key) as usize);
        if shared > before.len() {
            return None;
        }
        let ascends = last.is_none() || self.data[before.start + shared..before.end] < *suffix;
        if !ascends {
            return None;
        }
        let start = u32::try_from(self.data.len()).ok()?;
        self.data
            .extend_from_within(before.start..before.start + shared);
        self.data.extend_from_slice(suffix);
        self.data.extend_from_slice(value.unwrap_or_default());
        u32::try_from(self.data.len()).ok()?;
        let value = value.map_or(DELETED, |v| v.len() as u32);
        self.slots.push(EntrySlot {
            start,
            key: (shared + suffix.len()) as u32,
            value,
        });
        Some(())
    }

    /// The finished block. Spare capacity is freed: a cache holds many blocks, and counts their lengths.
    pub fn finish(mut self) -> Block {
        self.slots.shrink_to_fit();
        Block {
            data: self.data.into_boxed_slice().into(),
            slots: self.slots,
        }
    }
}

/// Appends the bytes of a block with these entries, which ascend strictly by key.
pub fn encode(entries: &[Entry<'_>], out: &mut Vec<u8>) {
    put_varint(out, entries.len() as u64);
    let mut before: &[u8] = &[];
    for (key, value) in entries {
        let shared = before
            .iter()
            .zip(key.iter())
            .take_while(|(a, b)| a == b)
            .count();
        put_varint(out, shared as u64);
        put_varint(out, (key.len() - shared) as u64);
        put_varint(out, value.map_or(0, |v| v.len() as u64 + 1));
        out.extend_from_slice(&key[shared..]);
        out.extend_from_slice(value.unwrap_or_default());
        before = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn rows_come_back_and_are_found(
            map in proptest::collection::btree_map(
                proptest::collection::vec(0u8..4, 0..6),
                proptest::option::of(proptest::collection::vec(any::<u8>(), 0..600)), 0..40),
            probes in proptest::collection::vec(proptest::collection::vec(0u8..4, 0..6), 0..20),
        ) {
            let entries: Vec<Entry<'_>> = map.iter().map(|(k, v)| (&k[..], v.as_deref())).collect();
            let mut bytes = Vec::new();
            encode(&entries, &mut bytes);
            let block = Block::decode(&bytes).unwrap();
            prop_assert_eq!(block.len(), entries.len());
            for (i, (k, v)) in entries.iter().enumerate() {
                prop_assert_eq!(block.key(i), *k);
                prop_assert_eq!(block.value(i), *v);
            }
            for probe in &probes {
                let want = map.get(probe).map(|v| v.clone().map(Bytes::from));
                prop_assert_eq!(block.get(probe), want);
                prop_assert_eq!(block.lower_bound(probe), map.range::<Vec<u8>, _>(..probe.clone()).count());
            }
        }

        #[test]
        fn garbage_never_panics_and_never_disorders(bytes in proptest::collection::vec(0u8..6, 0..80)) {
            if let Some(block) = Block::decode(&bytes) {
                let keys: BTreeMap<_, _> = (0..block.len()).map(|i| (block.key(i).to_vec(), i)).collect();
                prop_assert!(keys.values().copied().eq(0..block.len()));
            }
        }
    }
}
