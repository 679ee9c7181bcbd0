//! What is kept in memory of table files: metadata regions, and blocks as they are on disk, compressed.
//!
//! Blocks are small compressed (a hundredth of a page to a page) and quick to decode in part, so a budget holds many times more of
//! them than decoded. What is kept of a table goes together, least recently used table first: a lookup marks one table, not
//! each block.
//!
//! Invariant: the sum of what is kept exceeds the budget only while a read is being put in, by that read.
use super::slot::Slot;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// See the head of this file.
pub struct Cache {
    budget: usize,
    bytes: AtomicUsize,
    /// Of each table in use, by number.
    slots: Mutex<HashMap<u64, Arc<Slot>>>,
    /// Counts uses of tables: their clock.
    uses: AtomicU64,
}

impl Cache {
    /// Of at most `budget` bytes.
    pub fn new(budget: usize) -> Cache {
        Cache {
            budget,
            bytes: AtomicUsize::new(0),
            slots: Mutex::default(),
            uses: AtomicU64::new(0),
        }
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The time of a use, later than all before.
    pub(super) fn tick(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes the table `number` one of those that are emptied when there is too much.
    pub(super) fn enter(&self, number: u64, slot: Arc<Slot>) {
        self.slots.lock().insert(number, slot);
    }

    /// The table is no more. Another one of its number stays.
    pub(super) fn leave(&self, number: u64, slot: &Arc<Slot>) {
        let mut slots = self.slots.lock();
        if slots.get(&number).is_some_and(|s| Arc::ptr_eq(s, slot)) {
            slots.remove(&number);
        }
        drop(slots);
        self.less(slot.empty());
    }

    /// So many bytes more are kept. The caller holds that slot's lock, so that they are counted before they can be emptied; it
    /// calls [`trim`](Cache::trim) afterwards.
    pub(super) fn more(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes are not kept any more.
    pub(super) fn less(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// If there is too much, empties the least recently used tables until an eighth of the budget is free. The caller holds no
    /// slot's lock.
    pub(super) fn trim(&self) {
        if self.bytes() <= self.budget {
            return;
        }
        let slots = self.slots.lock();
        let mut by_use: Vec<(u64, &Arc<Slot>)> = slots
            .values()
            .filter_map(|slot| Some((slot.last_use()?, slot)))
            .collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        for (_, slot) in by_use {
            if self.bytes() <= self.budget - self.budget / 8 {
                break;
            }
            self.less(slot.empty());
        }
    }
}
