//! Decoded records in memory (spans, containers), bounded in bytes; so that a read in the common case asks the store nothing.
//!
//! Groups are spread over shards, so that readers of different ones do not wait for each other; memory is counted over all of them, so that one
//! large log may use the whole budget.
//!
//! Invariant: after `forget` returns, no record of that group loaded before it is ever found again. A reader that loaded a
//! record before a change and wants to keep it after is refused by the shard's epoch.
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

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
    /// Where the eviction's clock hand stands.
    hand: (u64, u64),
    /// Number of `forget` calls.
    epoch: u64,
}

impl<R> Default for Shard<R> {
    fn default() -> Shard<R> {
        Shard {
            records: BTreeMap::new(),
            hand: (0, 0),
            epoch: 0,
        }
    }
}

/// The cache. Shared by threads.
pub struct RecordCache<R> {
    shards: Vec<RwLock<Shard<R>>>,
    budget: usize,
    /// Memory of the records of all shards.
    bytes: AtomicUsize,
    /// Counts shards that the clock hand has gone through; the next one is evicted from.
    turn: AtomicUsize,
}

/// Proof of when a load began; see `RecordCache::keep`.
#[derive(Clone, Copy)]
pub struct Epoch(u64);

impl<R: CachedRecord> RecordCache<R> {
    /// At most about `budget` bytes.
    pub fn new(budget: usize) -> RecordCache<R> {
        RecordCache {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            budget,
            bytes: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
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
        self.bytes.fetch_add(record.memory(), Relaxed);
        let kept = (record, AtomicBool::new(false));
        shard.records.insert(key, kept);
        drop(shard);
        self.evict();
    }

    /// Evicts until the budget is kept. Each shard may keep its last record.
    fn evict(&self) {
        // The first round may find that all were used.
        let mut ends = 0;
        while self.bytes.load(Relaxed) > self.budget && ends < 2 * SHARDS {
            let turn = self.turn.load(Relaxed);
            let mut shard = self.shards[turn % SHARDS].write();
            match shard.step() {
                ClockStep::Evicted(record) => {
                    self.bytes.fetch_sub(record.memory(), Relaxed);
                }
                ClockStep::Skipped => {}
                ClockStep::End => {
                    ends += 1;
                    // If it fails, another thread was here.
                    let next = turn.wrapping_add(1);
                    let _ = self.turn.compare_exchange(turn, next, Relaxed, Relaxed);
                }
            }
        }
    }

    /// Removes a record (by the end of its addresses). Loads that are under way will not be cached.
    pub fn forget(&self, group: u64, end: u64) {
        let mut shard = self.shard(group).write();
        shard.epoch += 1;
        if let Some((old, _)) = shard.records.remove(&(group, end)) {
            self.bytes.fetch_sub(old.memory(), Relaxed);
        }
    }

    /// Memory held, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed) as u64
    }
}

/// What the clock hand of a shard did.
enum ClockStep<R> {
    /// It evicted a record that was not used since the last round.
    Evicted(Arc<R>),
    /// It passed one that was.
    Skipped,
    /// It passed the last one, and stands before the first one again.
    End,
}

impl<R: CachedRecord> Shard<R> {
    /// One step of the clock hand. A shard's last record is not evicted.
    fn step(&mut self) -> ClockStep<R> {
        let after = self
            .records
            .range((Bound::Excluded(self.hand), Bound::Unbounded))
            .next();
        let Some((key, (_, used))) = after.filter(|_| self.records.len() > 1) else {
            self.hand = (0, 0);
            return ClockStep::End;
        };
        self.hand = *key;
        if used.swap(false, Relaxed) {
            return ClockStep::Skipped;
        }
        match self.records.remove(&self.hand) {
            Some((record, _)) => ClockStep::Evicted(record),
            None => ClockStep::Skipped,
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
        let c = SpanCache::new(8192);
        c.keep(c.epoch(1), span(1, 0, 10));
        for i in 1..500 {
            assert!(c.get(1, 5).is_some(), "dropped a span in use");
            c.keep(c.epoch(1), span(1, i * 100, 10));
        }
        assert!(c.bytes() <= 8192, "{}", c.bytes());
        let each = span(1, 0, 10).memory() as u64;
        assert!(c.bytes() > 8192 - 2 * each, "one log uses all of it");
        // Another log's records displace those that are not used.
        for i in 0..500 {
            c.keep(c.epoch(2), span(2, i * 100, 10));
        }
        assert!(c.bytes() <= 8192, "{}", c.bytes());
        assert!(c.get(2, 499 * 100).is_some());
        let first = (0..500).filter(|i| c.get(1, i * 100).is_some()).count() as u64;
        assert!(first * each < 8192 * 3 / 4, "{first} of the first log");
    }

    #[test]
    fn a_scan_of_one_log_leaves_what_is_used_of_others() {
        let each = span(1, 0, 10).memory();
        let c = SpanCache::new(2000 * each);
        let others = || (2..17).flat_map(|log| (0..10).map(move |i| (log, i * 100)));
        for (log, addr) in others() {
            c.keep(c.epoch(log), span(log, addr, 10));
        }
        for i in 0..20_000 {
            if i % 500 == 0 {
                let lost = others().filter(|(log, addr)| c.get(*log, *addr).is_none());
                assert_eq!(lost.count(), 0, "after {i}");
            }
            c.keep(c.epoch(1), span(1, i * 100, 10));
        }
        assert!(c.bytes() > 1900 * each as u64 && c.bytes() <= 2000 * each as u64);
    }

    #[test]
    fn threads_keep_the_sum_and_the_budget() {
        let each = span(1, 0, 10).memory();
        let c = SpanCache::new(100 * each);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let c = &c;
                scope.spawn(move || {
                    for i in 0..3000 {
                        let log = (thread + i) % 40;
                        c.keep(c.epoch(log), span(log, i * 100, 10));
                        c.get(log, i * 100);
                        if i % 3 == 0 {
                            c.forget((log + 1) % 40, (i + 1) * 100 + 10);
                        }
                    }
                });
            }
        });
        let memory = |shard: &RwLock<Shard<Span>>| {
            let shard = shard.read();
            shard.records.values().map(|r| r.0.memory()).sum::<usize>()
        };
        let sum: usize = c.shards.iter().map(memory).sum();
        assert_eq!(c.bytes(), sum as u64);
        assert!(c.bytes() <= 100 * each as u64);
    }

    #[test]
    fn what_is_larger_than_the_budget_is_kept_alone() {
        let c = SpanCache::new(10);
        for i in 0..50 {
            c.keep(c.epoch(1), span(1, i * 100, 10));
            assert!((0..50).filter(|i| c.get(1, i * 100).is_some()).count() <= 1);
        }
        assert!(c.bytes() > 0);
        for i in 0..50 {
            c.forget(1, i * 100 + 10);
        }
        assert_eq!(c.bytes(), 0);
    }
}
