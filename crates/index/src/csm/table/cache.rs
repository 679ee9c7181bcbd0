//! The cache of table files: metadata regions, and blocks as they are on disk, compressed.
//!
//! A compressed block takes a hundredth of a page to a page, and is quick to decode in part, so a budget holds many times more
//! blocks than if they were decoded. Eviction is by table, so a lookup marks one table as used, not each block. It evicts
//! random tables among those older than the median use (an approximation of LRU): with strict LRU, lookups that sweep again and
//! again over more tables than fit would find none.
//!
//! Memory that MemTables and compression buffer do not use is lent to the cache, so an index that is only read keeps as much as
//! one that is written to uses in all.
//!
//! Invariant: cached bytes are at most the budget plus the lent memory, except during an insert, by what it inserts, and
//! from when lent memory is taken back until the next trim.
use super::cached_table::CachedTable;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// See the head of this file.
pub struct Cache {
    budget: usize,
    /// What others do not use, bytes.
    lent: AtomicUsize,
    bytes: AtomicUsize,
    /// Of each table in use, by number.
    slots: Mutex<HashMap<u64, Arc<CachedTable>>>,
    /// Counts uses of tables: their clock.
    uses: AtomicU64,
}

impl Cache {
    /// Of at most `budget` bytes, and what is lent.
    pub fn new(budget: usize) -> Cache {
        Cache {
            budget,
            lent: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            slots: Mutex::default(),
            uses: AtomicU64::new(0),
        }
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Sets how many bytes are lent from now on. [`trim`](Cache::trim) frees what is too much.
    pub fn set_extra_budget(&self, bytes: usize) {
        self.lent.store(bytes, Ordering::Relaxed);
    }

    /// As much may be kept, bytes.
    fn limit(&self) -> usize {
        self.budget
            .saturating_add(self.lent.load(Ordering::Relaxed))
    }

    /// The time of a use, later than all before.
    pub(super) fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes the table `number` one of those that are emptied when there is too much.
    pub(super) fn insert(&self, number: u64, slot: Arc<CachedTable>) {
        self.slots.lock().insert(number, slot);
    }

    /// The table is no more. Another one of its number stays.
    pub(super) fn remove(&self, number: u64, slot: &Arc<CachedTable>) {
        let mut slots = self.slots.lock();
        if slots.get(&number).is_some_and(|s| Arc::ptr_eq(s, slot)) {
            slots.remove(&number);
        }
        drop(slots);
        self.sub_bytes(slot.empty());
    }

    /// Counts bytes that were cached. The caller holds the slot's lock, so that they are counted before they can be evicted; it calls
    /// [`trim`](Cache::trim) afterwards.
    pub(super) fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that were evicted.
    pub(super) fn sub_bytes(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// If there is too much, empties tables until an eighth of the limit is free. The caller holds no slot's lock.
    pub fn trim(&self) {
        let limit = self.limit();
        if self.bytes() <= limit {
            return;
        }
        let slots = self.slots.lock();
        let mut by_use: Vec<(u64, &Arc<CachedTable>)> = slots
            .values()
            .filter_map(|slot| Some((slot.last_use()?, slot)))
            .collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        let (older, now) = (by_use.len().div_ceil(2), self.next_use());
        by_use[..older].sort_unstable_by_key(|(used, _)| shuffled(*used, now));
        for (_, slot) in by_use {
            if self.bytes() <= limit - limit / 8 {
                break;
            }
            self.sub_bytes(slot.empty());
        }
    }
}

/// A place for the table that was used then, in an order that is another one each time (the mixing of SplitMix64).
fn shuffled(used: u64, now: u64) -> u64 {
    let z = (used ^ now.rotate_left(32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Alpha;

    const EACH: usize = 1000;

    /// A cache with room for so many of these tables.
    fn cache(room: usize, tables: usize) -> (Cache, Vec<Arc<CachedTable>>) {
        let cache = Cache::new(room * EACH);
        let slot = |_| Arc::new(CachedTable::new(Alpha::default()));
        let slots: Vec<Arc<CachedTable>> = (0..tables).map(slot).collect();
        for (number, slot) in (0..).zip(&slots) {
            cache.insert(number, slot.clone());
        }
        (cache, slots)
    }

    /// Uses a table; whether it was in memory.
    fn use_one(cache: &Cache, slot: &CachedTable) -> bool {
        slot.mark_used(cache.next_use());
        let there = slot.last_use().is_some();
        if !there {
            slot.state.lock().bytes = EACH;
            cache.add_bytes(EACH);
        }
        cache.trim();
        assert!(cache.bytes() <= cache.limit());
        there
    }

    #[test]
    fn sweeps_over_more_than_there_is_room_for_find_a_part_of_it() {
        let (cache, slots) = cache(80, 100);
        let sweep = || slots.iter().filter(|slot| use_one(&cache, slot)).count();
        assert_eq!(sweep(), 0);
        let found: Vec<usize> = (0..20).map(|_| sweep()).collect();
        assert!(found.iter().sum::<usize>() >= 20 * 25, "{found:?}");
    }

    #[test]
    fn what_is_lent_is_used_and_recalled() {
        let (cache, slots) = cache(10, 100);
        let sweep = || slots.iter().filter(|slot| use_one(&cache, slot)).count();
        cache.set_extra_budget(90 * EACH);
        assert_eq!((sweep(), sweep()), (0, 100));
        cache.set_extra_budget(20 * EACH);
        cache.trim();
        let kept = slots.iter().filter(|slot| slot.last_use().is_some());
        assert_eq!(kept.count() * EACH, cache.bytes());
        assert!(cache.bytes() <= 30 * EACH && cache.bytes() >= 25 * EACH);
    }

    #[test]
    fn what_was_used_of_late_stays() {
        let (cache, slots) = cache(80, 1000);
        let (hot, cold) = slots.split_at(20);
        for slot in hot {
            use_one(&cache, slot);
        }
        for (i, slot) in cold.iter().enumerate() {
            use_one(&cache, slot);
            assert!(use_one(&cache, &hot[i % hot.len()]), "after {i}");
        }
    }
}
