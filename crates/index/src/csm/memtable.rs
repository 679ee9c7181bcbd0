//! The MemTable of the index: sorted runs of records, newest last.
//!
//! Batches come nearly sorted, so each is a run as it comes; a run is merged with the one before once that is not twice as
//! long, as a binary counter carries. So there are few runs, and a record moves O(log n) times, in sequence, where a tree or a
//! skiplist would search for each.
//!
//! Invariants: a run ascends strictly by key; runs are never changed, so a clone of the MemTable is a snapshot and costs one
//! counter a run; of two records with one key, that of the later run is the newer.
use super::record::Record;
use std::sync::Arc;

/// A run of records in ascending order.
pub type Run = Arc<[Record]>;

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub struct MemTable {
    runs: Vec<Run>,
    records: usize,
}

impl MemTable {
    /// Adds a batch. Of its records with one key the last one stays.
    pub fn insert(&mut self, mut batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        if !batch.is_sorted_by(|a, b| a.key < b.key) {
            batch.sort_by_key(|record| record.key);
            // Sorting keeps the order of equals, and the later one wins.
            batch.reverse();
            batch.dedup_by_key(|record| record.key);
            batch.reverse();
        }
        while let Some(before) = self.runs.pop_if(|run| run.len() < 2 * batch.len()) {
            batch = merge(&before, &batch);
        }
        self.runs.push(batch.into());
        self.records = self.runs.iter().map(|run| run.len()).sum();
    }

    /// Its runs, oldest first.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Number of records; a key counts once in each run.
    pub fn len(&self) -> usize {
        self.records
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
        let mut runs = self.runs.into_iter().rev();
        let newest = runs.next().unwrap_or_default();
        runs.fold(newest, |newer, older| merge(&older, &newer).into())
    }
}

/// One run of two; the newer of equals stays.
fn merge(older: &[Record], newer: &[Record]) -> Vec<Record> {
    // Mostly one lies behind the other.
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
                let all: usize = table.runs().iter().map(|r| r.len()).sum();
                prop_assert_eq!(table.len(), all);
                prop_assert!(table.runs().windows(2).all(|pair| pair[0].len() >= 2 * pair[1].len()));
                let want: Vec<Record> = model.into_values().collect();
                prop_assert_eq!(&table.into_run()[..], &want[..]);
            }
        }

        #[test]
        fn batches_in_order_stay_runs(batch in records(100)) {
            let mut table = MemTable::default();
            table.insert(batch.clone());
            prop_assert_eq!(&table.into_run()[..], &batch[..]);
        }
    }
}
