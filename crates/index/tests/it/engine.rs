//! The engine against a plain map: random histories of batches, flushes, merges and restarts; and histories cut off at any
//! call of the file system, by a killed process or a lost machine.
//!
//! Short form: 8 histories, and 3 cut off at every 151st call. `SOAK=1`: 10,000, and 40 at every call; both go on where they stopped
//! if `SOAK_DIR` is set.

use forebay_index::{CompressedEngine, Settings, Stats};
use forebay_index::{Key, Record};
use forebay_storage::fault::{FaultIo, Image};
use forebay_storage::{Batch, Durability, Engine, Io, Keyspace, Options, Store};
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const COUNT: Keyspace = Keyspace(3);
type Model = BTreeMap<Key, Record>;

#[derive(Debug, Clone)]
enum Step {
    /// A batch of records; the store gets the number of batches under a key, in the same batch.
    Put(Vec<Record>),
    Flush,
    Compact,
    /// The store's own tables.
    FlushStore,
    Sync,
    Restart,
}

fn records(random: &mut Random) -> Vec<Record> {
    let (fid, stride) = (random.below(3), 1 + random.below(4));
    let (start, n) = (random.below(400), 1 + random.below(40));
    let deletes = random.below(4) == 0;
    let record = |i: u64| {
        let key = Key {
            fid,
            offset: (start + i * stride) * 100,
        };
        if deletes {
            return Record::delete(key);
        }
        Record {
            key,
            len: 100,
            member: fid as u16,
            log: random.below(5),
            addr: i * 100,
            seq: start,
        }
    };
    (0..n).map(record).collect()
}

fn history(seed: u64, steps: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    let step = |_| match random.below(20) {
        0 => Step::Flush,
        1 => Step::Compact,
        2 => Step::FlushStore,
        3 => Step::Restart,
        4 | 5 => Step::Sync,
        _ => Step::Put(records(&mut random)),
    };
    (0..steps).map(step).collect()
}

/// The state after each batch.
fn states(steps: &[Step]) -> Vec<Model> {
    let mut states = vec![Model::new()];
    for step in steps {
        if let Step::Put(records) = step {
            let mut next = states[states.len() - 1].clone();
            for record in records {
                if record.len == 0 {
                    next.remove(&record.key);
                } else {
                    next.insert(record.key, *record);
                }
            }
            states.push(next);
        }
    }
    states
}

struct World {
    io: Arc<dyn Io>,
    background: bool,
    store: Arc<Store>,
    engine: Arc<CompressedEngine>,
    batches: u64,
    synced: u64,
}

fn settings(background: bool) -> Settings {
    Settings {
        block_bytes: 300,
        table_blocks: 3,
        memtable_bytes: 4096,
        buffer_bytes: 4096,
        background,
        ..Settings::default()
    }
}

fn open(
    io: Arc<dyn Io>,
    background: bool,
) -> forebay_storage::Result<(Arc<Store>, Arc<CompressedEngine>)> {
    let options = Options {
        durability: Durability::Process,
        memtable_bytes: 2000,
        wal_bytes: 4000,
        wal_reserve_bytes: 0,
        table_reserve_bytes: 0,
        background,
        ..Options::default()
    };
    let store = Arc::new(Store::open(io, Path::new("/store"), options)?);
    let engine = CompressedEngine::attach(&store, settings(background))?;
    Ok((store, engine))
}

impl World {
    fn new(io: Arc<dyn Io>, background: bool) -> forebay_storage::Result<World> {
        let (store, engine) = open(io.clone(), background)?;
        Ok(World {
            io,
            background,
            store,
            engine,
            batches: 0,
            synced: 0,
        })
    }

    fn step(&mut self, step: &Step) -> forebay_storage::Result<()> {
        match step {
            Step::Put(records) => {
                let mut batch = Batch::new();
                batch.put(COUNT, "batches", (self.batches + 1).to_be_bytes().to_vec());
                self.engine.add(&mut batch, records.clone());
                self.store.apply(batch)?;
                self.batches += 1;
            }
            Step::Flush => self.engine.flush()?,
            Step::Compact => self.engine.compact()?,
            Step::FlushStore => self.store.flush()?,
            Step::Sync => {
                self.store.sync()?;
                self.synced = self.batches;
            }
            Step::Restart => {
                // Not closed: as if the process had been killed.
                let (store, engine) = {
                    let old = std::mem::replace(&mut self.store, Arc::new(none()));
                    drop((old, self.engine.clone()));
                    open(self.io.clone(), self.background)?
                };
                (self.store, self.engine) = (store, engine);
            }
        }
        Ok(())
    }
}

/// A store that nobody uses, to stand in while the real one is opened anew.
fn none() -> Store {
    let options = Options {
        background: false,
        ..Options::default()
    };
    Store::open(Arc::new(FaultIo::new(0)), Path::new("/none"), options).unwrap()
}

