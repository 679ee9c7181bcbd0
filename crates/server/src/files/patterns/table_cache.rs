//! Decoded tables in memory: those used last, within a budget.
use super::table::PatternTable;
use crate::Fid;
use lru::LruCache;
use parking_lot::Mutex;
use std::sync::Arc;

/// The budget until another one is set, bytes.
const BUDGET: usize = 6 << 20;

/// See the head of this file. A table is asked for and replaced under its inode's lock.
pub(in crate::files) struct TableCache(Mutex<CachedTables>);

struct CachedTables {
    /// With their size, and how many of what they make they had made then.
    tables: LruCache<Fid, (Arc<PatternTable>, usize, u8)>,
    memory: usize,
    budget: usize,
}

impl Default for TableCache {
    fn default() -> TableCache {
        TableCache(Mutex::new(CachedTables {
            tables: LruCache::unbounded(),
            memory: 0,
            budget: BUDGET,
        }))
    }
}

impl TableCache {
    pub(in crate::files) fn get(&self, fid: Fid) -> Option<Arc<PatternTable>> {
        let mut kept = self.0.lock();
        let table = kept.tables.get(&fid)?.0.clone();
        Some(table)
    }

    /// What a table makes when it is first asked for it may have made it larger.
    pub(in crate::files) fn recount_memory(&self, fid: Fid, table: Arc<PatternTable>) {
        let made = table.made();
        let known = self.0.lock().tables.peek(&fid).map(|kept| kept.2);
        if known != Some(made) {
            self.put(fid, table);
        }
    }

    pub(in crate::files) fn put(&self, fid: Fid, table: Arc<PatternTable>) {
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
    pub(in crate::files) fn forget(&self, fid: Fid) {
        let mut kept = self.0.lock();
        if let Some((_, size, _)) = kept.tables.pop(&fid) {
            kept.memory -= size;
        }
    }

    /// Bytes of memory held.
    pub(in crate::files) fn memory(&self) -> usize {
        self.0.lock().memory
    }

    pub(in crate::files) fn set_budget(&self, bytes: usize) {
        self.0.lock().budget = bytes;
    }
}
