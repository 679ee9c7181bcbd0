//! Prediction by Markov chains of blocks, after Oly and Reed: each block is followed by the one that followed it most often.
//!
//! A file's transitions are counted while it is read; they are used from the next run on. A run ends when the last of the
//! file's readers here is gone.
//!
//! All chains share one memory budget (`ChainMemory`). When it is used up, nothing is added, and the prefetcher evicts chains without
//! readers, least recently used first.
use forebay_pattern::ReadRequest;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of a block: the paper's choice.
pub const BLOCK: u64 = 8 << 10;
/// Most transitions kept of a file: 4 GiB read block by block.
const MAX_TRANSITIONS: usize = 512 << 10;
/// Memory of one, about: counted, and what follows most often.
const TRANSITION_MEMORY: u64 = 3 * 48;

type BlockCounts = HashMap<u64, Vec<(u64, u32)>>;

/// Memory that all chains share.
#[derive(Debug)]
pub struct ChainMemory {
    most: u64,
    held: AtomicU64,
    /// A chain found no room since this was last read.
    wanted: AtomicBool,
}

impl ChainMemory {
    /// A budget of `most` bytes.
    pub fn new(most: u64) -> ChainMemory {
        ChainMemory {
            most,
            held: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
        }
    }

    /// Bytes held, about.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether a chain found no room since the last call.
    pub fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::Relaxed)
    }

    /// Whether an eighth is free.
    pub fn has_some(&self) -> bool {
        self.held() <= self.most - self.most / 8
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |held: u64| held.checked_add(bytes).filter(|all| *all <= self.most);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self.held.fetch_update(set, get, more).is_ok();
        if !taken {
            self.wanted.store(true, Ordering::Relaxed);
        }
        taken
    }

    fn give(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct ChainCounts {
    readers: usize,
    /// Of this run.
    counted: BlockCounts,
    /// Transitions in both, those in each counted.
    count: usize,
    /// Of the runs before: what follows each block.
    known: Arc<HashMap<u64, u64>>,
    /// All runs before.
    total: BlockCounts,
}

/// What is known of one file.
#[derive(Debug)]
pub struct MarkovChain {
    inner: Mutex<ChainCounts>,
    room: Arc<ChainMemory>,
}

impl Drop for MarkovChain {
    fn drop(&mut self) {
        let count = self.inner.get_mut().count;
        self.room.give(count as u64 * TRANSITION_MEMORY);
    }
}

impl MarkovChain {
    /// With nothing known yet.
    pub fn new(room: Arc<ChainMemory>) -> MarkovChain {
        MarkovChain {
            inner: Mutex::default(),
            room,
        }
    }

    fn count(&self, from: u64, to: u64) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let counted = inner.counted.get_mut(&from);
        if let Some((_, times)) = counted.and_then(|c| c.iter_mut().find(|(b, _)| *b == to)) {
            *times = times.saturating_add(1);
        } else if inner.count < MAX_TRANSITIONS && self.room.take(TRANSITION_MEMORY) {
            inner.counted.entry(from).or_default().push((to, 1));
            inner.count += 1;
        }
    }

    fn begin(&self) -> Arc<HashMap<u64, u64>> {
        let mut inner = self.inner.lock();
        inner.readers += 1;
        inner.known.clone()
    }

    /// A reader is gone; with the last one the run ends.
    fn end(&self) {
        let mut inner = self.inner.lock();
        inner.readers -= 1;
        if inner.readers > 0 {
            return;
        }
        let counted = std::mem::take(&mut inner.counted);
        for (from, after) in counted {
            let all = inner.total.entry(from).or_default();
            for (to, times) in after {
                match all.iter_mut().find(|(block, _)| *block == to) {
                    Some((_, sum)) => *sum = sum.saturating_add(times),
                    None => all.push((to, times)),
                }
            }
        }
        let before = inner.count;
        inner.count = inner.total.values().map(Vec::len).sum();
        self.room
            .give((before - inner.count) as u64 * TRANSITION_MEMORY);
        // Of equals the one that came first.
        let most = inner.total.iter().filter_map(|(from, after)| {
            let best = after.iter().rev().max_by_key(|(_, times)| *times)?;
            Some((*from, best.0))
        });
        inner.known = Arc::new(most.collect());
    }
}