/// How many batches the store says it has, and what the index holds.
fn contents(store: &Store, engine: &CompressedEngine) -> (u64, Model) {
    let batches = store.get(COUNT, b"batches").unwrap();
    let batches = batches.map_or(0, |b| u64::from_be_bytes(b[..].try_into().unwrap()));
    let from = Key { fid: 0, offset: 0 };
    let all = engine.view().scan(from).unwrap().map(|r| r.unwrap());
    (batches, all.map(|r| (r.key, r)).collect())
}

/// One history; what the engine did in it.
fn agrees(seed: u64) -> Stats {
    let background = seed % 2 == 1;
    let steps = history(seed, 120);
    let states = states(&steps);
    let mut world = World::new(Arc::new(FaultIo::new(seed)), background).unwrap();
    for (i, step) in steps.iter().enumerate() {
        world
            .step(step)
            .unwrap_or_else(|e| panic!("seed {seed}, step {i}: {e}"));
        let (batches, held) = contents(&world.store, &world.engine);
        assert_eq!(batches, world.batches, "seed {seed}, step {i}");
        assert!(
            held == states[batches as usize],
            "seed {seed}, step {i}: {step:?}"
        );
    }
    world.engine.compact().unwrap();
    let (batches, held) = contents(&world.store, &world.engine);
    assert!(held == states[batches as usize], "seed {seed}, compacted");
    assert_eq!(world.engine.check().len(), 0);
    let after = world.engine.stats();
    assert!(
        after.runs <= 1 && after.table_records == held.len() as u64,
        "{after:?}"
    );
    after
}

#[test]
fn histories_agree_with_a_map_in_every_setting() {
    let (done, telling) = (AtomicU64::new(0), AtomicU64::new(0));
    seeds::for_each_seed("index-engine", (8, 10_000), |seed| {
        let s = agrees(seed);
        let all = s.compactions > 0 && s.blocks_passed > 0 && s.blocks_merged > 0;
        done.fetch_add(1, Ordering::Relaxed);
        telling.fetch_add(u64::from(all), Ordering::Relaxed);
    });
    // The histories did what they are for. Few are left where a soak goes on just before its end.
    assert!(done.into_inner() < 15 || telling.into_inner() > 0);
}

/// The store of an image holds a state after some batch, none that was synced is missing, and nothing is damaged.
fn verify(image: &Image, seed: u64, states: &[Model], least: u64, most: u64, what: &str) {
    let io = Arc::new(FaultIo::with_image(image, seed));
    let (store, engine) = open(io.clone(), false).unwrap_or_else(|e| panic!("{what}: {e}"));
    let (batches, held) = contents(&store, &engine);
    assert!(
        (least..=most).contains(&batches),
        "{what}: {batches} of {least}..={most}"
    );
    assert!(
        held == states[batches as usize],
        "{what}: not the state after {batches} batches"
    );
    let errors = engine.check();
    assert!(errors.is_empty(), "{what}: {errors:?}");
    // It goes on working.
    engine.compact().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(contents(&store, &engine).1 == held, "{what}, compacted");
    store.sync().unwrap();
    let (store, engine) = open(Arc::new(FaultIo::with_image(&io.crash(), seed)), false).unwrap();
    assert!(
        contents(&store, &engine) == (batches, held),
        "{what}, again"
    );
}

#[test]
fn cut_off_at_any_call_a_state_between_two_batches_is_left() {
    let stride = seeds::count(151, 1);
    seeds::for_each_seed("index-engine-cuts", (3, 40), |seed| {
        let steps = history(seed, 60);
        let states = states(&steps);
        let calls = {
            let io = FaultIo::new(seed);
            let mut world = World::new(Arc::new(io.clone()), false).unwrap();
            steps.iter().for_each(|step| world.step(step).unwrap());
            io.calls()
        };
        assert!(
            calls > 300,
            "the history does too little I/O to crash in: {calls}"
        );
        for call in (1 + seed % stride as u64..calls).step_by(stride) {
            for power in [true, false] {
                let io = FaultIo::new(seed * 1000 + call);
                io.stop_after(call);
                let (mut batches, mut synced) = (0, 0);
                if let Ok(mut world) = World::new(Arc::new(io.clone()), false) {
                    for step in &steps {
                        if world.step(step).is_err() {
                            break;
                        }
                    }
                    (batches, synced) = (world.batches, world.synced);
                }
                let image = if power { io.crash() } else { io.kill() };
                let what = format!("seed {seed}, call {call}, power lost: {power}");
                let least = if power { synced } else { batches };
                // The batch under way when it stopped may be there, whole.
                let most = (batches + 1).min(states.len() as u64 - 1);
                verify(&image, seed, &states, least, most, &what);
            }
        }
    });
}
