//! Reading records in key order from all that holds some: MemTables, compressed trees, table files.
//!
//! Of the records with one key the newest counts: an extent is yielded, a delete yields nothing.
//!
//! Damage ends the scan before the first damaged record, see [`NewestFirst`].
use super::memtable::Run;
use super::record::{Key, Record};
use super::sorted::SortedRun;
use super::table::{BlockMap, Table, WantedBlock};
use super::tree::Tree;
use forebay_storage::{Error, NewestFirst, Result, SortedCursor};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

/// Blocks that a long scan reads at once.
const BLOCKS_AHEAD: usize = 32;

/// One thing that holds records.
#[derive(Clone)]
pub enum Source {
    /// A run of a MemTable.
    Run(Run),
    /// The blocks of a sealed one.
    Tree(Arc<Tree>),
    /// Table files.
    Disk(SortedRun),
}

/// A block or a table that cannot be read.
struct UnreadableRange {
    /// The keys that it may hold.
    range: RangeInclusive<Key>,
    /// Why.
    error: Error,
    /// What comes after it: a table, and the number of a block in it.
    behind: (usize, usize),
}

impl UnreadableRange {
    /// Nothing of this table can be read, which is the `number`th of its run.
    fn of_table(table: &Table, number: usize, error: Error) -> UnreadableRange {
        UnreadableRange {
            range: table.meta().first..=table.meta().last,
            error,
            behind: (number + 1, 0),
        }
    }
}

/// A place in a source.
struct Cursor {
    source: Source,
    /// The records of the block at hand (of trees and table files).
    opened: Vec<Record>,
    /// The next record: in `opened`, or in the run.
    at: usize,
    /// The block after the one at hand: its table (of table files) and its number.
    next: (usize, usize),
    /// Blocks to read at once: the longer a scan goes, the more.
    ahead: usize,
    /// Blocks that were read with the one at hand, the next one last.
    read: Vec<WantedBlock>,
    /// The places of that table's blocks.
    places: Arc<BlockMap>,
    /// What cannot be read, where the cursor stands.
    failed: Option<UnreadableRange>,
    /// The same, where it was gone past.
    lost: Vec<RangeInclusive<Key>>,
}

impl Cursor {
    /// At the first record at or above `from`.
    fn new(source: Source, from: Key) -> Result<Cursor> {
        let mut cursor = Cursor {
            source,
            opened: Vec::new(),
            at: 0,
            next: (0, 0),
            ahead: 1,
            read: Vec::new(),
            places: Arc::default(),
            failed: None,
            lost: Vec::new(),
        };
        match &cursor.source {
            Source::Run(run) => cursor.at = run.partition_point(|r| r.key < from),
            Source::Tree(tree) => {
                cursor.next.1 = tree.at_or_above(from);
                cursor.open()?;
                cursor.at = cursor.opened.partition_point(|r| r.key < from);
            }
            Source::Disk(run) => {
                match run.find(from) {
                    Ok(found) => {
                        // None: after the last table.
                        cursor.next = found.unwrap_or((run.tables.len(), 0));
                        cursor.read();
                    }
                    // Which of its blocks comes first is not known: the whole table fails, even if another try could read it.
                    Err(error) => {
                        let table = run.tables.partition_point(|t| t.meta().last < from);
                        let found = run.tables.get(table);
                        cursor.failed =
                            found.map(|found| UnreadableRange::of_table(found, table, error));
                    }
                }
                cursor.at = cursor.opened.partition_point(|r| r.key < from);
                if let Some(failed) = &mut cursor.failed {
                    failed.range = (*failed.range.start()).max(from)..=*failed.range.end();
                }
            }
        }
        Ok(cursor)
    }

    fn peek(&self) -> Option<&Record> {
        match &self.source {
            Source::Run(run) => run.get(self.at),
            _ => self.opened.get(self.at),
        }
    }

    /// What cannot be read here; goes on after it if the store is salvaged.
    #[cold]
    fn pass_failure(&mut self) -> Option<Error> {
        let failed = self.failed.take()?;
        let Source::Disk(run) = &self.source else {
            return Some(failed.error);
        };
        if run.tables.iter().any(|t| t.shared.salvaged) {
            self.lost.push(failed.range);
            self.next = failed.behind;
            self.read();
        }
        Some(failed.error)
    }

    /// The next block of a tree.
    fn open(&mut self) -> Result<()> {
        let Source::Tree(tree) = &self.source else {
            return Ok(());
        };
        self.opened.clear();
        self.at = 0;
        if let Some(leaf) = tree.get(self.next.1) {
            leaf.records(&mut self.opened).ok_or_else(damaged_memory)?;
            self.next.1 += 1;
        }
        Ok(())
    }

    /// The next block of table files.
    fn read(&mut self) {
        let mut read = self.try_read();
        if read.is_err() && self.ahead > 1 {
            // Whichever of those read ahead it is: this one may be whole.
            self.ahead = 1;
            read = self.try_read();
        }
        if let Err(error) = read {
            self.failed = self.failure(error);
        }
    }

