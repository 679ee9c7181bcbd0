//! A sorted run on disk: table files whose key ranges ascend and do not overlap.
use super::block::Block;
use super::merge::Blocks;
use super::record::Key;
use super::table::Table;
use forebay_storage::{Error, Result};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// Blocks that a reader of the whole run reads at once.
const BLOCKS_AHEAD: usize = 64;

/// See the head of this file.
#[derive(Clone, Default)]
pub struct SortedRun {
    /// Its tables, in order.
    pub tables: Arc<[Arc<Table>]>,
    /// Their least keys.
    pub firsts: Arc<[Key]>,
}

impl SortedRun {
    /// Of these tables, in order.
    pub fn new(tables: Vec<Arc<Table>>) -> SortedRun {
        debug_assert!(
            tables.is_sorted_by(|a, b| a.meta().last < b.meta().first),
            "tables of a run do not overlap"
        );
        SortedRun {
            firsts: tables.iter().map(|t| t.meta().first).collect(),
            tables: tables.into(),
        }
    }

    /// The place of the first block whose last key is at or above `key`: its table and its number there.
    ///
    /// # Errors
    /// Those of reading a table's metadata region.
    pub fn find(&self, key: Key) -> Result<Option<(usize, usize)>> {
        let table = self.tables.partition_point(|t| t.meta().last < key);
        let Some(found) = self.tables.get(table) else {
            return Ok(None);
        };
        let block = found.places()?.ending_before(key);
        Ok(Some((table, block)))
    }

    /// Number of records, deletes included.
    pub fn records(&self) -> u64 {
        self.tables.iter().map(|t| t.meta().records).sum()
    }

    /// Size on disk, in bytes.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.meta().bytes).sum()
    }

    /// Reads the run from its first block on.
    pub fn blocks(&self) -> RunBlocks {
        RunBlocks {
            run: self.clone(),
            table: 0,
            block: 0,
            ahead: VecDeque::new(),
        }
    }
}

/// All blocks of a run, read ahead.
pub struct RunBlocks {
    run: SortedRun,
    table: usize,
    block: usize,
    ahead: VecDeque<Block>,
}

impl Blocks for RunBlocks {
    fn next(&mut self) -> Result<Option<Block>> {
        while self.ahead.is_empty() {
            let Some(table) = self.run.tables.get(self.table) else {
                return Ok(None);
            };
            let end = table.places()?.len().min(self.block + BLOCKS_AHEAD);
            if self.block == end {
                (self.table, self.block) = (self.table + 1, 0);
                continue;
            }
            self.ahead.extend(table.read(self.block..end)?);
            self.block = end;
        }
        Ok(self.ahead.pop_front())
    }

    /// For a block whose bytes have the right checksum.
    fn damaged(&self, block: &Block) -> Error {
        let holds = |t: &&Arc<Table>| t.meta().first <= block.first && block.last <= t.meta().last;
        match self.run.tables.iter().find(holds) {
            Some(table) => {
                let places = table.places().unwrap_or_default();
                table.no_block(places.ending_before(block.first))
            }
            None => Error::format(Path::new(""), "a block of no table; report this"),
        }
    }
}
