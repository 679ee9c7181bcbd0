//! Decoded records in memory (spans, containers), bounded in bytes; so that a read in the common case asks the store nothing.
//!
//! Invariant: after `forget` returns, no record of that group loaded before it is ever found again. A reader that loaded a
//! record before a change and wants to keep it after is refused by the shard's epoch.
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const SHARDS: usize = 16;

/// A record that stands for some addresses of a group: of a log, or of a container.
pub trait CachedRecord {
    /// Which group.
    fn group(&self) -> u64;
    /// Its addresses. Records of one group do not overlap.
    fn addresses(&self) -> Range<u64>;
    /// What it costs in memory, bytes.
    fn memory(&self) -> usize;
}

struct Shard<R> {
    /// By group and the end of the addresses, as in the store.
    records: BTreeMap<(u64, u64), (Arc<R>, AtomicBool)>,
    bytes: usize,
    /// Where the eviction's clock hand stands.
    hand: (u64, u64),
    /// Number of `forget` calls.
    epoch: u64,
}

impl<R> Default for Shard<R> {
    fn default() -> Shard<R> {
        Shard {
            records: BTreeMap::new(),
            bytes: 0,
            hand: (0, 0),
            epoch: 0,
        }
    }
}

/// The cache. Shared by threads.
pub struct RecordCache<R> {
    shards: Vec<RwLock<Shard<R>>>,
    shard_budget: usize,
}

/// Proof of when a load began; see `RecordCache::keep`.
#[derive(Clone, Copy)]
pub struct Epoch(u64);

impl<R: CachedRecord> RecordCache<R> {
    /// At most about `budget` bytes.
    pub fn new(budget: usize) -> RecordCache<R> {
        RecordCache {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            shard_budget: (budget / SHARDS).max(4096),
        }
    }

    fn shard(&self, group: u64) -> &RwLock<Shard<R>> {
        &self.shards[(group.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize % SHARDS]
    }

    /// The record that holds `addr`, if it is here.
    pub fn get(&self, group: u64, addr: u64) -> Option<Arc<R>> {
        let shard = self.shard(group).read();
        let next = shard
            .records
            .range((Bound::Excluded((group, addr)), Bound::Unbounded))
            .next();
        next.filter(|((g, _), (r, _))| *g == group && r.addresses().start <= addr)
            .map(|(_, (s, used))| {
                used.store(true, Relaxed);
                s.clone()
            })
    }

    /// The current epoch. Take it before loading a record that is passed to `keep`.
    pub fn epoch(&self, group: u64) -> Epoch {
        Epoch(self.shard(group).read().epoch)
    }

    /// Caches a record that was loaded since `epoch`, unless a record was forgotten since. One that is here stays as it is.
    pub fn keep(&self, epoch: Epoch, record: Arc<R>) {
        let mut shard = self.shard(record.group()).write();
        let key = (record.group(), record.addresses().end);
        if shard.epoch != epoch.0 || shard.records.contains_key(&key) {
            return;
        }
        shard.bytes += record.memory();
        let kept = (record, AtomicBool::new(false));
        shard.records.insert(key, kept);
        while shard.bytes > self.shard_budget && shard.records.len() > 1 {
            shard.evict();
        }
    }

    /// Removes a record (by the end of its addresses). Loads that are under way will not be cached.
    pub fn forget(&self, group: u64, end: u64) {
        let mut shard = self.shard(group).write();
        shard.epoch += 1;
        if let Some((old, _)) = shard.records.remove(&(group, end)) {
            shard.bytes -= old.memory();
        }
    }

    /// Memory held, bytes.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.read().bytes as u64).sum()
    }
}

impl<R: CachedRecord> Shard<R> {
    /// One step of the clock hand: skips a record that was used since the last round, or evicts one that was not.
    fn evict(&mut self) {
        let after = self
            .records
            .range((Bound::Excluded(self.hand), Bound::Unbounded))
            .next();
        let Some((key, (record, used))) = after.or_else(|| self.records.iter().next()) else {
            return;
        };
        let (key, size, used) = (*key, record.memory(), used.swap(false, Relaxed));
        self.hand = key;
        if !used {
            self.records.remove(&key);
            self.bytes -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Span;
    use forebay_proto::LogId;

    type SpanCache = RecordCache<Span>;

    fn span(log: LogId, addr: u64, len: usize) -> Arc<Span> {
        Arc::new(Span::of(log, addr, &vec![1; len], 0, 4096))
    }

    #[test]
    fn finds_by_any_address_inside_and_misses_gaps() {
        let c = SpanCache::new(1 << 20);
        c.keep(c.epoch(1), span(1, 0, 100));
        c.keep(c.epoch(1), span(1, 200, 100));
        assert_eq!(c.get(1, 99).map(|s| s.live.start), Some(0));
        assert!(c.get(1, 100).is_none() && c.get(1, 199).is_none() && c.get(2, 50).is_none());
        assert_eq!(c.get(1, 200).map(|s| s.live.end), Some(300));
        assert!(c.get(1, 300).is_none());
    }

    #[test]
    fn a_span_loaded_before_a_free_is_not_kept_after_it() {
        let c = SpanCache::new(1 << 20);
        let epoch = c.epoch(1);
        c.keep(epoch, span(1, 0, 100));
        c.forget(1, 100);
        assert!(c.get(1, 5).is_none());
        c.keep(epoch, span(1, 0, 100));
        assert!(c.get(1, 5).is_none(), "a stale load came back");
        c.keep(c.epoch(1), span(1, 0, 100));
        assert!(c.get(1, 5).is_some());
    }

    #[test]
    fn stays_inside_its_budget_and_prefers_what_is_used() {
        let c = SpanCache::new(SHARDS * 8192);
        c.keep(c.epoch(1), span(1, 0, 10));
        for i in 1..500 {
            assert!(c.get(1, 5).is_some(), "dropped a span in use");
            c.keep(c.epoch(1), span(1, i * 100, 10));
        }
        assert!(c.bytes() <= 8192 + 200, "{}", c.bytes());
    }
}
