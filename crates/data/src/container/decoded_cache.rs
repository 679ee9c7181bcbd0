//! Decoded pieces of encoded containers in memory, for those that are read again and again in small parts.
//!
//! A piece is admitted on its second touch: the first leaves only its name, so that one pass over much data replaces nothing. Evicted
//! is what was used least recently, by shard. The names of pieces touched once are kept in as many entries as there may be pieces.
//!
//! Invariants: a piece is of the container's present form, known by the checksum of its encoded bytes, which were verified; the
//! pieces take no more memory than the budget; with a budget of 0 nothing is kept.
use forebay_codec::container::PIECE_LEN;
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::Arc;

const SHARDS: usize = 16;
/// Memory of a piece beside its bytes: its key and the links of the list.
const OVERHEAD: usize = 96;

/// A piece of a container, in the form that has this checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PieceKey {
    /// The container.
    pub container: u64,
    /// The stored part.
    pub part: u32,
    /// CRC32C of its encoded bytes.
    pub crc: u32,
}

struct DecodedShard {
    pieces: LruCache<PieceKey, Arc<[u8]>>,
    touched: LruCache<PieceKey, ()>,
}

/// See the head of this file. Shared by threads.
pub struct DecodedCache {
    /// Empty: the budget is too small for any.
    shards: Vec<Mutex<DecodedShard>>,
}

impl DecodedCache {
    /// At most about `budget` bytes.
    pub fn new(budget: usize) -> DecodedCache {
        let pieces = NonZeroUsize::new(budget / SHARDS / (PIECE_LEN + OVERHEAD));
        let shard = |pieces| {
            Mutex::new(DecodedShard {
                pieces: LruCache::new(pieces),
                touched: LruCache::new(pieces),
            })
        };
        DecodedCache {
            shards: pieces.map_or_else(Vec::new, |pieces| {
                (0..SHARDS).map(|_| shard(pieces)).collect()
            }),
        }
    }

    fn shard(&self, key: &PieceKey) -> Option<&Mutex<DecodedShard>> {
        let mixed = (key.container ^ u64::from(key.part) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.shards.get((mixed >> 60) as usize)
    }

    /// The piece, if it is here.
    pub fn get(&self, key: &PieceKey) -> Option<Arc<[u8]>> {
        self.shard(key)?.lock().pieces.get(key).cloned()
    }

    /// Notes that a piece is read which is not here. `true`: it was read before not long ago, so it is to be decoded whole and
    /// inserted.
    pub fn touch(&self, key: PieceKey) -> bool {
        let Some(shard) = self.shard(&key) else {
            return false;
        };
        let mut shard = shard.lock();
        let is_again = shard.touched.pop(&key).is_some();
        if !is_again {
            shard.touched.put(key, ());
        }
        is_again
    }

    /// Keeps a piece.
    pub fn insert(&self, key: PieceKey, piece: &[u8]) {
        if let Some(shard) = self.shard(&key) {
            shard.lock().pieces.put(key, piece.into());
        }
    }

    /// Memory held, bytes, about.
    pub fn bytes(&self) -> u64 {
        let pieces = self.shards.iter().map(|shard| shard.lock().pieces.len());
        (pieces.sum::<usize>() * (PIECE_LEN + OVERHEAD)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(part: u32) -> PieceKey {
        PieceKey {
            container: 7,
            part,
            crc: 1,
        }
    }

    #[test]
    fn a_piece_is_admitted_on_its_second_touch() {
        let cache = DecodedCache::new(1 << 20);
        assert!(!cache.touch(key(1)));
        assert!(cache.touch(key(1)));
        cache.insert(key(1), &[5; PIECE_LEN]);
        assert_eq!(cache.get(&key(1)).unwrap()[..], [5; PIECE_LEN]);
        // The same part in another form is another piece.
        let other = PieceKey { crc: 2, ..key(1) };
        assert!(cache.get(&other).is_none() && !cache.touch(other));
    }

    #[test]
    fn memory_stays_in_the_budget_and_none_is_kept_of_none() {
        let budget = 1 << 20;
        let cache = DecodedCache::new(budget);
        for part in 0..2000 {
            assert!(!cache.touch(key(part)));
            cache.insert(key(part), &[1; PIECE_LEN]);
        }
        assert!(cache.bytes() > budget as u64 / 2 && cache.bytes() <= budget as u64);
        let none = DecodedCache::new(0);
        assert!(!none.touch(key(1)) && !none.touch(key(1)));
        none.insert(key(1), &[1; PIECE_LEN]);
        assert!(none.get(&key(1)).is_none() && none.bytes() == 0);
    }
}
