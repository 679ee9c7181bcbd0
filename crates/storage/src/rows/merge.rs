//! The sources of rows that scans and compactions merge: one keyspace of a MemTable, or tables that do not overlap.
//!
//! Sources are read lazily: one block (or a few entries) of each is in memory.
use super::block::Block;
use super::memtable::MemTable;
use super::table::Table;
use crate::{Error, Keyspace, NewestFirst, Result, SortedCursor};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// Most bytes read ahead of a scan at once.
const READ_AHEAD: u64 = 64 << 10;
/// Most entries copied from a MemTable at once.
const COPY_AHEAD: usize = 256;

/// Entries of one MemTable's keyspace as of a sequence, a few copied at a time.
pub struct MemoryRun {
    table: Arc<MemTable>,
    keyspace: Keyspace,
    sequence: u64,
    copied: VecDeque<RowEntry>,
    more: bool,
    limit: usize,
}

impl MemoryRun {
    /// From `from` on.
    pub fn new(
        table: Arc<MemTable>,
        keyspace: Keyspace,
        from: Bound<&[u8]>,
        sequence: u64,
    ) -> MemoryRun {
        let (mut copied, limit) = (VecDeque::new(), 16);
        let more = table.copy_from(keyspace, from, sequence, limit, &mut copied);
        MemoryRun {
            table,
            keyspace,
            sequence,
            copied,
            more,
            limit,
        }
    }

    fn advance(&mut self) {
        let Some((key, _)) = self.copied.pop_front() else {
            return;
        };
        if self.copied.is_empty() && self.more {
            self.limit = (self.limit * 2).min(COPY_AHEAD);
            self.more = self.table.copy_from(
                self.keyspace,
                Bound::Excluded(&key),
                self.sequence,
                self.limit,
                &mut self.copied,
            );
        }
    }
}

/// The keys that a damaged block or table may have held.
struct LostKeys {
    first: Bytes,
    last: Bytes,
    table: Arc<Table>,
}

/// An unreadable block or table, at which a cursor stands.
struct UnreadableRange {
    lost: LostKeys,
    error: Error,
    /// Where to go on: a table, and the number of a block in it.
    behind: (usize, usize),
}

/// Entries of tables that do not overlap, in key order: one table, or one level.
pub struct TableRun {
    tables: Vec<Arc<Table>>,
    table: usize,
    next_block: usize,
    block: Option<Arc<Block>>,
    at: usize,
    ahead: VecDeque<Arc<Block>>,
    ahead_bytes: u64,
    /// Leading bytes that are cut off keys: in scans the keyspace byte.
    skip: usize,
    /// The keyspace of a scan.
    keyspace: u8,
    /// Whether blocks are read through the cache: by scans, not by compactions.
    cached: bool,
    /// The unreadable range at which the cursor stands.
    failed: Option<Box<UnreadableRange>>,
    /// Unreadable ranges that were skipped.
    lost: Vec<LostKeys>,
}

impl TableRun {
    /// For scans: entries from `from` (keyspace byte first) to the end of the keyspace, with keys without that byte.
    pub fn scan(tables: Vec<Arc<Table>>, from: &[u8]) -> TableRun {
        let mut run = TableRun::empty(tables);
        run.ahead_bytes = 4096;
        run.skip = 1;
        run.keyspace = from.first().copied().unwrap_or(0);
        run.cached = true;
        run.seek(from);
        run.end_with_keyspace();
        run
    }

    /// For compactions: entries from `from` on, with the keyspace byte in keys, read without the cache.
    pub fn starting(tables: Vec<Arc<Table>>, from: &[u8]) -> TableRun {
        let mut run = TableRun::empty(tables);
        run.seek(from);
        run
    }

