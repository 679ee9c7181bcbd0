//! The chunk information table (CIT): from a fingerprint to where a chunk with that fingerprint is stored.
//!
//! It is an index in memory under a byte budget. The containers are the truth; the index is a hint. It may miss a stored chunk,
//! which costs space. It never answers with a chunk of another fingerprint: an entry has only 24 bits of the fingerprint and a
//! container's number, so the full fingerprint is always compared with that container's list of fingerprints. Lists are read from
//! [`FingerprintLists`] and cached.
//!
//! **Exact while it fits, sampled beyond** (sparse indexing). Chunks that were stored one after the other are mostly repeated one
//! after the other. So one entry that leads to a container's list finds its neighbours too. Of every `rate` chunks of a container
//! one has an entry, and the first chunk of a container always has. At rate 1 every chunk has one: the index is exact. When the
//! entries outgrow their share of the budget, the rate is doubled and every second entry is removed. Each chunk of a cached list
//! has an entry while the list is cached.
//!
//! ```text
//! chunk of a container    0   1   2   3   4   5   6   7   8  ...  64
//! level of its entry     12   0   1   0   2   0   1   0   3        6      13 for chunk 0 of a container with an even number,
//!                                                                        14 if four divides the number
//!                        at rate 2^r the entries of levels from r on stay; those of cached lists have level 15
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `slots` | the entries of one part of the table |
//! | `lists` | cached lists |
//! | `batch` | finding a sequence of chunks |
//! | `saved` | the table's form in a file |
use crate::fingerprint::Fingerprint;
use forebay_proto::Result;
use lists::{Epoch, FingerprintList, ListCache};
use parking_lot::Mutex;
use slots::{Entry, Hash, SlotTable};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

mod batch;
mod lists;
mod saved;
mod slots;
#[cfg(test)]
mod tests;

/// Container numbers are below this.
pub const MAX_CONTAINERS: u64 = (1 << 36) - 1;
/// Chunks of a container, at most.
pub const MAX_CONTAINER_CHUNKS: u32 = 4096;
/// The level of entries that exist only while the list is cached.
const CACHED: u8 = 15;
/// Entries of this level stay at every rate: those of one container in four.
const MAX_LEVEL: u8 = 14;
/// How often reading a list is tried if chunks are removed meanwhile.
const READS: usize = 3;

/// Where a chunk is stored: a container, and which chunk of it. It never names another chunk, even after this one is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkLocation {
    /// The container's number, below [`MAX_CONTAINERS`].
    pub container: u64,
    /// The chunk's index in it, below [`MAX_CONTAINER_CHUNKS`].
    pub index: u32,
}

/// Where the fingerprints of containers are read.
pub trait FingerprintLists {
    /// The fingerprints of a container's chunks by their index; `None` in place of a chunk that is gone. `None` for a
    /// container that is not there.
    ///
    /// # Errors
    /// As the store.
    fn fingerprints(&self, container: u64) -> Result<Option<Vec<Option<Fingerprint>>>>;
}

/// Settings.
#[derive(Debug, Clone, Copy)]
pub struct CitOptions {
    /// The memory budget, bytes. In chains of checkpoints, 64 MiB for each TiB of chunks of 4 KiB find 98 % of what an exact index
    /// finds.
    pub budget: usize,
}

/// Counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CitStats {
    /// Number of entries, including those of cached lists.
    pub entries: u64,
    /// One chunk in this many has an entry; 1: the index is exact.
    pub rate: u64,
    /// What it takes; bytes.
    pub memory: u64,
    /// Lists of containers in memory.
    pub cached_lists: u64,
    /// Lists of containers that were read.
    pub list_reads: u64,
}

/// See the head of this module. Shared by threads; no lock covers all of it.
#[derive(Debug)]
pub struct Cit {
    shards: Vec<Mutex<SlotTable>>,
    lists: ListCache,
    /// The rate's logarithm.
    rate: AtomicU32,
    raising: Mutex<()>,
    /// What the entries take, and may take; bytes.
    slot_bytes: AtomicU64,
    slot_budget: u64,
    list_reads: AtomicU64,
}

