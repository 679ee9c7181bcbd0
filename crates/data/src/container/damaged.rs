//! Chunks that are known to be damaged since somebody read them in vain.
//!
//! It is a help: what is not known here is found out when it is read. So it may be forgotten, and is when it grows too large.
use super::ContainerId;
use parking_lot::Mutex;
use std::collections::HashSet;

const MAX_REMEMBERED: usize = 1 << 16;

/// See the head of this file. Shared by threads.
#[derive(Default)]
pub struct DamagedChunks(Mutex<HashSet<(ContainerId, usize)>>);

impl DamagedChunks {
    /// A chunk is not what was written.
    pub fn add(&self, id: ContainerId, chunk: usize) {
        let mut known = self.0.lock();
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        known.insert((id, chunk));
    }

    /// Whether that is known.
    pub fn contains(&self, id: ContainerId, chunk: usize) -> bool {
        self.0.lock().contains(&(id, chunk))
    }

    /// It is what was written.
    pub fn remove(&self, id: ContainerId, chunk: usize) {
        self.0.lock().remove(&(id, chunk));
    }
}