    fn empty(tables: Vec<Arc<Table>>) -> TableRun {
        TableRun {
            tables,
            table: 0,
            next_block: 0,
            block: None,
            at: 0,
            ahead: VecDeque::new(),
            ahead_bytes: READ_AHEAD,
            skip: 0,
            keyspace: 0,
            cached: false,
            failed: None,
            lost: Vec::new(),
        }
    }

    fn seek(&mut self, from: &[u8]) {
        self.table = self.tables.partition_point(|t| &t.meta().last[..] < from);
        if let Some(t) = self.tables.get(self.table) {
            match t.find(from) {
                Ok(block) => {
                    self.next_block = block;
                    self.load();
                }
                // The first block is not known, so the whole table counts as unreadable, even if a retry could read it.
                Err(error) => self.set_failed(None, error),
            }
            self.at = self.block.as_ref().map_or(0, |b| b.lower_bound(from));
            if let Some(lost) = self.failed.as_mut().map(|failed| &mut failed.lost) {
                lost.first = lost.first.clone().max(Bytes::copy_from_slice(from));
            }
            self.skip_finished_blocks();
        }
    }

    /// Ends a scan when the next key is of another keyspace.
    fn end_with_keyspace(&mut self) {
        let key = self.key_with_keyspace().filter(|_| self.skip == 1);
        if key.is_some_and(|key| key.first() != Some(&self.keyspace)) {
            self.block = None;
            self.failed = None;
            self.table = self.tables.len();
        }
    }

    /// The current key, or the first of an unreadable range.
    fn key_with_keyspace(&self) -> Option<&[u8]> {
        match (&self.failed, &self.block) {
            (Some(failed), _) => Some(&failed.lost.first),
            (None, block) => block.as_ref().map(|b| b.key(self.at)),
        }
    }

    fn key(&self) -> Option<&[u8]> {
        self.key_with_keyspace().map(|key| &key[self.skip..])
    }

    /// Makes the next block current: one that was read ahead, a cached one, or one read now. Afterwards there is no block at the
    /// end, or if it cannot be read.
    fn load(&mut self) {
        self.at = 0;
        self.block = None;
        if let Err(error) = self.try_load() {
            let table = self.tables.get(self.table);
            let block = table.and_then(|table| table.block_range(self.next_block));
            self.set_failed(block, error);
        }
    }

    /// Notes that the next block, with these first and last keys, cannot be read; `None`: the whole table cannot.
    fn set_failed(&mut self, block: Option<(Bytes, Bytes)>, error: Error) {
        let Some(table) = self.tables.get(self.table) else {
            return;
        };
        let behind = match block {
            Some(_) => (self.table, self.next_block + 1),
            None => (self.table + 1, 0),
        };
        let (first, last) = block.unwrap_or_else(|| {
            let meta = table.meta();
            (meta.first.clone(), meta.last.clone())
        });
        // A table's range may begin before the keyspace of the scan.
        let least = match self.skip {
            0 => Bytes::new(),
            _ => Bytes::copy_from_slice(&[self.keyspace]),
        };
        let lost = LostKeys {
            first: if last < least {
                first
            } else {
                first.max(least)
            },
            last,
            table: table.clone(),
        };
        self.failed = Some(Box::new(UnreadableRange {
            lost,
            error,
            behind,
        }));
    }

    fn try_load(&mut self) -> Result<()> {
        while let Some(table) = self.tables.get(self.table) {
            if let Some(block) = self.ahead.pop_front() {
                self.next_block += 1;
                self.block = Some(block);
                return Ok(());
            }
            if self.next_block >= table.blocks()? {
                self.table += 1;
                self.next_block = 0;
                continue;
            }
            if self.cached
                && let Some(block) = table.cached(self.next_block)
            {
                self.next_block += 1;
                self.block = Some(block);
                return Ok(());
            }
            let count = table.run(self.next_block, self.ahead_bytes)?;
            self.ahead_bytes = (self.ahead_bytes * 2).min(READ_AHEAD);
            let blocks = match table.read_blocks(self.next_block, count) {
                // A damaged block must fail only readers that reach it: so read the first block alone.
                Err(_) if count > 1 => table.read_blocks(self.next_block, 1)?,
                read => read?,
            };
            for (i, block) in blocks.into_iter().enumerate() {
                let block = Arc::new(block);
                if self.cached {
                    table.keep(self.next_block + i, &block);
                }
                self.ahead.push_back(block);
            }
        }
        Ok(())
    }

