//! Chunks that are known to be damaged, because a read found a wrong checksum.
//!
//! It is a cache: a damaged chunk that is missing here is found again by its next read. When it is full, it is cleared, and a new
//! [epoch](DamagedChunks::epoch) begins. Settling then verifies containers again that it had verified in an earlier epoch
//! (`settle/heal`).
use super::ContainerId;
use parking_lot::Mutex;
use std::collections::HashSet;

const MAX_REMEMBERED: usize = 1 << 16;

#[derive(Default)]
struct DamagedInEpoch {
    chunks: HashSet<(ContainerId, usize)>,
    epoch: u64,
}

/// See the head of this file. Shared by threads.
#[derive(Default)]
pub struct DamagedChunks(Mutex<DamagedInEpoch>);

impl DamagedChunks {
    /// A chunk was found damaged.
    pub fn add(&self, id: ContainerId, chunk: usize) {
        let mut known = self.0.lock();
        if known.chunks.len() >= MAX_REMEMBERED {
            known.chunks.clear();
            known.epoch += 1;
        }
        known.chunks.insert((id, chunk));
    }

    /// How often the cache was cleared.
    pub fn epoch(&self) -> u64 {
        self.0.lock().epoch
    }

    /// Whether a chunk is known to be damaged.
    pub fn contains(&self, id: ContainerId, chunk: usize) -> bool {
        self.0.lock().chunks.contains(&(id, chunk))
    }

    /// A chunk is whole again.
    pub fn remove(&self, id: ContainerId, chunk: usize) {
        self.0.lock().chunks.remove(&(id, chunk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_forgotten_in_a_new_epoch() {
        let damaged = DamagedChunks::default();
        (0..MAX_REMEMBERED).for_each(|chunk| damaged.add(1, chunk));
        assert!(damaged.contains(1, 0) && damaged.epoch() == 0);
        damaged.add(2, 7);
        assert!(!damaged.contains(1, 0) && damaged.contains(2, 7));
        assert_eq!(damaged.epoch(), 1);
    }
}
