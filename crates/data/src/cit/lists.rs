//! Cached lists of containers' fingerprints, LRU under a byte budget.
//!
//! Invariant: a cached list has every chunk of its container that has a fingerprint and is still named. After
//! [`ListCache::forget_chunk`] returns, the chunk is in no cached list, and a list that was read before the call is not added.
use super::{ChunkLocation, MAX_CONTAINER_CHUNKS};
use crate::fingerprint::Fingerprint;
use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

const MOST_SHARDS: usize = 16;
/// A shard has at least this budget, so that it holds some lists; a small cache has fewer shards.
const SHARD_BYTES: usize = 64 << 10;
/// How many chunks of one container with the wanted fingerprint are tried, at most.
pub const SAME_FINGERPRINT: usize = 8;
/// Memory of a list besides its fingerprints and index, bytes.
const LIST_BYTES: usize = 160;
/// An empty slot of a list's index.
const NONE: u16 = u16::MAX;

/// The fingerprints of one container.
#[derive(Debug)]
pub struct FingerprintList {
    fingerprints: Vec<Option<Fingerprint>>,
    /// Which chunk, by bits of its fingerprint: open addressing with linear probing, at most half full.
    index: Box<[u16]>,
}

impl FingerprintList {
    /// The list of these chunks. Those beyond the maximum of a container are left out.
    pub fn new(mut fingerprints: Vec<Option<Fingerprint>>) -> FingerprintList {
        fingerprints.truncate(MAX_CONTAINER_CHUNKS as usize);
        let mut list = FingerprintList {
            fingerprints,
            index: Box::default(),
        };
        list.rebuild_index();
        list
    }

    /// Number of chunks, including those that are gone.
    pub fn len(&self) -> usize {
        self.fingerprints.len()
    }

    /// Its memory, bytes.
    pub fn memory(&self) -> usize {
        let fingerprints = size_of::<Option<Fingerprint>>() * self.fingerprints.capacity();
        LIST_BYTES + fingerprints + 2 * self.index.len()
    }

    /// The chunks that are not gone.
    pub fn chunks(&self) -> impl Iterator<Item = &Fingerprint> {
        self.fingerprints.iter().flatten()
    }

    /// The first chunks with this fingerprint, at most [`SAME_FINGERPRINT`].
    pub fn find(&self, fingerprint: &Fingerprint, found: &mut Vec<u32>) {
        let mut at = self.home(fingerprint);
        while let Some(&i) = self.index.get(at)
            && i != NONE
            && found.len() < SAME_FINGERPRINT
        {
            if self.fingerprints[usize::from(i)].as_ref() == Some(fingerprint) {
                found.push(u32::from(i));
            }
            at = (at + 1) % self.index.len();
        }
    }

    fn push(&mut self, fingerprint: Fingerprint) {
        self.fingerprints.push(Some(fingerprint));
        match 2 * self.len() > self.index.len() {
            true => self.rebuild_index(),
            false => self.index_last(),
        }
    }

    fn rebuild_index(&mut self) {
        let all = std::mem::take(&mut self.fingerprints);
        // Room for twice as many if they are added one by one.
        let places = (2 * all.capacity().max(1)).next_power_of_two();
        self.index = vec![NONE; places].into_boxed_slice();
        self.fingerprints.reserve_exact(all.capacity());
        for fingerprint in all {
            self.fingerprints.push(fingerprint);
            self.index_last();
        }
    }

    fn index_last(&mut self) {
        let last = self.fingerprints.len() - 1;
        let Some(Some(fingerprint)) = self.fingerprints.get(last) else {
            return;
        };
        let mut at = self.home(fingerprint);
        while self.index[at] != NONE {
            at = (at + 1) % self.index.len();
        }
        self.index[at] = last as u16;
    }

    fn home(&self, fingerprint: &Fingerprint) -> usize {
        let [.., a, b] = fingerprint.0;
        usize::from(u16::from_le_bytes([a, b])) % self.index.len()
    }
}

#[derive(Debug)]
struct Shard {
    lists: LruCache<u64, FingerprintList>,
    bytes: usize,
    /// Number of calls of [`ListCache::forget_chunk`].
    epoch: u64,
}

/// See the head of this module. Shared by threads.
#[derive(Debug)]
pub struct ListCache {
    shards: Vec<Mutex<Shard>>,
    shard_budget: usize,
}

/// Proof of when a list began to be read; see [`ListCache::keep`].
#[derive(Debug, Clone, Copy)]
pub struct Epoch(u64);

