//! Decoded spans in memory, bounded in bytes; so that a read in the common case asks the store nothing.
//!
//! Invariant: after `forget` returns, no span of that log loaded before it is ever found again. A reader that loaded a
//! span before a free and wants to keep it after is refused by the shard's epoch.
use crate::span::Span;
use forebay_proto::LogId;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const SHARDS: usize = 16;

#[derive(Default)]
struct Shard {
    /// By (log, live end), as in the store.
    spans: BTreeMap<(LogId, u64), (Arc<Span>, AtomicBool)>,
    bytes: usize,
    /// Where the eviction's clock hand stands.
    hand: (LogId, u64),
    /// Number of `forget` calls.
    epoch: u64,
}

/// The cache. Shared by threads.
pub struct SpanCache {
    shards: Vec<RwLock<Shard>>,
    shard_budget: usize,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Proof of when a load began; see `SpanCache::keep`.
#[derive(Clone, Copy)]
pub struct Epoch(u64);

impl SpanCache {
    /// At most about `budget` bytes.
    pub fn new(budget: usize) -> SpanCache {
        SpanCache {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            shard_budget: (budget / SHARDS).max(4096),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn shard(&self, log: LogId) -> &RwLock<Shard> {
        &self.shards[(log.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize % SHARDS]
    }

    /// The span that holds `addr`, if it is here.
    pub fn get(&self, log: LogId, addr: u64) -> Option<Arc<Span>> {
        let shard = self.shard(log).read();
        let next = shard
            .spans
            .range((Bound::Excluded((log, addr)), Bound::Unbounded))
            .next();
        let found = next
            .filter(|((l, _), (s, _))| *l == log && s.live.start <= addr)
            .map(|(_, (s, used))| {
                used.store(true, Relaxed);
                s.clone()
            });
        if found.is_some() {
            &self.hits
        } else {
            &self.misses
        }
        .fetch_add(1, Relaxed);
        found
    }

    /// Take this before the load of a span that `keep` shall remember.
    pub fn epoch(&self, log: LogId) -> Epoch {
        Epoch(self.shard(log).read().epoch)
    }

    /// Remembers a span loaded since `epoch`, unless something was forgotten since.
    pub fn keep(&self, epoch: Epoch, span: Arc<Span>) {
        let mut shard = self.shard(span.log).write();
        if shard.epoch != epoch.0 {
            return;
        }
        shard.bytes += span.memory();
        let key = (span.log, span.live.end);
        if let Some((old, _)) = shard.spans.insert(key, (span, AtomicBool::new(false))) {
            shard.bytes -= old.memory();
        }
        while shard.bytes > self.shard_budget && shard.spans.len() > 1 {
            shard.evict();
        }
    }

    /// Forgets these spans (by their live ends), and what loads under way would bring.
    pub fn forget(&self, log: LogId, ends: impl IntoIterator<Item = u64>) {
        let mut shard = self.shard(log).write();
        shard.epoch += 1;
        for end in ends {
            if let Some((old, _)) = shard.spans.remove(&(log, end)) {
                shard.bytes -= old.memory();
            }
        }
    }

    /// Memory held, bytes.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.read().bytes as u64).sum()
    }

    /// `(found here, had to ask the store)` since the start.
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.load(Relaxed), self.misses.load(Relaxed))
    }
}

impl Shard {
    /// One step of the clock: passes over a span used since the last round, or drops one not used.
    fn evict(&mut self) {
        let after = self
            .spans
            .range((Bound::Excluded(self.hand), Bound::Unbounded))
            .next();
        let Some((key, (span, used))) = after.or_else(|| self.spans.iter().next()) else {
            return;
        };
        let (key, size, used) = (*key, span.memory(), used.swap(false, Relaxed));
        self.hand = key;
        if !used {
            self.spans.remove(&key);
            self.bytes -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(c.counts(), (2, 4));
    }

    #[test]
    fn a_span_loaded_before_a_free_is_not_kept_after_it() {
        let c = SpanCache::new(1 << 20);
        let epoch = c.epoch(1);
        c.keep(epoch, span(1, 0, 100));
        c.forget(1, [100]);
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
