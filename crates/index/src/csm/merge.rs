//! The merge: sorted sequences of blocks become one, and only blocks that overlap are decompressed (MetaKV, section III-A).
//!
//! ```text
//!  newer:  [ 0.5 .. 1 ]            [ 5 .. 6 ]               passes through untouched: 5 .. 6
//!  older:  [ 0.7 .. 1.5 ] [ 2 .. 3 ]                                        and 2 .. 3
//!  result: [ 0.5 .. 1 ][ 1 .. 1.5 ][ 2 .. 3 ][ 5 .. 6 ]     merged: the first of both
//! ```
//!
//! The paper merges two sequences at a time, this merge any number. Records in random order overlap everywhere: they are then
//! decompressed and compressed once for all sequences instead of once for each pair.
//!
//! Of records with one key the newest stays. Deletes stay as well, unless the caller says that no older sequence is left for
//! them to hide records of.
//!
//! Records that are pending when a block could pass would become a small block of their own, and blocks would shrink from merge
//! to merge. So with less than a quarter of a block pending, the next block is decompressed instead of passed.
use super::block::{Block, BlockSplitter};
use super::loser_tree::LoserTree;
use super::record::Record;
use super::stats::{Counters, count};
use forebay_storage::Result;
use std::collections::VecDeque;

/// A sorted sequence of blocks, read as the merge goes.
pub trait Blocks {
    /// The next block.
    ///
    /// # Errors
    /// Those of reading it.
    fn next(&mut self) -> Result<Option<Block>>;

    /// The error for a block whose bytes are none.
    fn damaged(&self, block: &Block) -> forebay_storage::Error;
}

/// What a merge did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeCounts {
    /// Blocks that went through untouched.
    pub passed: u64,
    /// Blocks that were decompressed.
    pub merged: u64,
    /// Blocks that were made of these.
    pub made: u64,
}

impl MergeCounts {
    /// Adds them to the engine's.
    pub fn add_to(self, counters: &Counters) {
        count(&counters.blocks_passed, self.passed);
        count(&counters.blocks_merged, self.merged);
        count(&counters.blocks_made, self.made);
    }
}

/// One of the sequences: its next block, compressed or opened.
struct MergeInput<B> {
    blocks: B,
    head: Option<Block>,
    /// The records of an opened block.
    opened: Vec<Record>,
    /// The next of them.
    at: usize,
}

impl<B: Blocks> MergeInput<B> {
    /// The key of its next record, as a number. `None`: nothing is left.
    #[inline]
    fn next(&mut self) -> Result<Option<u128>> {
        if let Some(record) = self.opened.get(self.at) {
            return Ok(Some(record.key.number()));
        }
        if self.head.is_none() {
            self.head = self.blocks.next()?;
        }
        Ok(self.head.as_ref().map(|block| block.first.number()))
    }

    /// Decompresses the next block, if there is one that is not open.
    fn open(&mut self, counts: &mut MergeCounts) -> Result<()> {
        if let Some(block) = self.head.take() {
            self.opened.clear();
            self.at = 0;
            if block.records(&mut self.opened).is_none() {
                self.opened.clear();
                return Err(self.blocks.damaged(&block));
            }
            counts.merged += 1;
        }
        Ok(())
    }
}

/// See the head of this file. It is itself a sequence of blocks.
pub struct Merge<'a, B> {
    /// Those that have something left, the newest first.
    sides: Vec<MergeInput<B>>,
    /// The keys of their next records.
    order: LoserTree,
    /// The key of the last record that was taken: where another side has it too, that one is older.
    taken: Option<u128>,
    splitter: &'a mut BlockSplitter,
    drop_deletes: bool,
    ready: VecDeque<Block>,
    /// What it has done so far.
    pub counts: MergeCounts,
}