    /// What cannot be read: the next block, or its whole table.
    fn failure(&self, error: Error) -> Option<UnreadableRange> {
        let Source::Disk(run) = &self.source else {
            return None;
        };
        let (table, block) = self.next;
        let found = run.tables.get(table)?;
        let place = found.places().ok().filter(|places| block < places.len());
        Some(match place.map(|places| places.at(block)) {
            Some(place) => UnreadableRange {
                range: place.first..=place.last,
                error,
                behind: (table, block + 1),
            },
            None => UnreadableRange::of_table(found, table, error),
        })
    }

    fn try_read(&mut self) -> Result<()> {
        let Source::Disk(run) = &self.source else {
            return Ok(());
        };
        self.opened.clear();
        self.at = 0;
        while let Some(found) = run.tables.get(self.next.0) {
            let block = self.next.1;
            if self.read.is_empty() {
                self.places = found.places()?;
                let blocks = block..self.places.len().min(block + self.ahead);
                let mut read: Vec<WantedBlock> =
                    blocks.map(|i| WantedBlock::one(i as u32)).collect();
                found.fetch(&mut read)?;
                read.reverse();
                self.read = read;
                self.ahead = (self.ahead * 2).min(BLOCKS_AHEAD);
            }
            if let Some(WantedBlock {
                block,
                raw: Some(raw),
                ..
            }) = self.read.pop()
            {
                let i = block as usize;
                let read = self.places.at(i).records_in(raw.bytes(), &mut self.opened);
                read.ok_or_else(|| found.no_block(i))?;
                self.next.1 = i + 1;
                return Ok(());
            }
            self.next = (self.next.0 + 1, 0);
        }
        Ok(())
    }
}

impl SortedCursor for Cursor {
    type Key<'a> = Key;
    type Entry = Record;
    type Failure = Error;

    fn key(&self) -> Option<Key> {
        match &self.failed {
            Some(failed) => Some(*failed.range.start()),
            None => self.peek().map(|r| r.key),
        }
    }

    fn entry(&self) -> Option<Record> {
        self.peek().copied()
    }

    fn key_of<'a>(record: &'a Record) -> Key
    where
        Self: 'a,
    {
        record.key
    }

    fn advance(&mut self) -> Result<()> {
        if self.failed.is_some() {
            return Ok(());
        }
        self.at += 1;
        if self.at < self.opened.len() {
            return Ok(());
        }
        match &self.source {
            Source::Run(_) => Ok(()),
            Source::Tree(_) => self.open(),
            Source::Disk(_) => {
                self.read();
                Ok(())
            }
        }
    }

    #[inline]
    fn fail(&mut self) -> Option<Error> {
        match self.failed {
            None => None,
            Some(_) => self.pass_failure(),
        }
    }

    fn has_gaps(&self) -> bool {
        !self.lost.is_empty()
    }

    fn may_hide(&self, key: Key) -> bool {
        self.lost.iter().any(|lost| lost.contains(&key))
    }
}

/// The error for a block in memory that does not decompress.
pub fn damaged_memory() -> Error {
    let reason = "a block in memory does not decompress: the memory of this machine is at fault, or the program; restart it, and report this if it comes back";
    Error::format(Path::new("compression buffer"), reason)
}

/// Records in key order; after an error it ends, unless the store is salvaged.
pub struct Scan(NewestFirst<Cursor>);

impl Scan {
    /// From `from` on; `sources` newest first.
    ///
    /// # Errors
    /// Those of reading table files.
    pub fn new(sources: impl IntoIterator<Item = Source>, from: Key) -> Result<Scan> {
        let cursors = sources.into_iter().map(|s| Cursor::new(s, from));
        let cursors: Vec<Cursor> = cursors.collect::<Result<_>>()?;
        Ok(Scan(NewestFirst::new(cursors)))
    }
}

impl Iterator for Scan {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        loop {
            match self.0.next()? {
                Ok((_, record)) if record.len == 0 => {}
                next => return Some(next.map(|(_, record)| record)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::BlockSplitter;
    use super::super::tests::{on_disk, records};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_newest_of_all_sources_is_seen_from_anywhere(
            layers in proptest::collection::vec((records(60), 0u8..3), 0..5),
            probes in proptest::collection::vec((0u64..5, 0u64..5000), 5),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut model: BTreeMap<Key, Record> = BTreeMap::new();
            let mut sources = Vec::new();
            for (i, (records, kind)) in layers.iter().enumerate() {
                model.extend(records.iter().map(|r| (r.key, *r)));
                sources.push(match kind {
                    0 => Source::Run(records.clone().into()),
                    1 => Source::Tree(Arc::new(Tree::of(records, &mut BlockSplitter::new(200)))),
                    _ => Source::Disk(on_disk(dir.path(), i as u64 * 100, records)),
                });
            }
            sources.reverse();
            for (fid, offset) in probes.into_iter().chain([(0, 0)]) {
                let from = Key { fid, offset };
                let found: Vec<Record> = Scan::new(sources.iter().cloned(), from).unwrap().map(|r| r.unwrap()).collect();
                let want: Vec<Record> = model.range(from..).map(|(_, r)| *r).filter(|r| r.len > 0).collect();
                prop_assert_eq!(found, want);
            }
        }
    }
}