/// One reader of a file.
#[derive(Debug)]
pub struct MarkovPredictor {
    chain: Arc<MarkovChain>,
    known: Arc<HashMap<u64, u64>>,
    last: Option<u64>,
}

impl MarkovPredictor {
    /// Of a reader that has read nothing yet.
    pub fn new(chain: Arc<MarkovChain>) -> MarkovPredictor {
        MarkovPredictor {
            known: chain.begin(),
            chain,
            last: None,
        }
    }

    /// The reader reads this.
    pub fn observe(&mut self, request: ReadRequest) {
        if request.len == 0 {
            return;
        }
        let last = (request.offset + request.len - 1) / BLOCK;
        for block in request.offset / BLOCK..=last {
            if let Some(from) = self.last.replace(block).filter(|from| *from != block) {
                self.chain.count(from, block);
            }
        }
    }

    /// The blocks that come next, at most `count`.
    pub fn predict(&self, count: usize) -> Vec<ReadRequest> {
        let mut blocks = Vec::new();
        let mut at = self.last;
        while blocks.len() < count
            && let Some(next) = at.and_then(|block| self.known.get(&block).copied())
        {
            // A circle has no end.
            if blocks.contains(&next) {
                break;
            }
            blocks.push(next);
            at = Some(next);
        }
        let block = |number| ReadRequest {
            offset: number * BLOCK,
            len: BLOCK,
        };
        blocks.into_iter().map(block).collect()
    }
}

impl Drop for MarkovPredictor {
    fn drop(&mut self) {
        self.chain.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain() -> Arc<MarkovChain> {
        Arc::new(MarkovChain::new(Arc::new(ChainMemory::new(u64::MAX))))
    }

    fn run(chain: &Arc<MarkovChain>, blocks: &[u64]) -> Vec<Vec<u64>> {
        let mut reader = MarkovPredictor::new(chain.clone());
        let mut ahead = Vec::new();
        for &block in blocks {
            reader.observe(ReadRequest {
                offset: block * BLOCK + 100,
                len: 4000,
            });
            let next = reader.predict(3);
            ahead.push(next.iter().map(|r| r.offset / BLOCK).collect());
        }
        ahead
    }

    #[test]
    fn the_first_run_teaches_and_the_second_one_is_foreseen() {
        let chain = chain();
        let blocks = [5, 9, 2, 40, 7];
        assert!(run(&chain, &blocks).iter().all(Vec::is_empty));
        let second = run(&chain, &blocks);
        assert_eq!(second[0], [9, 2, 40]);
        assert_eq!(second[3], [7]);
        assert!(second[4].is_empty());
    }

    #[test]
    fn the_most_frequent_successor_wins_and_circles_end() {
        let chain = chain();
        run(&chain, &[1, 2, 1, 3, 1, 3, 1]);
        assert_eq!(run(&chain, &[1])[0], [3, 1]);
    }

    #[test]
    fn chains_keep_to_their_room_and_give_it_back() {
        let room = Arc::new(ChainMemory::new(10 * TRANSITION_MEMORY));
        let (one, two) = (
            Arc::new(MarkovChain::new(room.clone())),
            Arc::new(MarkovChain::new(room.clone())),
        );
        run(&one, &[1, 2, 3, 4, 5, 6, 7]);
        assert!(!room.wanted());
        run(&two, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(room.held(), 10 * TRANSITION_MEMORY);
        assert!(room.wanted() && !room.wanted() && !room.has_some());
        // What found room is foreseen; what is known is counted again without more.
        assert_eq!(run(&two, &[1])[0], [2, 3, 4]);
        assert_eq!(run(&one, &[1, 2, 3, 4, 5, 6, 7])[2], [4, 5, 6]);
        drop(one);
        assert_eq!(room.held(), 4 * TRANSITION_MEMORY);
        assert!(room.has_some());
        drop(two);
        assert_eq!(room.held(), 0);
    }

    #[test]
    fn long_reads_are_chains_of_their_blocks() {
        let chain = chain();
        let long = |reader: &mut MarkovPredictor| {
            reader.observe(ReadRequest {
                offset: 0,
                len: 3 * BLOCK,
            });
        };
        let mut first = MarkovPredictor::new(chain.clone());
        long(&mut first);
        drop(first);
        let mut second = MarkovPredictor::new(chain);
        second.observe(ReadRequest { offset: 0, len: 1 });
        assert_eq!(second.predict(9).len(), 2);
    }
}
