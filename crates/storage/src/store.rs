//! The store. STAND-IN: keeps everything in memory until the real core lands behind these names.
use crate::{Batch, Error, Io, Result};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// One ordered key space of a store, by its fixed number (0..=15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keyspace(pub u8);

/// When a batch counts as safe (design section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Kept in memory until flushed.
    None,
    /// Survives a killed process: handed to the operating system before `apply` returns.
    Process,
    /// On disk before `apply` returns.
    Disk,
}

/// Settings of a store. Sizes in bytes.
#[derive(Debug, Clone)]
pub struct Options {
    pub durability: Durability,
    /// A MemTable is sealed and flushed at this size.
    pub memtable_bytes: usize,
    /// Budget of the block cache.
    pub cache_bytes: usize,
    /// Target size of a block before compression.
    pub block_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { durability: Durability::Process, memtable_bytes: 8 << 20, cache_bytes: 8 << 20, block_bytes: 4096 }
    }
}

/// Counters of a store, all since it was opened; sizes in bytes.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    pub memtable_bytes: u64,
    pub cache_bytes: u64,
    pub table_bytes: u64,
    pub tables: u64,
    pub wal_bytes: u64,
    pub puts: u64,
    pub gets: u64,
    pub flushes: u64,
    pub compactions: u64,
    pub bytes_written: u64,
    /// Time that puts waited for flushes (the explicit limit), nanoseconds.
    pub stall_nanos: u64,
}

type Maps = BTreeMap<(u8, Bytes), Bytes>;

/// A crash-safe ordered key-value store with numbered keyspaces. Cheap to share behind an `Arc`.
pub struct Store {
    maps: RwLock<Arc<Maps>>,
}

/// An unchanging view of the store.
pub struct Snapshot { maps: Arc<Maps> }

/// Entries in ascending key order.
pub struct Scan { items: std::vec::IntoIter<(Bytes, Bytes)> }

impl Iterator for Scan {
    type Item = Result<(Bytes, Bytes)>;
    fn next(&mut self) -> Option<Self::Item> { self.items.next().map(Ok) }
}

impl Store {
    /// Opens the store in `dir`, creating it if the directory is empty or missing, and replays its log.
    pub fn open(_io: Arc<dyn Io>, _dir: &Path, _options: Options) -> Result<Store> {
        Ok(Store { maps: RwLock::default() })
    }
    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.maps.read().get(&(keyspace.0, Bytes::copy_from_slice(key))).cloned())
    }
    /// All entries of `keyspace` inside the bounds, as of now: later batches do not show.
    pub fn scan(&self, keyspace: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Scan {
        self.snapshot().scan(keyspace, from, to)
    }
    pub fn snapshot(&self) -> Snapshot { Snapshot { maps: self.maps.read().clone() } }
    /// Applies all of the batch or nothing; durable as the store's setting says.
    pub fn apply(&self, batch: Batch) -> Result<()> {
        let mut maps = self.maps.write();
        let maps = Arc::make_mut(&mut maps);
        for op in batch.ops {
            let key = (op.keyspace.0, op.key);
            match op.value { Some(v) => { maps.insert(key, v); } None => { maps.remove(&key); } }
        }
        Ok(())
    }
    /// Everything applied so far is on disk when it returns, whatever the durability.
    pub fn sync(&self) -> Result<()> { Ok(()) }
    /// Seals the MemTable and waits until it is a table file.
    pub fn flush(&self) -> Result<()> { Ok(()) }
    /// Stops the background threads and waits for them; all applied batches are safe.
    pub fn close(&self) -> Result<()> { Ok(()) }
    pub fn stats(&self) -> Stats { Stats::default() }
    /// Reads every block and record and reports all damage.
    pub fn check(&self) -> Vec<Error> { Vec::new() }
}

impl Snapshot {
    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.maps.get(&(keyspace.0, Bytes::copy_from_slice(key))).cloned())
    }
    pub fn scan(&self, keyspace: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Scan {
        let items: Vec<_> = self.maps.iter()
            .filter(|((k, key), _)| *k == keyspace.0 && (from, to).contains_key(key))
            .map(|((_, k), v)| (k.clone(), v.clone())).collect();
        Scan { items: items.into_iter() }
    }
}

trait ContainsKey { fn contains_key(&self, key: &[u8]) -> bool; }
impl ContainsKey for (Bound<&[u8]>, Bound<&[u8]>) {
    fn contains_key(&self, key: &[u8]) -> bool {
        (match self.0 { Bound::Included(b) => key >= b, Bound::Excluded(b) => key > b, Bound::Unbounded => true })
            && (match self.1 { Bound::Included(b) => key <= b, Bound::Excluded(b) => key < b, Bound::Unbounded => true })
    }
}
