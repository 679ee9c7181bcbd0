//! The 2-way merge: two sorted sequences of blocks become one, and only blocks that overlap are decompressed (MetaKV,
//! section III-A).
//!
//! ```text
//!  newer:  [ 0.5 .. 1 ]            [ 5 .. 6 ]               passes through untouched: 5 .. 6
//!  older:  [ 0.7 .. 1.5 ] [ 2 .. 3 ]                                        and 2 .. 3
//!  result: [ 0.5 .. 1 ][ 1 .. 1.5 ][ 2 .. 3 ][ 5 .. 6 ]     merged: the first of both
//! ```
//!
//! Of two records with one key the newer stays. Deletes stay too, for a third sequence may hold what they hide, unless the
//! merge is told that there is none.
//!
//! What a merge leaves before a block that could pass would be a small block of its own. Blocks must not crumble from merge to
//! merge, so below a quarter of a block the next one is taken in instead of passed.
use super::block::{Block, Cutter};
use super::record::Record;
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
pub struct Counts {
    /// Blocks that went through untouched.
    pub passed: u64,
    /// Blocks that were decompressed.
    pub merged: u64,
    /// Blocks that were made of these.
    pub made: u64,
}

/// One side: its next block, compressed or opened.
struct Side<B> {
    blocks: B,
    head: Option<Block>,
    /// What is left of an opened block, the next record last.
    opened: Vec<Record>,
}

impl<B: Blocks> Side<B> {
    fn new(blocks: B) -> Side<B> {
        Side {
            blocks,
            head: None,
            opened: Vec::new(),
        }
    }

    /// Looks at the next block, if none is open.
    fn fill(&mut self) -> Result<()> {
        if self.opened.is_empty() && self.head.is_none() {
            self.head = self.blocks.next()?;
        }
        Ok(())
    }

    /// Decompresses the next block, if there is one that is not open.
    fn open(&mut self, counts: &mut Counts) -> Result<()> {
        if let Some(block) = self.head.take() {
            if block.records(&mut self.opened).is_none() {
                self.opened.clear();
                return Err(self.blocks.damaged(&block));
            }
            self.opened.reverse();
            counts.merged += 1;
        }
        Ok(())
    }

    fn record(&self) -> Option<&Record> {
        self.opened.last()
    }
}

/// See the head of this file. It is itself a sequence of blocks.
pub struct Merge<'a, A, B> {
    newer: Side<A>,
    older: Side<B>,
    cutter: &'a mut Cutter,
    drop_deletes: bool,
    ready: VecDeque<Block>,
    counts: Counts,
}

