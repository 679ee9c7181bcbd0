//! A forward cursor over one source of a batched lookup: a run of records, or the blocks that are planned for it.
//!
//! Blocks are decoded when a request needs them, each once as long as requests ascend.
use super::lazy_block::LazyBlock;
use crate::csm::record::{Key, Record};
use crate::csm::scan::damaged_memory;
use crate::csm::search::from_hint;
use crate::csm::table::Table;
use forebay_storage::{Error, Result};

/// Where a block came from: for the error if it is none.
#[derive(Clone, Copy)]
pub enum BlockOrigin<'a> {
    /// The compression buffer.
    Memory,
    /// A table's block of this number.
    Table(&'a Table, usize),
}

/// A planned block.
pub struct PlannedBlock<'a> {
    /// Its least key.
    pub first: Key,
    /// Its greatest key.
    pub last: Key,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// How many requests are for it, about.
    pub requests: u32,
    /// Where it came from.
    pub home: BlockOrigin<'a>,
}

impl PlannedBlock<'_> {
    fn damaged(&self) -> Error {
        match self.home {
            BlockOrigin::Memory => damaged_memory(),
            BlockOrigin::Table(table, block) => table.no_block(block),
        }
    }
}

/// See the head of this file.
pub enum SourceCursor<'a> {
    /// Records, and the place of the last seek.
    Run {
        /// All of them.
        records: &'a [Record],
        /// The first at or above the key sought.
        at: usize,
    },
    /// Blocks.
    Blocks(Box<BlockCursor<'a>>),
}

/// Blocks, and the place of the last seek.
pub struct BlockCursor<'a> {
    steps: Vec<PlannedBlock<'a>>,
    /// The block that is open; `usize::MAX` for none.
    open: usize,
    opened: LazyBlock<'a>,
    /// The first record at or above the key sought: its block and row. No row: the first, and the block need not be open.
    at: (usize, usize),
    /// Rows between the last two keys sought.
    stride: usize,
    /// The last block that starts at or before the key sought.
    near: usize,
    /// The key of the record before that, if there is one.
    before: Option<Key>,
}

impl<'a> SourceCursor<'a> {
    /// Through these records.
    pub fn of_run(records: &'a [Record]) -> SourceCursor<'a> {
        SourceCursor::Run { records, at: 0 }
    }

    /// Through these blocks.
    pub fn of_blocks(steps: Vec<PlannedBlock<'a>>) -> SourceCursor<'a> {
        SourceCursor::Blocks(Box::new(BlockCursor {
            steps,
            open: usize::MAX,
            opened: LazyBlock::default(),
            at: (0, 0),
            stride: 1,
            near: 0,
            before: None,
        }))
    }

    /// Goes to the first record at or above `key`, and appends those from there to `end`, excluded.
    pub fn gather(&mut self, key: Key, end: Key, out: &mut Vec<Record>) -> Result<()> {
        match self {
            SourceCursor::Run { records, at } => {
                *at = from_hint(*at, records.len(), |i| records[i].key < key);
                let within = records[*at..].iter().take_while(|r| r.key < end);
                out.extend(within);
                Ok(())
            }
            SourceCursor::Blocks(cursor) => {
                if cursor.gather_expected(key, end, out)? {
                    return Ok(());
                }
                cursor.seek(key)?;
                cursor.collect(end, out)
            }
        }
    }

    /// The key of the record before the place sought.
    pub fn before(&self) -> Option<Key> {
        match self {
            SourceCursor::Run { records, at } => {
                at.checked_sub(1).map(|before| records[before].key)
            }
            SourceCursor::Blocks(cursor) => cursor.before,
        }
    }

    /// The record before the place sought, which is there.
    pub fn take_before(&mut self) -> Result<Record> {
        match self {
            SourceCursor::Run { records, at } => Ok(records[*at - 1]),
            SourceCursor::Blocks(cursor) => cursor.take_before(),
        }
    }
}

impl BlockCursor<'_> {
    fn open(&mut self, block: usize) -> Result<()> {
        if self.open == block {
            return Ok(());
        }
        self.open = usize::MAX;
        let step = &self.steps[block];
        let wanted = step.requests as usize;
        let opened = self.opened.open(step.bytes, step.first, step.last, wanted);
        opened.ok_or_else(|| step.damaged())?;
        self.open = block;
        Ok(())
    }

    /// As a seek and a collect, if the request goes on in the steps of those before it, in the open block, and is for one record at
    /// most; else does nothing and says so.
    #[inline]
    fn gather_expected(&mut self, key: Key, end: Key, out: &mut Vec<Record>) -> Result<bool> {
        let (block, before) = self.at;
        let row = before + self.stride;
        if self.open != block || row == 0 || row + 1 >= self.opened.rows() {
            return Ok(false);
        }
        let [last, here, next] = [row - 1, row, row + 1].map(|row| self.opened.key(row));
        if last >= key || here < key || next < end {
            return Ok(false);
        }
        (self.at, self.near, self.before) = ((block, row), block, Some(last));
        if here < end {
            let record = self.opened.record(row, here);
            out.push(record.ok_or_else(|| self.steps[block].damaged())?);
        }
        Ok(true)
    }

    fn seek(&mut self, key: Key) -> Result<()> {
        let behind = from_hint(self.near + 1, self.steps.len(), |i| {
            self.steps[i].first <= key
        });
        let Some(near) = behind.checked_sub(1) else {
            (self.at, self.before, self.near) = ((0, 0), None, 0);
            return Ok(());
        };
        self.near = near;
        if self.steps[near].last < key {
            self.at = (near + 1, 0);
            self.before = Some(self.steps[near].last);
            return Ok(());
        }
        // Requests mostly go on in the steps that they have made.
        let (block, before) = self.at;
        let hint = if block == near {
            before + self.stride
        } else if block + 1 == near && self.open == block {
            (before + self.stride).saturating_sub(self.opened.rows())
        } else {
            0
        };
        self.open(near)?;
        let row = self.opened.at_or_above(key, hint);
        if block == near {
            self.stride = row.saturating_sub(before);
        }
        self.at = (near, row);
        self.before = match row.checked_sub(1) {
            Some(before) => Some(self.opened.key(before)),
            None => near.checked_sub(1).map(|before| self.steps[before].last),
        };
        Ok(())
    }

    fn collect(&mut self, end: Key, out: &mut Vec<Record>) -> Result<()> {
        let (mut block, mut row) = self.at;
        while self.steps.get(block).is_some_and(|step| step.first < end) {
            self.open(block)?;
            let step = &self.steps[block];
            let rows = if step.last < end {
                self.opened.rows()
            } else {
                self.opened.at_or_above(end, row + 1)
            };
            let read = self.opened.records(row..rows.max(row), out);
            read.ok_or_else(|| step.damaged())?;
            if rows < self.opened.rows() {
                break;
            }
            (block, row) = (block + 1, 0);
        }
        Ok(())
    }

    fn take_before(&mut self) -> Result<Record> {
        let (mut block, mut row) = self.at;
        if row == 0 {
            block -= 1;
            self.open(block)?;
            row = self.opened.rows();
        } else {
            self.open(block)?;
        }
        let mut out = Vec::with_capacity(1);
        let read = self.opened.records(row - 1..row, &mut out);
        let read = read.and_then(|()| out.pop());
        read.ok_or_else(|| self.steps[block].damaged())
    }
}
