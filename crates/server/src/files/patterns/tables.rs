//! Decoded tables in memory: those used last, within a budget.
use super::table::Table;
use crate::Fid;
use lru::LruCache;
use parking_lot::Mutex;
use std::sync::Arc;

/// The budget until another one is set, bytes.
const BUDGET: usize = 6 << 20;

/// See the head of this file. A table is asked for and replaced under its inode's lock.
pub(in super::super) struct Tables(Mutex<Kept>);

struct Kept {
    /// With their size, and how many of what they make they had made then.
    tables: LruCache<Fid, (Arc<Table>, usize, u8)>,
    memory: usize,
    budget: usize,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables(Mutex::new(Kept {
            tables: LruCache::unbounded(),
            memory: 0,
            budget: BUDGET,
        }))
    }
}

impl Tables {
    pub(super) fn get(&self, fid: Fid) -> Option<Arc<Table>> {
        let mut kept = self.0.lock();
        let table = kept.tables.get(&fid)?.0.clone();
        Some(table)
    }

    /// What a table makes when it is first asked for it may have made it larger.
    pub(super) fn grew(&self, fid: Fid, table: Arc<Table>) {
        let made = table.made();
        let known = self.0.lock().tables.peek(&fid).map(|kept| kept.2);
        if known != Some(made) {
            self.put(fid, table);
        }
    }

    pub(in super::super) fn put(&self, fid: Fid, table: Arc<Table>) {
        let (size, made) = (table.memory(), table.made());
        let mut kept = self.0.lock();
        let old = kept.tables.put(fid, (table, size, made));
        kept.memory = kept.memory + size - old.map_or(0, |o| o.1);
        // The one in use stays: it is in memory anyway, and the next commit would only read it again.
        while kept.memory > kept.budget
            && kept.tables.len() > 1
            && let Some((_, (_, size, _))) = kept.tables.pop_lru()
        {
            kept.memory -= size;
        }
    }

    /// The file is gone, or has no patterns any more.
    pub(in super::super) fn forget(&self, fid: Fid) {
        let mut kept = self.0.lock();
        if let Some((_, size, _)) = kept.tables.pop(&fid) {
            kept.memory -= size;
        }
    }

    /// Bytes of memory held.
    pub(in super::super) fn memory(&self) -> usize {
        self.0.lock().memory
    }

    pub(in super::super) fn set_budget(&self, bytes: usize) {
        self.0.lock().budget = bytes;
    }
}
