//! The state of the engine at one moment, immutable (a *version* in LevelDB's words).
use super::super::memtable::MemTable;
use super::super::record::Key;
use super::super::scan::{Scan, Source};
use super::super::sorted::SortedRun;
use super::super::table::Table;
use super::super::tree::Tree;
use super::Settings;
use forebay_storage::Result;
use std::sync::Arc;

/// A MemTable that takes no more records.
#[derive(Clone)]
pub struct SealedMemTable {
    /// Its records.
    pub table: MemTable,
    /// Its last batch.
    pub last: u64,
}

/// Blocks in the compression buffer.
#[derive(Clone)]
pub struct BufferedTree {
    /// The blocks.
    pub tree: Arc<Tree>,
    /// Their last batch.
    pub last: u64,
}

/// A sorted run on disk, and its place among the others.
#[derive(Clone)]
pub struct AgedRun {
    /// Unique among the runs, and greater than that of every older run.
    pub age: u64,
    /// The table files.
    pub run: SortedRun,
}

/// See the head of this file. All lists: oldest first.
#[derive(Clone, Default)]
pub struct View {
    pub(super) active: MemTable,
    /// The last batch in `active`.
    pub(super) last: u64,
    pub(super) sealed: Vec<SealedMemTable>,
    pub(super) trees: Vec<BufferedTree>,
    pub(super) disk: Vec<AgedRun>,
}

impl View {
    /// The MemTables, oldest first.
    pub(super) fn memtables(&self) -> impl DoubleEndedIterator<Item = &MemTable> {
        self.sealed.iter().map(|s| &s.table).chain([&self.active])
    }

    /// Merges runs of MemTables until they are few.
    pub(super) fn compact(&mut self) {
        let sealed = self.sealed.iter_mut().map(|s| &mut s.table);
        sealed.chain([&mut self.active]).for_each(MemTable::compact);
    }

    /// All that holds records, newest first.
    pub fn sources(&self) -> impl Iterator<Item = Source> {
        let runs = self
            .memtables()
            .rev()
            .flat_map(|t| t.runs.iter().rev().cloned());
        let trees = self
            .trees
            .iter()
            .rev()
            .map(|g| Source::Tree(g.tree.clone()));
        let disk = self.disk.iter().rev().map(|a| Source::Disk(a.run.clone()));
        runs.map(Source::Run).chain(trees).chain(disk)
    }

    /// The records from `from` on.
    ///
    /// # Errors
    /// Those of reading table files.
    pub fn scan(&self, from: Key) -> Result<Scan> {
        Scan::new(self.sources(), from)
    }

    /// Memory of MemTables, bytes.
    pub fn memtable_bytes(&self) -> usize {
        let sealed: usize = self.sealed.iter().map(|s| s.table.bytes()).sum();
        self.active.bytes() + sealed
    }

    /// Memory of the compression buffer, bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.trees.iter().map(|g| g.tree.bytes()).sum()
    }

    /// Whether the compression buffer is to be brought to disk. Half of it is left for what is compressed meanwhile: to merge and write
    /// a record takes about as long as to put one, and the trees being written stay until all of them are.
    pub(super) fn is_buffer_full(&self, settings: &Settings) -> bool {
        self.buffer_bytes() >= settings.buffer_bytes / 2
    }

    /// Whether the compression buffer has room for some of another MemTable.
    pub(super) fn has_room(&self, settings: &Settings) -> bool {
        self.buffer_bytes() < settings.buffer_bytes
    }

    /// All table files.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.disk.iter().flat_map(|aged| aged.run.tables.iter())
    }
}
