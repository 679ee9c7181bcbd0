//! Chunks that are known to be damaged since somebody read them in vain.
//!
//! A chunk that is not known here is found out when it is read. So all may be forgotten, and are when there are too many: that begins
//! another [epoch](DamagedChunks::epoch), in which no container counts as read whole before (`settle/heal`).
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
    /// A chunk is not what was written.
    pub fn add(&self, id: ContainerId, chunk: usize) {
        let mut known = self.0.lock();
        if known.chunks.len() >= MAX_REMEMBERED {
            known.chunks.clear();
            known.epoch += 1;
        }
        known.chunks.insert((id, chunk));
    }

    /// How often all was forgotten.
    pub fn epoch(&self) -> u64 {
        self.0.lock().epoch
    }

    /// Whether that is known.
    pub fn contains(&self, id: ContainerId, chunk: usize) -> bool {
        self.0.lock().chunks.contains(&(id, chunk))
    }

    /// It is what was written.
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
