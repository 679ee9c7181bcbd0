//! The block cache: decoded blocks, least recently used first out, within a budget of bytes.
//!
//! Invariant: the sum of the blocks' sizes never exceeds the budget, shard by shard; a block larger than
//! a shard's share is not kept.
use super::block::Block;
use lru::LruCache;
use parking_lot::Mutex;
use std::sync::Arc;

/// A block's name: table number and position in the table.
pub type BlockKey = (u64, u32);

const SHARDS: usize = 16;

struct Shard {
    blocks: LruCache<BlockKey, Arc<Block>>,
    bytes: usize,
}

/// See the head of this file.
pub struct BlockCache {
    shards: Vec<Mutex<Shard>>,
    share: usize,
}

/// What a cached block costs beyond its own memory: map entry and list node.
const OVERHEAD: usize = 96;

impl BlockCache {
    /// A cache of at most `budget` bytes.
    pub fn new(budget: usize) -> BlockCache {
        // Few shards for a small budget, so that a share still holds some blocks.
        let shards = (budget >> 18).clamp(1, SHARDS);
        let shard = || {
            Mutex::new(Shard {
                blocks: LruCache::unbounded(),
                bytes: 0,
            })
        };
        BlockCache {
            shards: (0..shards).map(|_| shard()).collect(),
            share: budget / shards,
        }
    }

    fn shard(&self, key: BlockKey) -> &Mutex<Shard> {
        let mixed = (key.0 << 20 ^ u64::from(key.1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 40) as usize % self.shards.len()]
    }

    /// The block, if it is here.
    pub fn get(&self, key: BlockKey) -> Option<Arc<Block>> {
        self.shard(key).lock().blocks.get(&key).cloned()
    }

    /// Keeps the block, at the cost of the least recently used ones.
    pub fn insert(&self, key: BlockKey, block: Arc<Block>) {
        let cost = block.bytes() + OVERHEAD;
        if cost > self.share {
            return;
        }
        let mut shard = self.shard(key).lock();
        if let Some(old) = shard.blocks.put(key, block) {
            shard.bytes -= old.bytes() + OVERHEAD;
        }
        shard.bytes += cost;
        while shard.bytes > self.share {
            match shard.blocks.pop_lru() {
                Some((_, old)) => shard.bytes -= old.bytes() + OVERHEAD,
                None => break,
            }
        }
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|s| s.lock().bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::BlockBuilder;
    use super::*;

    fn block(bytes: usize) -> Arc<Block> {
        let mut b = BlockBuilder::default();
        b.push(0, b"k", Some(&vec![0; bytes])).unwrap();
        Arc::new(b.finish())
    }

    #[test]
    fn the_budget_holds_and_the_recent_stay() {
        for budget in [20_000, 2 << 20] {
            let cache = BlockCache::new(budget);
            for i in 0..2_000u32 {
                cache.insert((1, i), block(4_000));
                assert!(cache.get((1, i)).is_some());
                assert!(cache.bytes() <= budget);
            }
            assert!(cache.get((1, 0)).is_none());
            cache.insert((2, 0), block(budget * 2));
            assert!(
                cache.get((2, 0)).is_none(),
                "a block beyond the budget is not kept"
            );
        }
    }

    #[test]
    fn used_blocks_outlive_unused_ones() {
        let cache = BlockCache::new(20_000);
        for i in 0..50u32 {
            cache.insert((1, 0), block(4_000));
            cache.insert((2, i), block(4_000));
            assert!(cache.get((1, 0)).is_some());
        }
    }
}