impl<'a, B: Blocks> Merge<'a, B> {
    /// The merge of these, newest first; `drop_deletes` if nothing older than all of them is left.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn new(
        sides: impl IntoIterator<Item = B>,
        drop_deletes: bool,
        splitter: &'a mut BlockSplitter,
    ) -> Result<Merge<'a, B>> {
        // What an earlier merge left when it failed.
        splitter.clear();
        let (mut left, mut numbers) = (Vec::new(), Vec::new());
        for blocks in sides {
            let mut side = MergeInput {
                blocks,
                head: None,
                opened: Vec::new(),
                at: 0,
            };
            if let Some(next) = side.next()? {
                numbers.push(next);
                left.push(side);
            }
        }
        Ok(Merge {
            sides: left,
            order: LoserTree::of(numbers),
            taken: None,
            splitter,
            drop_deletes,
            ready: VecDeque::new(),
            counts: MergeCounts::default(),
        })
    }

    /// The next block of the result.
    ///
    /// # Errors
    /// Those of reading the sides; a block that is none.
    pub fn block(&mut self) -> Result<Option<Block>> {
        loop {
            if let Some(block) = self.ready.pop_front() {
                return Ok(Some(block));
            }
            if !(self.take_opened()? || self.step()?) {
                let last = self.splitter.cut();
                self.counts.made += u64::from(last.is_some());
                return Ok(last);
            }
        }
    }

    /// Takes records as long as they are of opened blocks, and a block is not full. `false` if none is.
    fn take_opened(&mut self) -> Result<bool> {
        let mut any = false;
        // Of sides with one key, the newest.
        while let Some(side) = self.sides.get_mut(self.order.least())
            && let Some(record) = side.opened.get(side.at)
        {
            any = true;
            side.at += 1;
            // What is here, or was left out, is newer than another one with its key.
            let key = self.order.number();
            let older = self.taken.replace(key) == Some(key);
            if !older
                && (record.len > 0 || !self.drop_deletes)
                && let Some(block) = self.splitter.add(*record)
            {
                self.counts.made += 1;
                self.ready.push_back(block);
                self.reorder_least()?;
                break;
            }
            match side.opened.get(side.at) {
                Some(next) => self.order.replace(next.key.number()),
                None => self.reorder_least()?,
            }
        }
        Ok(any)
    }

    /// The side that was looked at has another next record, or none.
    fn reorder_least(&mut self) -> Result<()> {
        let at = self.order.least();
        match self.sides[at].next()? {
            Some(next) => self.order.replace(next),
            None => {
                self.sides.remove(at);
                self.order.remove();
            }
        }
        Ok(())
    }

    /// One block passed or opened; the next one is not open. `false` at the end.
    fn step(&mut self) -> Result<bool> {
        let at = self.order.least();
        let alone = self.sides.len() == 1;
        let passes = |block: &Block| {
            self.taken != Some(block.first.number())
                && (alone || block.last.number() < self.order.second())
        };
        let Some(side) = self.sides.get_mut(at) else {
            return Ok(false);
        };
        if side.head.as_ref().is_some_and(passes) {
            self.pass_or_open(at)?;
            self.reorder_least()?;
        } else {
            side.open(&mut self.counts)?;
        }
        Ok(true)
    }

    /// The next block of a side overlaps nothing of the others: it passes, after the block of what waits; or is taken in.
    fn pass_or_open(&mut self, at: usize) -> Result<()> {
        let waiting = self.splitter.pending();
        let little = |records: usize| records < self.splitter.full / 4;
        let crumbles = |block: &Block| {
            waiting > 0 && little(waiting)
                || little(block.records as usize)
                || self.drop_deletes && block.deletes
        };
        let side = &mut self.sides[at];
        match side.head.take() {
            Some(block) if crumbles(&block) => {
                side.head = Some(block);
                return side.open(&mut self.counts);
            }
            passed => {
                let rest = self.splitter.cut();
                self.counts.made += u64::from(rest.is_some());
                self.counts.passed += u64::from(passed.is_some());
                self.ready.extend(rest);
                self.ready.extend(passed);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::records;
    use super::super::tree::Tree;
    use super::super::{Key, RECORD};
    use super::*;
    use forebay_storage::Error;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    struct Given(VecDeque<Block>);

    impl Given {
        fn of(records: &[Record], block_bytes: usize) -> Given {
            let tree = Tree::of(records, &mut BlockSplitter::new(block_bytes));
            Given(tree.iter().map(|leaf| leaf.block()).collect())
        }
    }

    impl Blocks for Given {
        fn next(&mut self) -> Result<Option<Block>> {
            Ok(self.0.pop_front())
        }

        fn damaged(&self, _block: &Block) -> Error {
            Error::Format {
                path: PathBuf::from("given"),
                reason: String::from("damaged"),
            }
        }
    }

    fn all(mut merge: Merge<'_, Given>) -> (Vec<Block>, MergeCounts) {
        let mut blocks = Vec::new();
        while let Some(block) = merge.block().unwrap() {
            blocks.push(block);
        }
        (blocks, merge.counts)
    }

    fn merged(a: &[Record], b: &[Record], bytes: usize, drop: bool) -> (Vec<Block>, MergeCounts) {
        let (newer, older) = (Given::of(a, bytes), Given::of(b, bytes));
        all(Merge::new([newer, older], drop, &mut BlockSplitter::new(bytes)).unwrap())
    }

    fn strided(from: u64, n: u64, step: u64) -> Vec<Record> {
        let record = |i: u64| Record {
            len: 10,
            ..Record::delete(Key {
                fid: 1,
                offset: from + i * step,
            })
        };
        (0..n).map(record).collect()
    }

    #[test]
    fn only_blocks_that_overlap_are_decompressed() {
        // Blocks of ten records: the last of one and the first of the other overlap.
        let bytes = 10 * RECORD;
        let (a, b) = (strided(0, 1000, 10), strided(9905, 1000, 10));
        let (blocks, counts) = merged(&a, &b, bytes, false);
        assert_eq!((counts.passed, counts.merged), (198, 2));
        assert_eq!(blocks.len() as u64, counts.passed + counts.made);
        let (_, counts) = merged(&b, &a, bytes, true);
        assert_eq!(counts.passed, 198);
        // Apart: nothing is.
        let (_, counts) = merged(&a, &strided(20_000, 500, 10), bytes, false);
        assert_eq!((counts.passed, counts.merged), (150, 0));
    }

    #[test]
    fn blocks_do_not_crumble_however_often_they_are_merged() {
        let bytes = 40 * RECORD;
        let mut all_blocks = Given::of(&[], bytes);
        for round in 0..60u64 {
            let new = Given::of(&strided(round * 7, 70, 60), bytes);
            let mut splitter = BlockSplitter::new(bytes);
            let merge = Merge::new([new, all_blocks], false, &mut splitter);
            let (blocks, _) = all(merge.unwrap());
            all_blocks = Given(blocks.into());
        }
        let records: u64 = all_blocks.0.iter().map(|b| u64::from(b.records)).sum();
        let mean = records as f64 / all_blocks.0.len() as f64;
        assert!(mean > 20.0, "{mean} records a block");
    }

    #[test]
    fn a_damaged_block_is_an_error() {
        let bytes = 10 * RECORD;
        let mut bad = Given::of(&strided(0, 20, 10), bytes);
        bad.0[0].records += 1;
        let mut splitter = BlockSplitter::new(bytes);
        let good = Given::of(&strided(5, 20, 10), bytes);
        let mut merge = Merge::new([bad, good], false, &mut splitter).unwrap();
        assert!(merge.block().is_err());
    }

    proptest! {
        #[test]
        fn the_newest_of_each_key_stays(
            sides in proptest::collection::vec((records(120), 1usize..1500), 0..7), block_bytes in 1usize..1500, drop: bool,
        ) {
            let given = sides.iter().map(|(records, bytes)| Given::of(records, *bytes));
            let mut splitter = BlockSplitter::new(block_bytes);
            let (blocks, counts) = all(Merge::new(given, drop, &mut splitter).unwrap());
            let mut want: BTreeMap<Key, Record> = BTreeMap::new();
            for (records, _) in sides.iter().rev() {
                want.extend(records.iter().map(|r| (r.key, *r)));
            }
            want.retain(|_, r| r.len > 0 || !drop);
            let mut found = Vec::new();
            for pair in blocks.windows(2) {
                prop_assert!(pair[0].last < pair[1].first);
            }
            for block in &blocks {
                block.records(&mut found).unwrap();
            }
            prop_assert_eq!(found, want.into_values().collect::<Vec<_>>());
            prop_assert_eq!(blocks.len() as u64, counts.passed + counts.made);
        }

        #[test]
        fn the_newer_of_each_key_stays(
            a in records(150), b in records(150), block_bytes in 1usize..1500, drop: bool,
        ) {
            let (blocks, counts) = merged(&a, &b, block_bytes, drop);
            let mut want: BTreeMap<Key, Record> = b.iter().map(|r| (r.key, *r)).collect();
            want.extend(a.iter().map(|r| (r.key, *r)));
            want.retain(|_, r| r.len > 0 || !drop);
            let mut found = Vec::new();
            for pair in blocks.windows(2) {
                prop_assert!(pair[0].last < pair[1].first);
            }
            for block in &blocks {
                block.records(&mut found).unwrap();
            }
            prop_assert_eq!(found, want.into_values().collect::<Vec<_>>());
            prop_assert_eq!(blocks.len() as u64, counts.passed + counts.made);
        }
    }
}
