//! Histories for the fault tests: seeded batches over few keys, and what the store must hold after each.
use forebay_storage::fault::FaultIo;
use forebay_storage::{Batch, Durability, Keyspace, Options, Result, Store};
use forebay_testkit::random::Random;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// The store's directory on every fault disk.
pub const DIR: &str = "/node/store";

/// What a store holds.
pub type Model = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

/// Small limits, so that short histories flush and compact.
pub fn options(durability: Durability) -> Options {
    Options {
        durability,
        memtable_bytes: 2500,
        cache_bytes: 20_000,
        block_bytes: 200,
        wal_reserve_bytes: 8192,
        table_reserve_bytes: 16384,
        level0_tables: 2,
        level1_bytes: 3000,
        background: false,
        ..Options::default()
    }
}

pub fn open(io: &FaultIo, options: &Options) -> Result<Store> {
    Store::open(Arc::new(io.clone()), Path::new(DIR), options.clone())
}

/// One seeded history: at each step a batch, or now and then a flush, sync or compaction.
pub enum Step {
    Apply(Batch),
    Flush,
    Sync,
    Compact,
}

pub fn history(seed: u64, length: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    let mut steps = Vec::new();
    for i in 0..length {
        steps.push(match random.below(20) {
            0 => Step::Flush,
            1 => Step::Sync,
            2 if random.below(3) == 0 => Step::Compact,
            _ => {
                let mut batch = Batch::new();
                for _ in 0..random.below(5) + 1 {
                    let key = format!("key-{:02}", random.below(40));
                    let keyspace = Keyspace(random.below(2) as u8 * 15);
                    if random.below(4) == 0 {
                        batch.delete(keyspace, key);
                    } else {
                        let value = vec![i as u8; random.below(120) as usize + 1];
                        batch.put(keyspace, key, value);
                    }
                }
                Step::Apply(batch)
            }
        });
    }
    steps
}

/// The states after 0, 1, 2, ... batches of the history.
pub fn states(steps: &[Step]) -> Vec<Model> {
    let mut states = vec![Model::new()];
    for step in steps {
        let Step::Apply(batch) = step else { continue };
        let mut next = states[states.len() - 1].clone();
        apply(&mut next, batch);
        states.push(next);
    }
    states
}

pub fn apply(model: &mut Model, batch: &Batch) {
    for op in batch.ops() {
        let key = (op.keyspace.0, op.key.to_vec());
        match &op.value {
            Some(value) => drop(model.insert(key, value.to_vec())),
            None => drop(model.remove(&key)),
        }
    }
}

/// Everything in the store, by scans, compared with gets.
pub fn contents(store: &Store) -> Result<Model> {
    let mut model = Model::new();
    for keyspace in [0u8, 15] {
        for entry in store.scan(Keyspace(keyspace), Bound::Unbounded, Bound::Unbounded) {
            let (key, value) = entry?;
            assert_eq!(store.get(Keyspace(keyspace), &key)?.as_ref(), Some(&value));
            model.insert((keyspace, key.to_vec()), value.to_vec());
        }
    }
    Ok(model)
}

/// How a run ended.
#[derive(Debug, Default, Clone, Copy)]
pub struct Run {
    /// Batches acknowledged.
    pub acknowledged: usize,
    /// Batches known to be on disk: by `sync` or `flush`.
    pub synced: usize,
}

/// Runs the history until the first error (the disk was stopped) or its end.
pub fn run(store: &Store, steps: &[Step]) -> Run {
    let mut run = Run::default();
    for step in steps {
        let (done, all) = match step {
            Step::Apply(batch) => (
                store.apply(batch.clone()).map(|()| run.acknowledged += 1),
                false,
            ),
            Step::Flush => (store.flush(), true),
            Step::Sync => (store.sync(), true),
            Step::Compact => (store.compact(), true),
        };
        match done {
            Ok(()) if all => run.synced = run.acknowledged,
            Ok(()) => {}
            Err(_) => break,
        }
    }
    run
}