impl Cit {
    /// An empty index.
    pub fn new(options: CitOptions) -> Cit {
        let shards = (options.budget >> 16).next_power_of_two().clamp(1, 256);
        // A cached list's entries take some 2/5 of what the list takes.
        let list_budget = options.budget / 6;
        Cit {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            lists: ListCache::new(list_budget),
            rate: AtomicU32::new(0),
            raising: Mutex::default(),
            slot_bytes: AtomicU64::new(0),
            slot_budget: (options.budget - list_budget) as u64,
            list_reads: AtomicU64::new(0),
        }
    }

    /// An index of all stored chunks; `containers` yields each container with the fingerprints of its chunks.
    pub fn rebuild(
        options: CitOptions,
        containers: impl IntoIterator<Item = (u64, Vec<Option<Fingerprint>>)>,
    ) -> Cit {
        let cit = Cit::new(options);
        for (container, fingerprints) in containers {
            cit.insert_container(container, &fingerprints);
        }
        cit
    }

    /// Adds a chunk that was stored (or is about to be, in a container that is being filled). Does nothing if it is known.
    pub fn insert(&self, location: ChunkLocation, fingerprint: &Fingerprint) {
        let cached = self
            .lists
            .add_chunk(location, fingerprint, |container, list| {
                self.list_left(container, list);
            });
        if cached && self.is_sampled() {
            self.add_entry(fingerprint, CACHED, location.container);
        }
        self.insert_entry(location, fingerprint);
    }

    /// As `insert` for each chunk of a container that is not being filled: also for filling the table in the background of
    /// a running store.
    pub fn insert_container(&self, container: u64, fingerprints: &[Option<Fingerprint>]) {
        for (index, fingerprint) in (0..).zip(fingerprints) {
            if let Some(fingerprint) = fingerprint {
                self.insert_entry(ChunkLocation { container, index }, fingerprint);
            }
        }
    }

    /// Removes a chunk that is gone. A `find` that began before may still return it: a caller must check, under the container's lock, that
    /// the chunk still exists.
    pub fn remove(&self, location: ChunkLocation, fingerprint: &Fingerprint) {
        self.lists.forget_chunk(location);
        let (shard, hash) = self.part(fingerprint);
        let container = location.container;
        let mut slots = self.shards[shard].lock();
        for level in [level(location), CACHED] {
            slots.remove(Entry {
                hash,
                level,
                container,
            });
        }
    }

    /// The location of a chunk with this fingerprint for which `accept` returns true, if one is known. `accept` is called for each
    /// candidate until it does; it may compare the bytes, and may raise the chunk's count.
    ///
    /// # Errors
    /// As `lists` and `accept`.
    pub fn find(
        &self,
        fingerprint: &Fingerprint,
        lists: &dyn FingerprintLists,
        mut accept: impl FnMut(ChunkLocation) -> Result<bool>,
    ) -> Result<Option<ChunkLocation>> {
        let (shard, hash) = self.part(fingerprint);
        let mut containers: Vec<u64> = Vec::new();
        for entry in self.shards[shard].lock().find(hash) {
            if !containers.contains(&entry.container) {
                containers.push(entry.container);
            }
        }
        let mut found = Vec::new();
        for container in containers {
            found.clear();
            if let Err(epoch) = self.lists.find(container, fingerprint, &mut found)
                && self.read_list(container, lists, epoch)?
            {
                // It may have been displaced again already: then the chunk is not found.
                let _ = self.lists.find(container, fingerprint, &mut found);
            }
            for index in found.drain(..) {
                let location = ChunkLocation { container, index };
                if accept(location)? {
                    return Ok(Some(location));
                }
            }
        }
        Ok(None)
    }

    /// Counters.
    pub fn stats(&self) -> CitStats {
        let (cached_lists, list_bytes) = self.lists.used();
        CitStats {
            entries: self.shards.iter().map(|s| s.lock().len() as u64).sum(),
            rate: 1 << self.rate.load(Relaxed),
            memory: self.slot_bytes.load(Relaxed) + list_bytes,
            cached_lists,
            list_reads: self.list_reads.load(Relaxed),
        }
    }

