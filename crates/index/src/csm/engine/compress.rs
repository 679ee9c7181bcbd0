//! From sealed MemTables to the compression buffer, and from there to disk.
use super::super::block::{Block, BlockSplitter};
use super::super::merge::{Blocks, Merge};
use super::super::scan::damaged_memory;
use super::super::sorted::SortedRun;
use super::super::stats::count;
use super::super::table::Table;
use super::super::tree::Tree;
use super::background::seal;
use super::inline_compression::InlineCompression;
use super::output::{Failure, TableOutput};
use super::view::{AgedRun, BufferedTree};
use super::{EngineState, files};
use forebay_storage::{EngineEdit, Error, Result};
use std::sync::Arc;

/// Trees of similar size that are merged at once.
const MERGED_TREES: usize = 16;

/// The blocks of a tree, as a sequence.
pub struct TreeBlocks {
    tree: Arc<Tree>,
    next: usize,
}

impl TreeBlocks {
    fn of(grown: &BufferedTree) -> TreeBlocks {
        TreeBlocks {
            tree: grown.tree.clone(),
            next: 0,
        }
    }
}

impl Blocks for TreeBlocks {
    fn next(&mut self) -> Result<Option<Block>> {
        let leaf = self.tree.get(self.next);
        self.next += usize::from(leaf.is_some());
        Ok(leaf.map(|leaf| leaf.block()))
    }

    fn damaged(&self, _block: &Block) -> Error {
        damaged_memory()
    }
}

/// Where the newest trees begin that are many, and none of them much larger than the last.
fn many(trees: &[BufferedTree]) -> Option<usize> {
    let from = trees.len().checked_sub(MERGED_TREES)?;
    let newest = trees.last()?.tree.records;
    (trees[from].tree.records < newest * MERGED_TREES as u64 / 2).then_some(from)
}

/// Where the newest trees begin of which none is twice as large as all after it together.
fn two_or_more(trees: &[BufferedTree]) -> Option<usize> {
    let (newest, older) = trees.split_last()?;
    let mut all = newest.tree.records;
    let mut from = older.len();
    for grown in older.iter().rev() {
        if grown.tree.records >= 2 * all {
            break;
        }
        all += grown.tree.records;
        from -= 1;
    }
    (from < older.len()).then_some(from)
}

impl EngineState {
    /// Compresses the oldest sealed MemTable. `false` if none is sealed.
    pub fn compress_oldest(&self, splitter: &mut BlockSplitter) -> Result<bool> {
        let Some(sealed) = self.view.read().sealed.first().cloned() else {
            return Ok(false);
        };
        let run = sealed.table.into_run();
        let tree = Tree::of(&run, splitter);
        count(&self.shared.counters.blocks_made, tree.len() as u64);
        count(&self.shared.counters.sealed, 1);
        let mut view = self.view.write();
        let new = Arc::make_mut(&mut view);
        new.sealed.remove(0);
        new.trees.push(BufferedTree {
            tree: Arc::new(tree),
            last: sealed.last,
        });
        self.set_extra_budget(new);
        drop(view);
        self.shared.cache.trim();
        Ok(true)
    }

    /// Merges the newest trees, if they are many of similar size; if the thread is idle, two are enough, for readers look into each.
    /// `false` if that is not so, or there is no room for the result beside them.
    pub fn merge_trees(&self, idle: bool, splitter: &mut BlockSplitter) -> Result<bool> {
        let view = self.view.read().clone();
        let from = if idle {
            two_or_more(&view.trees)
        } else {
            many(&view.trees)
        };
        let Some(from) = from else { return Ok(false) };
        let trees = &view.trees[from..];
        let bytes: usize = trees.iter().map(|grown| grown.tree.bytes()).sum();
        if view.buffer_bytes() + bytes > self.settings.buffer_bytes {
            return Ok(false);
        }
        let mut merge = Merge::new(trees.iter().rev().map(TreeBlocks::of), false, splitter)?;
        let mut urgent = InlineCompression::new(self);
        let mut tree = Tree::default();
        while let Some(block) = merge.block()? {
            tree.push(&block);
            urgent.compress_next()?;
        }
        tree.trim();
        merge.counts.add_to(&self.shared.counters);
        let grown = BufferedTree {
            tree: Arc::new(tree),
            last: trees.last().map_or(0, |newest| newest.last),
        };
        let end = view.trees.len();
        let mut view = self.view.write();
        // Only this thread takes trees away, and those added meanwhile stand later.
        let new = Arc::make_mut(&mut view);
        new.trees.splice(from..end, [grown]);
        self.set_extra_budget(new);
        drop(view);
        self.shared.cache.trim();
        Ok(true)
    }

    /// Brings everything in memory to disk.
    pub fn flush_all(&self, splitter: &mut BlockSplitter) -> Result<()> {
        self.host.health.check_writable()?;
        seal(Arc::make_mut(&mut self.view.write()));
        while !self.view.read().sealed.is_empty() {
            if !self.view.read().has_room(&self.settings) {
                self.flush_buffer(splitter)?;
            }
            self.compress_oldest(splitter)?;
        }
        self.flush_buffer(splitter)
    }

    /// Brings the compression buffer to disk, as one sorted run.
    pub fn flush_buffer(&self, splitter: &mut BlockSplitter) -> Result<()> {
        let view = self.view.read().clone();
        let Some(newest) = view.trees.last() else {
            return Ok(());
        };
        let age = view.disk.last().map_or(0, |aged| aged.age) + 1;
        // With nothing older, deletes have nothing to hide.
        let bottom = view.disk.is_empty();
        let trees = view.trees.iter().rev().map(TreeBlocks::of);
        let mut merge = Merge::new(trees, bottom, splitter)?;
        let mut output = TableOutput::new(self, InlineCompression::new(self), age, Vec::new());
        let written = output.take(&mut merge);
        merge.counts.add_to(&self.shared.counters);
        let tables = output.end(written).map_err(Failure::error)?;
        let edit = EngineEdit {
            add: files::table_records(age, tables.iter())?,
            flushed: Some(newest.last),
            ..EngineEdit::default()
        };
        self.edit(edit, &tables)?;
        let flushed = view.trees.len();
        let mut view = self.view.write();
        let new = Arc::make_mut(&mut view);
        new.trees.drain(..flushed);
        if !tables.is_empty() {
            let run = SortedRun::new(tables);
            new.disk.push(AgedRun { age, run });
        }
        self.set_extra_budget(new);
        drop(view);
        count(&self.shared.counters.flushes, 1);
        Ok(())
    }

    /// Names tables in the manifest; if that finds no room or no descriptor, the new ones are removed.
    pub fn edit(&self, edit: EngineEdit, new: &[Arc<Table>]) -> Result<()> {
        self.host.edit(edit).inspect_err(|e| {
            if e.is_transient() {
                new.iter().for_each(|table| table.make_obsolete());
            }
        })
    }
}
