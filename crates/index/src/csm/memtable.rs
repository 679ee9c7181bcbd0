//! The MemTable of the index: sorted runs of records, newest last.
//!
//! Batches come nearly sorted, so each becomes a run. A short run is merged with the run before it while that is not twice as long,
//! as a binary counter carries. So runs are few, and a record moves O(log n) times, sequentially, where a tree or a skiplist would
//! search for each record. A long run is not merged when it comes, so that puts do not pay for reads: the first reader compacts the
//! MemTable in the same way. A sealed MemTable is sorted at once, in the background.
//!
//! # Invariants
//! - A run ascends strictly by key and is never changed. So a clone of the MemTable is a snapshot, and costs one reference count a
//!   run.
//! - Of two records with one key, the one in the later run is newer.
use super::loser_tree::LoserTree;
use super::record::Record;
use std::sync::Arc;

/// A run of records in ascending order.
pub type Run = Arc<Vec<Record>>;

/// Runs from this length on are not merged when they come.
const LONG_RUN: usize = 512;
/// Up to this number of runs are not compacted, however long they are.
const FEW_RUNS: usize = 4;

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub struct MemTable {
    /// Oldest first.
    pub runs: Vec<Run>,
    records: usize,
}

impl MemTable {
    /// Adds a batch. Of its records with one key the last one stays.
    pub fn insert(&mut self, batch: impl Into<Run>) {
        let mut batch = batch.into();
        if batch.is_empty() {
            return;
        }
        if !batch.is_sorted_by(|a, b| a.key < b.key) {
            batch = sorted(batch.to_vec()).into();
        }
        self.push(batch, LONG_RUN);
    }

    /// Adds a run, merged with those before while it is shorter than `long` and they are not twice as long.
    fn push(&mut self, mut run: Run, long: usize) {
        while run.len() < long
            && let Some(before) = self.runs.pop_if(|before| before.len() < 2 * run.len())
        {
            self.records -= before.len();
            run = merge(&before, &run).into();
        }
        self.records += run.len();
        self.runs.push(run);
    }

    /// Whether it is fit to be read: its runs are few.
    pub fn is_compact(&self) -> bool {
        let twice = |pair: &[Run]| pair[0].len() >= 2 * pair[1].len();
        self.runs.len() <= FEW_RUNS || self.runs.windows(2).all(twice)
    }

    /// Merges runs, so that it is.
    pub fn compact(&mut self) {
        if !self.is_compact() {
            self.records = 0;
            for run in std::mem::take(&mut self.runs) {
                self.push(run, usize::MAX);
            }
        }
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.records * size_of::<Record>()
    }

    /// All records as one run.
    pub fn into_run(self) -> Run {
        match &self.runs[..] {
            [] => Run::default(),
            [run] => run.clone(),
            runs => merge_all(runs, self.records).into(),
        }
    }
}

/// These records by key; of those with one key the last one.
fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    // The sort finds the runs and merges them, and keeps the order of equals.
    records.sort_by_key(|record| record.key);
    records.dedup_by(|later, stays| {
        let same = later.key == stays.key;
        if same {
            *stays = *later;
        }
        same
    });
    records
}

/// Runs of which each lies after the one before, and what is left of the first of them: something, while it is merged.
struct Chain<'a> {
    left: &'a [Record],
    /// Of the run at hand: the greater the newer.
    age: usize,
    /// The runs after it and their ages, the next one last.
    behind: Vec<(&'a [Record], usize)>,
}

impl<'a> Chain<'a> {
    /// The next record's key as a number.
    fn next(&self) -> u128 {
        self.left[0].key.number()
    }

    /// Goes on to these records, or to the next run if they are none.
    fn continue_with(&mut self, left: &'a [Record]) {
        self.left = left;
        if left.is_empty()
            && let Some((run, age)) = self.behind.pop()
        {
            (self.left, self.age) = (run, age);
        }
    }
}

/// These runs, oldest first and none empty, as few chains.
fn chains(runs: &[Run]) -> Vec<Chain<'_>> {
    let mut ordered: Vec<(&[Record], usize)> = runs.iter().map(|run| &run[..]).zip(0..).collect();
    ordered.sort_by_key(|(run, _)| run[0].key);
    let mut chains: Vec<Chain<'_>> = Vec::new();
    for (run, age) in ordered.into_iter().rev() {
        // From behind: the chain's first run must begin above this one.
        let above = |chain: &&mut Chain<'_>| chain.left[0].key > run[run.len() - 1].key;
        match chains.iter_mut().find(above) {
            Some(chain) => {
                chain.behind.push((chain.left, chain.age));
                (chain.left, chain.age) = (run, age);
            }
            None => chains.push(Chain {
                left: run,
                age,
                behind: Vec::new(),
            }),
        }
    }
    chains
}

