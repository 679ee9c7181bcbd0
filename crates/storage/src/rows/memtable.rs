//! The MemTable: the newest changes, in memory, in key order.
//!
//! # Invariants
//! - One writer at a time (the store's commit leader), any number of readers.
//! - Entries are never changed or removed, only added: a key keeps all its versions, each with the
//!   number of its batch (`sequence` here). A reader that ignores versions of later batches than the last one it knew sees an
//!   unchanging table, whatever is added meanwhile. So a snapshot is a batch number and a shared pointer, and costs nothing.
//! - Keyspaces have maps and locks of their own.
//!
//! Scans copy a few entries at a time under the read lock and seek again from the last key.
use crate::{Keyspace, Op};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What an entry costs beyond its key and value: map node, versions, allocator headers.
const KEY_OVERHEAD: usize = 128;
const VERSION_OVERHEAD: usize = 56;

/// The versions of one key, oldest first.
#[derive(Debug)]
enum Versions {
    One(u64, Option<Bytes>),
    Many(Vec<(u64, Option<Bytes>)>),
}

impl Versions {
    fn push(&mut self, sequence: u64, value: Option<Bytes>) {
        match self {
            Versions::Many(all) => all.push((sequence, value)),
            Versions::One(first, old) => {
                *self = Versions::Many(vec![(*first, old.take()), (sequence, value)])
            }
        }
    }

    /// The newest version at or below `sequence`. Within one batch the later change wins.
    fn at(&self, sequence: u64) -> Option<&Option<Bytes>> {
        match self {
            Versions::One(first, value) => (*first <= sequence).then_some(value),
            Versions::Many(all) => all
                .iter()
                .rev()
                .find(|(s, _)| *s <= sequence)
                .map(|(_, v)| v),
        }
    }
}

type Map = BTreeMap<Bytes, Versions>;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct MemTable {
    maps: [RwLock<Map>; Keyspace::COUNT],
    bytes: AtomicUsize,
}

impl MemTable {
    /// Adds a batch. Sequences never go down.
    pub fn insert(&self, sequence: u64, ops: Vec<Op>) {
        let mut grown = 0;
        let mut ops = ops.into_iter().peekable();
        while let Some(first) = ops.next() {
            let keyspace = first.keyspace;
            let mut map = self.maps[usize::from(keyspace.0)].write();
            let mut next = Some(first);
            while let Some(op) = next {
                grown += op.key.len() + op.value.as_ref().map_or(0, Bytes::len);
                match map.get_mut(&op.key[..]) {
                    Some(versions) => {
                        grown += VERSION_OVERHEAD;
                        versions.push(sequence, op.value);
                    }
                    None => {
                        grown += KEY_OVERHEAD;
                        map.insert(op.key, Versions::One(sequence, op.value));
                    }
                }
                next = ops.next_if(|op| op.keyspace == keyspace);
            }
        }
        self.bytes.fetch_add(grown, Ordering::Relaxed);
    }

    /// The newest version of `key` at or below `sequence`: `None` if this table does not know the key then,
    /// `Some(None)` if it was deleted.
    pub fn get(&self, keyspace: Keyspace, key: &[u8], sequence: u64) -> Option<Option<Bytes>> {
        self.maps[usize::from(keyspace.0)]
            .read()
            .get(key)?
            .at(sequence)
            .cloned()
    }

    /// Copies up to `limit` entries from `from` on, as of `sequence`, deletes included.
    /// Returns whether there may be more.
    pub fn copy_from(
        &self,
        keyspace: Keyspace,
        from: Bound<&[u8]>,
        sequence: u64,
        limit: usize,
        out: &mut VecDeque<(Bytes, Option<Bytes>)>,
    ) -> bool {
        let map = self.maps[usize::from(keyspace.0)].read();
        for (key, versions) in map.range::<[u8], _>((from, Bound::Unbounded)) {
            if out.len() >= limit {
                return true;
            }
            if let Some(value) = versions.at(sequence) {
                out.push_back((key.clone(), value.clone()));
            }
        }
        false
    }

    /// Calls `each` for the newest version of every key, keyspace by keyspace, in key order.
    pub fn for_each<E>(
        &self,
        mut each: impl FnMut(Keyspace, &[u8], Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (keyspace, map) in self.maps.iter().enumerate() {
            for (key, versions) in map.read().iter() {
                if let Some(value) = versions.at(u64::MAX) {
                    each(Keyspace(keyspace as u8), key, value.as_deref())?;
                }
            }
        }
        Ok(())
    }

    /// Memory held, in bytes (an estimate that errs upwards for small entries).
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether nothing was ever added.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn op(keyspace: u8, key: u8, value: Option<u8>) -> Op {
        Op {
            keyspace: Keyspace(keyspace),
            key: Bytes::copy_from_slice(&[key]),
            value: value.map(|v| Bytes::copy_from_slice(&[v])),
        }
    }

    proptest! {
        /// At every sequence, the table answers like a map that stopped there.
        #[test]
        fn every_sequence_is_a_map_of_its_own(
            batches in proptest::collection::vec(proptest::collection::vec((0u8..3, 0u8..10, proptest::option::of(any::<u8>())), 1..5), 1..20),
        ) {
            let table = MemTable::default();
            let mut models = vec![BTreeMap::new()];
            for (i, batch) in batches.iter().enumerate() {
                let mut model = models[i].clone();
                for (ks, k, v) in batch { model.insert((*ks, *k), *v); }
                models.push(model);
                table.insert(i as u64 + 1, batch.iter().map(|(ks, k, v)| op(*ks, *k, *v)).collect());
            }
            for (sequence, model) in models.iter().enumerate() {
                for ks in 0..3u8 {
                    for key in 0..10u8 {
                        let want = model.get(&(ks, key)).map(|v| v.map(|v| Bytes::copy_from_slice(&[v])));
                        prop_assert_eq!(table.get(Keyspace(ks), &[key], sequence as u64), want);
                    }
                    let (mut out, mut from) = (Vec::new(), None::<Bytes>);
                    loop {
                        let mut some = VecDeque::new();
                        let bound = from.as_ref().map_or(Bound::Unbounded, |k| Bound::Excluded(&k[..]));
                        let more = table.copy_from(Keyspace(ks), bound, sequence as u64, 2, &mut some);
                        if let Some((k, _)) = some.back() { from = Some(k.clone()); }
                        out.extend(some);
                        if !more { break; }
                    }
                    let want: Vec<_> = model.iter().filter(|((k, _), _)| *k == ks)
                        .map(|((_, k), v)| (Bytes::copy_from_slice(&[*k]), v.map(|v| Bytes::copy_from_slice(&[v])))).collect();
                    prop_assert_eq!(out, want);
                }
            }
        }
    }
}