    fn is_sampled(&self) -> bool {
        self.rate.load(Relaxed) > 0
    }

    /// The part of the table for a fingerprint, and its hash there.
    fn part(&self, fingerprint: &Fingerprint) -> (usize, Hash) {
        let [a, b, c, d, e, ..] = fingerprint.0;
        let shard = usize::from(u16::from_le_bytes([d, e])) % self.shards.len();
        (shard, Hash::from_le_bytes([a, b, c, 0]))
    }

    fn insert_entry(&self, location: ChunkLocation, fingerprint: &Fingerprint) {
        self.add_entry(fingerprint, level(location), location.container);
    }

    fn add_entry(&self, fingerprint: &Fingerprint, level: u8, container: u64) {
        let (shard, hash) = self.part(fingerprint);
        let stays = || u32::from(level) >= self.rate.load(Relaxed);
        while stays() {
            let mut slots = self.shards[shard].lock();
            let more = slots.growth() as u64;
            if more == 0 || self.slot_bytes.load(Relaxed) + more <= self.slot_budget {
                let before = slots.memory();
                slots.insert(Entry {
                    hash,
                    level,
                    container,
                });
                self.count_bytes(before, slots.memory());
                return;
            }
            drop(slots);
            if !self.raise_rate() {
                // As sampled as it gets: new chunks are not found.
                return;
            }
        }
    }

    /// Doubles the rate, unless another thread has just done so. `false`: it is at its maximum.
    fn raise_rate(&self) -> bool {
        let seen = self.rate.load(Relaxed);
        let _raising = self.raising.lock();
        let rate = self.rate.load(Relaxed);
        if rate != seen {
            return true;
        }
        if rate == u32::from(MAX_LEVEL) {
            return false;
        }
        if rate == 0 {
            // Lists from before have no entries for all of their chunks.
            self.lists.clear();
        }
        self.rate.store(rate + 1, Relaxed);
        for shard in &self.shards {
            let mut slots = shard.lock();
            let before = slots.memory();
            slots.retain(|entry| u32::from(entry.level) > rate);
            self.count_bytes(before, slots.memory());
        }
        true
    }

    fn count_bytes(&self, before: usize, after: usize) {
        self.slot_bytes.fetch_add(after as u64, Relaxed);
        self.slot_bytes.fetch_sub(before as u64, Relaxed);
    }

    /// Reads a container's list and caches it. `false`: there is no such container. The cached list has no chunk that was gone when
    /// this call began.
    fn read_list(
        &self,
        container: u64,
        lists: &dyn FingerprintLists,
        mut epoch: Epoch,
    ) -> Result<bool> {
        for _ in 0..READS {
            self.list_reads.fetch_add(1, Relaxed);
            let Some(fingerprints) = lists.fingerprints(container)? else {
                return Ok(false);
            };
            let list = FingerprintList::new(fingerprints);
            let entered = |list: &FingerprintList| {
                if self.is_sampled() {
                    for fingerprint in list.chunks() {
                        self.add_entry(fingerprint, CACHED, container);
                    }
                }
            };
            let left = |container, list: &FingerprintList| self.list_left(container, list);
            if self.lists.keep(container, list, epoch, entered, left) {
                return Ok(true);
            }
            match self.lists.len(container) {
                Ok(_) => return Ok(true),
                Err(now) => epoch = now,
            }
        }
        Ok(false)
    }

    /// Removes the entries of a list that was evicted.
    fn list_left(&self, container: u64, list: &FingerprintList) {
        if self.is_sampled() {
            for fingerprint in list.chunks() {
                let (shard, hash) = self.part(fingerprint);
                let entry = Entry {
                    hash,
                    level: CACHED,
                    container,
                };
                self.shards[shard].lock().remove(entry);
            }
        }
    }
}

/// The level of a chunk's entry: up to which rate it stays.
fn level(location: ChunkLocation) -> u8 {
    match location.index {
        0 => (12 + location.container.trailing_zeros().min(2)) as u8,
        index => index.trailing_zeros().min(11) as u8,
    }
}