/// Merges many runs, oldest first, none empty, of `records` records together, into one; the newest of equals stays. A
/// writer's batches follow each other, so the runs are few chains; where these do not overlap, whole pieces are taken.
fn merge_all(runs: &[Run], records: usize) -> Vec<Record> {
    let mut chains = chains(runs);
    let mut order = LoserTree::of(chains.iter().map(Chain::next));
    let mut merged: Vec<Record> = Vec::with_capacity(records);
    // The age of the last record.
    let mut last_age = 0;
    while !chains.is_empty() {
        let at = order.least();
        let bound = order.second();
        let chain = &mut chains[at];
        let (age, first, rest) = (chain.age, chain.left[0], &chain.left[1..]);
        match merged.last_mut().filter(|last| last.key == first.key) {
            Some(_) if age < last_age => {}
            Some(last) => (*last, last_age) = (first, age),
            None => {
                merged.push(first);
                last_age = age;
            }
        }
        let below = rest.iter().take_while(|r| r.key.number() < bound).count();
        if below > 0 {
            merged.extend_from_slice(&rest[..below]);
            last_age = age;
        }
        chain.continue_with(&rest[below..]);
        if chain.left.is_empty() {
            chains.remove(at);
            order.remove();
        } else {
            order.replace(chain.next());
        }
    }
    merged
}

/// One run of two; the newer of equals stays.
fn merge(older: &[Record], newer: &[Record]) -> Vec<Record> {
    // Mostly one lies after the other.
    if older
        .last()
        .zip(newer.first())
        .is_none_or(|(a, b)| a.key < b.key)
    {
        return [older, newer].concat();
    }
    let mut merged = Vec::with_capacity(older.len() + newer.len());
    let (mut old, mut new) = (older, newer);
    while let (Some((a, old_rest)), Some((b, new_rest))) = (old.split_first(), new.split_first()) {
        if a.key < b.key {
            merged.push(*a);
            old = old_rest;
        } else {
            if a.key == b.key {
                old = old_rest;
            }
            merged.push(*b);
            new = new_rest;
        }
    }
    merged.extend_from_slice(old);
    merged.extend_from_slice(new);
    merged
}

#[cfg(test)]
mod tests {
    use super::super::Key;
    use super::super::tests::{records, shuffled};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_last_record_of_each_key_stays(batches in proptest::collection::vec(shuffled(40), 0..30)) {
            let mut table = MemTable::default();
            let mut model = BTreeMap::new();
            let mut seen = Vec::new();
            for batch in &batches {
                table.insert(batch.clone());
                model.extend(batch.iter().map(|r| (r.key, *r)));
                seen.push((table.clone(), model.clone()));
            }
            for (table, model) in seen {
                let all: usize = table.runs.iter().map(|r| r.len()).sum();
                prop_assert_eq!(table.records, all);
                prop_assert!(table.runs.windows(2).all(|pair| pair[0].len() >= 2 * pair[1].len()));
                prop_assert!(table.is_compact());
                let want: Vec<Record> = model.into_values().collect();
                prop_assert_eq!(&table.into_run()[..], &want[..]);
            }
        }

        #[test]
        fn long_runs_stay_until_it_is_read(seeds in proptest::collection::vec((0u64..9, 1u64..4), 1..12)) {
            let mut table = MemTable::default();
            let mut model = BTreeMap::new();
            for (i, (from, step)) in seeds.iter().enumerate() {
                let record = |k| Record { len: i as u32 + 1, ..Record::delete(Key { fid: 1, offset: (from + k * step) % 5000 * 8 }) };
                let batch: Vec<Record> = (0..LONG_RUN as u64).map(record).collect();
                model.extend(batch.iter().map(|r| (r.key, *r)));
                table.insert(batch);
                prop_assert_eq!(table.runs.len(), i + 1);
            }
            let want: Vec<Record> = model.into_values().collect();
            prop_assert_eq!(&table.clone().into_run()[..], &want[..]);
            table.compact();
            prop_assert!(table.is_compact());
            prop_assert_eq!(table.records, table.runs.iter().map(|run| run.len()).sum::<usize>());
            prop_assert_eq!(&table.into_run()[..], &want[..]);
        }

        #[test]
        fn batches_in_order_stay_runs(batch in records(100)) {
            let mut table = MemTable::default();
            table.insert(batch.clone());
            prop_assert_eq!(&table.into_run()[..], &batch[..]);
        }
    }
}
