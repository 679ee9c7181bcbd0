//! Merging sorted sources into one: newer sources hide older ones key by key.
//!
//! Invariants: sources are given newest first; the merge yields each key once, in ascending order, from
//! the newest source that has it. Nothing is collected: memory is one block (or a few entries) per source.
use crate::block::Block;
use crate::memtable::MemTable;
use crate::table::Table;
use crate::{Keyspace, Result};
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
    copied: VecDeque<Found>,
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

/// Entries of tables that do not overlap, in key order: one table, or one level.
pub struct TableRun {
    tables: Vec<Arc<Table>>,
    table: usize,
    next_block: usize,
    block: Option<Arc<Block>>,
    at: usize,
    ahead: VecDeque<Arc<Block>>,
    ahead_bytes: u64,
    /// Leading key bytes not shown: the keyspace byte in scans.
    skip: usize,
    /// Scans fill the block cache, compactions do not.
    cached: bool,
}

impl TableRun {
    /// For scans: from `from` (keyspace byte first) on; shows keys without that byte, and ends with the keyspace.
    pub fn scan(tables: Vec<Arc<Table>>, from: &[u8]) -> Result<TableRun> {
        let table = tables.partition_point(|t| &t.meta().last[..] < from);
        let mut run = TableRun {
            tables,
            table,
            next_block: 0,
            block: None,
            at: 0,
            ahead: VecDeque::new(),
            ahead_bytes: 4096,
            skip: 1,
            cached: true,
        };
        if let Some(t) = run.tables.get(run.table) {
            run.next_block = t.find(from)?;
            run.load()?;
            run.at = run.block.as_ref().map_or(0, |b| b.lower_bound(from));
            run.settle()?;
            if run
                .block
                .as_ref()
                .is_some_and(|b| b.key(run.at).first() != from.first())
            {
                run.end();
            }
        }
        Ok(run)
    }

    /// For compactions: from `from` on, keys with their keyspace byte, past the cache.
    pub fn starting(tables: Vec<Arc<Table>>, from: &[u8]) -> Result<TableRun> {
        let table = tables.partition_point(|t| &t.meta().last[..] < from);
        let mut run = TableRun::empty(tables);
        run.table = table;
        if let Some(t) = run.tables.get(run.table) {
            run.next_block = t.find(from)?;
            run.load()?;
            run.at = run.block.as_ref().map_or(0, |b| b.lower_bound(from));
            run.settle()?;
        }
        Ok(run)
    }

    /// For compactions: everything, keys with their keyspace byte, past the cache.
    pub fn whole(tables: Vec<Arc<Table>>) -> Result<TableRun> {
        let mut run = TableRun::empty(tables);
        run.load()?;
        run.settle()?;
        Ok(run)
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
            cached: false,
        }
    }

    fn end(&mut self) {
        self.block = None;
        self.table = self.tables.len();
    }

    /// Makes the next block current: read ahead, cached, or read now. No block: the end.
    fn load(&mut self) -> Result<()> {
        self.at = 0;
        self.block = None;
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
                // A damaged block fails those who come to it, not those who stop before it.
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
    fn settle(&mut self) -> Result<()> {
        while self.block.as_ref().is_some_and(|b| self.at >= b.len()) {
            self.load()?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        let Some(block) = &self.block else {
            return Ok(());
        };
        let keyspace = block.key(self.at).first().copied();
        self.at += 1;
        self.settle()?;
        if self.skip == 1
            && self
                .block
                .as_ref()
                .is_some_and(|b| b.key(self.at).first().copied() != keyspace)
        {
            self.end();
        }
        Ok(())
    }
}

/// A key and its value; `None` for a delete.
pub type Found = (Bytes, Option<Bytes>);

/// One sorted source.
pub enum Source {
    /// A MemTable.
    Memory(MemoryRun),
    /// Tables in key order.
    Tables(TableRun),
}

impl Source {
    /// The current key; `None` at the end.
    fn key(&self) -> Option<&[u8]> {
        match self {
            Source::Memory(m) => m.copied.front().map(|(k, _)| &k[..]),
            Source::Tables(t) => t.block.as_ref().map(|b| &b.key(t.at)[t.skip..]),
        }
    }

    fn entry(&self) -> Option<Found> {
        match self {
            Source::Memory(m) => m.copied.front().cloned(),
            Source::Tables(t) => t
                .block
                .as_ref()
                .map(|b| (b.shared_key(t.at, t.skip), b.shared_value(t.at))),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Source::Memory(m) => {
                m.advance();
                Ok(())
            }
            Source::Tables(t) => t.advance(),
        }
    }
}

/// See the [module](self). Yields deletes too, as `None` values.
pub struct Merge {
    /// With their place in the given order.
    sources: Vec<(usize, Source)>,
}

impl Merge {
    /// Merges `sources`, newest first.
    pub fn new(sources: Vec<Source>) -> Merge {
        let sources = sources.into_iter().enumerate();
        Merge {
            sources: sources.filter(|(_, s)| s.key().is_some()).collect(),
        }
    }

    /// The next key with its newest value. After an error the merge is over.
    pub fn next(&mut self) -> Option<Result<Found>> {
        self.next_ranked().map(|r| r.map(|(_, entry)| entry))
    }

    /// As [`next`](Merge::next), with the place of the source that it came from.
    pub fn next_ranked(&mut self) -> Option<Result<(usize, Found)>> {
        let mut best: Option<(usize, &[u8])> = None;
        for (i, (_, source)) in self.sources.iter().enumerate() {
            if let Some(key) = source.key()
                && best.is_none_or(|(_, b)| key < b)
            {
                best = Some((i, key));
            }
        }
        let (index, _) = best?;
        let rank = self.sources[index].0;
        let entry = self.sources[index].1.entry()?;
        let mut over = false;
        for (_, source) in &mut self.sources[index..] {
            if source.key() == Some(&entry.0) {
                if let Err(e) = source.advance() {
                    self.sources.clear();
                    return Some(Err(e));
                }
                over |= source.key().is_none();
            }
        }
        if over {
            self.sources.retain(|(_, s)| s.key().is_some());
        }
        Some(Ok((rank, entry)))
    }
}
