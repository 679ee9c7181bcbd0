//! Gets, snapshots and scans.
use super::levels::LEVELS;
use super::merge::{MemoryRun, Merge, Source, TableRun};
use super::state::{RowState, count};
use super::table::filter;
use super::view::View;
use crate::{Error, Keyspace, Result};
use bytes::Bytes;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An unchanging view of the store. Costs nothing to make; while it lives, it keeps the MemTables of its time in
/// memory and the table files of its time on disk. Use it while its store is open.
pub struct Snapshot {
    view: Arc<View>,
    sequence: u64,
    dir: PathBuf,
}

impl RowState {
    /// See [`Store::get`](crate::Store::get).
    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        count(&self.counters.gets, 1);
        let view = self.view();
        let sequence = self.host.visible.load(Ordering::Acquire);
        get(&view, sequence, self.host.dir(), keyspace, key)
    }

    /// See [`Store::snapshot_at`](crate::Store::snapshot_at).
    pub fn snapshot_at(&self, batch: u64) -> Snapshot {
        // The order matters: see the invariants of the engine.
        let view = self.view();
        let sequence = self.host.visible.load(Ordering::Acquire).min(batch);
        Snapshot {
            view,
            sequence,
            dir: self.host.dir().to_path_buf(),
        }
    }
}

fn get(
    view: &View,
    sequence: u64,
    dir: &Path,
    keyspace: Keyspace,
    key: &[u8],
) -> Result<Option<Bytes>> {
    keyspace.check(dir)?;
    for table in view.memtables() {
        if let Some(found) = table.get(keyspace, key, sequence) {
            return Ok(found);
        }
    }
    if view.levels.is_empty() {
        return Ok(None);
    }
    let key = &table_key(keyspace, key)[..];
    let hash = filter::hash(key);
    for table in view.levels.level(0) {
        if table.meta().overlaps(key, key)
            && let Some(found) = table.get(key, hash)?
        {
            return Ok(found);
        }
    }
    for level in 1..LEVELS {
        let tables = view.levels.level(level);
        let i = tables.partition_point(|t| &t.meta().last[..] < key);
        if let Some(table) = tables.get(i).filter(|t| t.meta().first <= key)
            && let Some(found) = table.get(key, hash)?
        {
            return Ok(found);
        }
    }
    Ok(None)
}

fn table_key(keyspace: Keyspace, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 2);
    out.push(keyspace.0);
    out.extend_from_slice(key);
    out
}

impl Snapshot {
    /// The value of `key` at the snapshot's time.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the block that holds it is damaged, or [`Error::Io`].
    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        get(&self.view, self.sequence, &self.dir, keyspace, key)
    }

    /// All entries of `keyspace` inside the bounds at the snapshot's time, read as the scan goes.
    pub fn scan(&self, keyspace: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Scan {
        let (merge, error) = match self.merge(keyspace, from, to) {
            Ok(merge) => (merge, None),
            Err(e) => (Merge::new(Vec::new()), Some(e)),
        };
        Scan {
            merge,
            error,
            to: to.map(Bytes::copy_from_slice),
        }
    }

    fn merge(&self, keyspace: Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Merge> {
        keyspace.check(&self.dir)?;
        let mut sources: Vec<Source> = (self.view.memtables())
            .map(|t| Source::Memory(MemoryRun::new(t.clone(), keyspace, from, self.sequence)))
            .collect();
        let first = match from {
            Bound::Included(key) => table_key(keyspace, key),
            Bound::Unbounded => vec![keyspace.0],
            // The smallest key after `key`.
            Bound::Excluded(key) => {
                let mut first = table_key(keyspace, key);
                first.push(0);
                first
            }
        };
        let last = match to {
            Bound::Included(key) | Bound::Excluded(key) => table_key(keyspace, key),
            Bound::Unbounded => vec![keyspace.0 + 1],
        };
        if first > last {
            return Ok(Merge::new(Vec::new()));
        }
        let levels = &self.view.levels;
        for table in levels
            .level(0)
            .iter()
            .filter(|t| t.meta().overlaps(&first, &last))
        {
            sources.push(Source::Tables(TableRun::scan(vec![table.clone()], &first)));
        }
        for level in 1..LEVELS {
            let tables = levels.level(level);
            let start = tables.partition_point(|t| t.meta().last < first);
            let row: Vec<_> = tables[start..]
                .iter()
                .take_while(|t| t.meta().first <= last)
                .cloned()
                .collect();
            if !row.is_empty() {
                sources.push(Source::Tables(TableRun::scan(row, &first)));
            }
        }
        Ok(Merge::new(sources))
    }
}

/// Entries in ascending key order, read as the iteration goes. An error is the last item, unless the store is salvaged: then the scan goes on
/// after what cannot be read.
pub struct Scan {
    merge: Merge,
    error: Option<Error>,
    to: Bound<Bytes>,
}

impl Iterator for Scan {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(e) = self.error.take() {
            return Some(Err(e));
        }
        loop {
            let next = self.merge.next()?;
            let key = match &next {
                Ok((_, (key, _))) | Err((key, _)) => key,
            };
            let inside = match &self.to {
                Bound::Included(to) => *key <= *to,
                Bound::Excluded(to) => *key < *to,
                Bound::Unbounded => true,
            };
            if !inside {
                self.merge = Merge::new(Vec::new());
                return None;
            }
            match next {
                Err((_, error)) => return Some(Err(error)),
                Ok((_, (key, Some(value)))) => return Some(Ok((key, value))),
                Ok((_, (_, None))) => {}
            }
        }
    }
}