impl<'a, A: Blocks, B: Blocks> Merge<'a, A, B> {
    /// The merge of `newer` over `older`; `drop_deletes` if nothing older than both is left.
    pub fn new(newer: A, older: B, drop_deletes: bool, cutter: &'a mut Cutter) -> Merge<'a, A, B> {
        // What an earlier merge left when it failed.
        cutter.clear();
        Merge {
            newer: Side::new(newer),
            older: Side::new(older),
            cutter,
            drop_deletes,
            ready: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The next block of the result.
    ///
    /// # Errors
    /// Those of reading the two; a block that is none.
    pub fn block(&mut self) -> Result<Option<Block>> {
        loop {
            if let Some(block) = self.ready.pop_front() {
                return Ok(Some(block));
            }
            if !self.step()? {
                let last = self.cutter.cut();
                self.counts.made += u64::from(last.is_some());
                return Ok(last);
            }
        }
    }

    /// One block passed, or opened, or one record merged. `false` at the end.
    fn step(&mut self) -> Result<bool> {
        self.newer.fill()?;
        self.older.fill()?;
        match (&self.newer.head, &self.older.head) {
            (Some(a), Some(b)) if a.last < b.first => self.pass_or_open(true)?,
            (Some(a), Some(b)) if b.last < a.first => self.pass_or_open(false)?,
            (Some(_), Some(_)) => {
                self.newer.open(&mut self.counts)?;
                self.older.open(&mut self.counts)?;
            }
            (Some(a), None) => match self.older.record() {
                None => self.pass_or_open(true)?,
                Some(record) if a.last < record.key => self.pass_or_open(true)?,
                Some(record) if record.key < a.first => self.take(false),
                Some(_) => self.newer.open(&mut self.counts)?,
            },
            (None, Some(b)) => match self.newer.record() {
                None => self.pass_or_open(false)?,
                Some(record) if b.last < record.key => self.pass_or_open(false)?,
                Some(record) if record.key < b.first => self.take(true),
                Some(_) => self.older.open(&mut self.counts)?,
            },
            (None, None) => return Ok(self.merge()),
        }
        Ok(true)
    }

    /// Merges opened blocks until one of them is empty. `false` if both are.
    fn merge(&mut self) -> bool {
        loop {
            match (self.newer.record(), self.older.record()) {
                (None, None) => return false,
                (Some(a), Some(b)) => {
                    let newer = a.key <= b.key;
                    if a.key == b.key {
                        self.older.opened.pop();
                    }
                    self.take(newer);
                }
                (only, _) => {
                    let newer = only.is_some();
                    self.take(newer);
                }
            }
            if self.newer.opened.is_empty() || self.older.opened.is_empty() {
                return true;
            }
        }
    }

    /// Puts the next record of an opened block into the result.
    fn take(&mut self, newer: bool) {
        let opened = if newer {
            &mut self.newer.opened
        } else {
            &mut self.older.opened
        };
        let record = opened.pop();
        let stays = |r: &Record| r.len > 0 || !self.drop_deletes;
        if let Some(record) = record.filter(stays)
            && let Some(block) = self.cutter.add(record)
        {
            self.counts.made += 1;
            self.ready.push_back(block);
        }
    }

    /// The next block of one side overlaps nothing of the other: it passes, behind the block of what waits; or is taken in.
    fn pass_or_open(&mut self, newer: bool) -> Result<()> {
        let waiting = self.cutter.pending();
        let little = |records: usize| records < self.cutter.full() / 4;
        let crumbles = |block: &Block| {
            waiting > 0 && little(waiting)
                || little(block.records as usize)
                || self.drop_deletes && block.deletes
        };
        let head = if newer {
            &mut self.newer.head
        } else {
            &mut self.older.head
        };
        match head.take() {
            Some(block) if crumbles(&block) => {
                *head = Some(block);
                return if newer {
                    self.newer.open(&mut self.counts)
                } else {
                    self.older.open(&mut self.counts)
                };
            }
            passed => {
                let rest = self.cutter.cut();
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
    use super::super::{Key, RECORD, Tree};
    use super::*;
    use forebay_storage::Error;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    struct Given(VecDeque<Block>);

    impl Given {
        fn of(records: &[Record], block_bytes: usize) -> Given {
            let tree = Tree::of(records, &mut Cutter::new(block_bytes));
            Given(tree.into_blocks().collect())
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

    fn all(mut merge: Merge<'_, Given, Given>) -> (Vec<Block>, Counts) {
        let mut blocks = Vec::new();
        while let Some(block) = merge.block().unwrap() {
            blocks.push(block);
        }
        (blocks, merge.counts())
    }

    fn merged(a: &[Record], b: &[Record], bytes: usize, drop: bool) -> (Vec<Block>, Counts) {
        let (newer, older) = (Given::of(a, bytes), Given::of(b, bytes));
        all(Merge::new(newer, older, drop, &mut Cutter::new(bytes)))
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
            let (blocks, _) = all(Merge::new(new, all_blocks, false, &mut Cutter::new(bytes)));
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
        let mut cutter = Cutter::new(bytes);
        let mut merge = Merge::new(
            bad,
            Given::of(&strided(5, 20, 10), bytes),
            false,
            &mut cutter,
        );
        assert!(merge.block().is_err());
    }

    proptest! {
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