    /// Moves to the next block while the current one is used up.
    fn skip_finished_blocks(&mut self) {
        while self.block.as_ref().is_some_and(|b| self.at >= b.len()) {
            self.load();
        }
    }

    fn advance(&mut self) {
        if self.failed.is_some() || self.block.is_none() {
            return;
        }
        self.at += 1;
        self.skip_finished_blocks();
        self.end_with_keyspace();
    }

    /// Takes the error of an unreadable range. In a store that is salvaged, the cursor moves on after the range.
    fn fail(&mut self) -> Option<(Bytes, Error)> {
        let UnreadableRange {
            lost,
            error,
            behind,
        } = *self.failed.take()?;
        let key = lost.first.slice(self.skip..);
        if lost.table.shared.salvaged {
            (self.table, self.next_block) = behind;
            self.lost.push(lost);
            self.load();
            self.skip_finished_blocks();
            self.end_with_keyspace();
        }
        Some((key, error))
    }

    /// Whether a skipped range of this source may have held an entry of this key. It would hide those of older sources.
    fn may_hide(&self, key: &[u8]) -> bool {
        if self.lost.is_empty() {
            return false;
        }
        let mut whole = Vec::with_capacity(key.len() + 1);
        whole.extend((self.skip == 1).then_some(self.keyspace));
        whole.extend_from_slice(key);
        let inside = |lost: &&LostKeys| lost.first <= whole && whole <= lost.last;
        let mut lost = self.lost.iter().filter(inside);
        lost.any(|lost| lost.table.may_contain(&whole))
    }
}

/// A key and its value; `None` for a delete.
pub type RowEntry = (Bytes, Option<Bytes>);

/// One sorted source.
pub enum Source {
    /// A MemTable.
    Memory(MemoryRun),
    /// Tables in key order.
    Tables(TableRun),
}

/// Rows of several sources, as [`NewestFirst`] yields them.
pub type Merge = NewestFirst<Source>;

impl SortedCursor for Source {
    type Key<'a> = &'a [u8];
    type Entry = RowEntry;
    /// The first key that cannot be read, and why.
    type Failure = (Bytes, Error);

    fn key(&self) -> Option<&[u8]> {
        match self {
            Source::Memory(m) => m.copied.front().map(|(k, _)| &k[..]),
            Source::Tables(t) => t.key(),
        }
    }

    fn entry(&self) -> Option<RowEntry> {
        match self {
            Source::Memory(m) => m.copied.front().cloned(),
            Source::Tables(t) => t
                .block
                .as_ref()
                .map(|b| (b.shared_key(t.at, t.skip), b.shared_value(t.at))),
        }
    }

    fn key_of<'a>(entry: &'a RowEntry) -> &'a [u8]
    where
        Self: 'a,
    {
        &entry.0
    }

    fn advance(&mut self) -> Result<(), (Bytes, Error)> {
        match self {
            Source::Memory(m) => m.advance(),
            Source::Tables(t) => t.advance(),
        }
        Ok(())
    }

    fn fail(&mut self) -> Option<(Bytes, Error)> {
        match self {
            Source::Memory(_) => None,
            Source::Tables(t) => t.fail(),
        }
    }

    fn has_gaps(&self) -> bool {
        matches!(self, Source::Tables(t) if !t.lost.is_empty())
    }

    fn may_hide(&self, key: &[u8]) -> bool {
        match self {
            Source::Memory(_) => false,
            Source::Tables(t) => t.may_hide(key),
        }
    }
}