impl ListCache {
    /// A cache of about `budget` bytes at most.
    pub fn new(budget: usize) -> ListCache {
        let shard = || Shard {
            lists: LruCache::unbounded(),
            bytes: 0,
            epoch: 0,
        };
        let shards = (budget / SHARD_BYTES).clamp(1, MOST_SHARDS);
        ListCache {
            shards: (0..shards).map(|_| Mutex::new(shard())).collect(),
            shard_budget: budget / shards,
        }
    }

    fn shard(&self, container: u64) -> MutexGuard<'_, Shard> {
        self.shards[(container % self.shards.len() as u64) as usize].lock()
    }

    /// The chunks of the container that have the fingerprint. `Err`: its list is not cached; pass the epoch to [`ListCache::keep`] after
    /// reading it.
    pub fn find(
        &self,
        container: u64,
        fingerprint: &Fingerprint,
        found: &mut Vec<u32>,
    ) -> Result<(), Epoch> {
        let mut shard = self.shard(container);
        let epoch = Epoch(shard.epoch);
        let list = shard.lists.get(&container).ok_or(epoch)?;
        list.find(fingerprint, found);
        Ok(())
    }

    /// The container's number of chunks; fails as `find`.
    pub fn len(&self, container: u64) -> Result<usize, Epoch> {
        let shard = self.shard(container);
        let list = shard.lists.peek(&container);
        list.map(FingerprintList::len).ok_or(Epoch(shard.epoch))
    }

    /// Caches a list that was read. `false`: a chunk may have been removed since the reading began, so it must be read again.
    /// `entered` and `left` are called, under the lock, with this list and with those that it evicts.
    pub fn keep(
        &self,
        container: u64,
        list: FingerprintList,
        since: Epoch,
        entered: impl FnOnce(&FingerprintList),
        left: impl Fn(u64, &FingerprintList),
    ) -> bool {
        let mut shard = self.shard(container);
        if shard.epoch != since.0 {
            return false;
        }
        if !shard.lists.contains(&container) {
            entered(&list);
            shard.bytes += list.memory();
            shard.lists.put(container, list);
            shard.shrink(self.shard_budget, left);
        }
        true
    }

    /// Adds a chunk to the list of its container, which is cached from its first chunk on.
    pub fn add_chunk(
        &self,
        location: ChunkLocation,
        fingerprint: &Fingerprint,
        left: impl Fn(u64, &FingerprintList),
    ) -> bool {
        let (mut shard, container) = (self.shard(location.container), location.container);
        if location.index == 0 && !shard.lists.contains(&container) {
            let list = FingerprintList::new(Vec::new());
            shard.bytes += list.memory();
            shard.lists.put(container, list);
        }
        let Some(list) = shard.lists.get_mut(&container) else {
            return false;
        };
        let (len, index) = (list.len(), location.index as usize);
        if index < len {
            return false;
        }
        let before = list.memory();
        if index == len {
            list.push(*fingerprint);
            let added = list.memory() - before;
            shard.bytes += added;
        } else if let Some(list) = shard.lists.pop(&container) {
            // Chunks are missing.
            shard.bytes -= before;
            left(container, &list);
            return false;
        }
        shard.shrink(self.shard_budget, left);
        true
    }

    /// Removes a chunk that is gone.
    pub fn forget_chunk(&self, location: ChunkLocation) {
        let mut shard = self.shard(location.container);
        shard.epoch += 1;
        if let Some(list) = shard.lists.peek_mut(&location.container)
            && let Some(chunk) = list.fingerprints.get_mut(location.index as usize)
        {
            *chunk = None;
        }
    }

    /// Drops all lists.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.lists.clear();
            shard.bytes = 0;
        }
    }

    /// Number of lists and their memory, bytes.
    pub fn used(&self) -> (u64, u64) {
        let each = self.shards.iter().map(|shard| {
            let shard = shard.lock();
            (shard.lists.len() as u64, shard.bytes as u64)
        });
        each.fold((0, 0), |sum, shard| (sum.0 + shard.0, sum.1 + shard.1))
    }
}

impl Shard {
    /// Evicts lists down to the budget, but never the last one.
    fn shrink(&mut self, budget: usize, left: impl Fn(u64, &FingerprintList)) {
        while self.bytes > budget && self.lists.len() > 1 {
            let Some((container, list)) = self.lists.pop_lru() else {
                return;
            };
            self.bytes -= list.memory();
            left(container, &list);
        }
    }
}
