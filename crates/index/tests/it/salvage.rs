//! Bits flipped in any file of a store, files cut short, files gone: a store that opens for writing shows what it held or fails with an error,
//! or says that it was not closed and which batch is its last; and what is whole can be salvaged, around what cannot be read.

use crate::support::*;
use forebay_index::Record;
use forebay_index::Settings;
use forebay_index::{Change, ExtentIndex};
use forebay_storage::fault::{FaultIo, Image};
use forebay_storage::{Damage, Keyspace, LogEnd, Options, PossibleLoss, Store};
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One row a batch, beside its number.
const ROWS: Keyspace = Keyspace(1);

/// A store and what it holds after each batch.
struct Built {
    image: Image,
    settings: Settings,
    models: Vec<Model>,
}

fn built(seed: u64, closed: bool) -> Built {
    built_of(seed, closed, 80, None)
}

/// A store of so many batches, whose process is killed before this call if any.
fn built_of(seed: u64, closed: bool, batches: u64, stop: Option<u64>) -> Built {
    let mut random = Random::new(seed);
    let settings = small(&mut random);
    let io = FaultIo::new(seed);
    let mut world = World::open(&io, &settings).unwrap();
    let (mut addr, mut models) = (1, vec![Model::new()]);
    if let Some(calls) = stop {
        io.stop_after(calls);
    }
    for seq in 1..=batches {
        let fid = random.below(FILES);
        let changes: Vec<Change> = changes(&mut random, fid, seq, &mut addr);
        let mut batch = world.batch();
        batch.put(ROWS, seq.to_be_bytes().to_vec(), vec![seq as u8; 60]);
        let changed = world.index.change(&mut batch, fid, &changes);
        if changed.and_then(|_| world.apply(batch)).is_err() && stop.is_some() {
            break;
        }
        let mut model = models[models.len() - 1].clone();
        model.change(fid, &changes);
        models.push(model);
    }
    if closed {
        let done = world.store.close();
        assert!(done.is_ok() || stop.is_some());
    }
    let image = io.kill();
    Built {
        image,
        settings,
        models,
    }
}

/// Does some harm to one file, and says what.
fn harm(image: &Image, random: &mut Random) -> (Image, PathBuf, String) {
    let files: Vec<(PathBuf, usize)> = image
        .files()
        .map(|(path, bytes)| (path.to_path_buf(), bytes.len()))
        .filter(|(path, len)| *len > 0 && !path.ends_with("RESERVE") && !path.ends_with("SPARE"))
        .collect();
    let (path, length) = files[random.below(files.len() as u64) as usize].clone();
    let mut bad = image.clone();
    let what = match random.below(6) {
        0 => {
            assert!(bad.remove(&path));
            "removed".to_string()
        }
        1 => {
            let cut = random.below(length as u64) as usize;
            bad.bytes_mut(&path).unwrap().truncate(cut);
            format!("cut at {cut} of {length}")
        }
        _ => {
            let bits: Vec<u64> = (0..1 + random.below(2))
                .map(|_| random.below(length as u64 * 8))
                .collect();
            for bit in &bits {
                assert!(bad.flip_bit(&path, *bit));
            }
            format!("bits {bits:?} of {}", length * 8)
        }
    };
    let what = format!("{}: {what}", path.display());
    (bad, path, what)
}

/// A store that goes on shows the state after its last batch, which it names if it was not closed, or fails where it cannot read.
fn goes_on(built: &Built, bad: &Image, closed: bool, what: &str) {
    let Ok(world) = World::open(&FaultIo::with_image(bad, 1), &built.settings) else {
        return;
    };
    let all = built.models.len() - 1;
    let last = match world.store.opened().end {
        LogEnd::Unclean { last, .. } if !closed => last as usize,
        LogEnd::Clean if closed => all,
        end => panic!("{what}: {end:?}"),
    };
    let model = &built.models[last];
    for fid in 0..FILES {
        for start in (0..LEN).step_by(100) {
            let range = start..start + 100;
            if let Ok(bytes) = world.bytes(fid, &range) {
                let right = bytes == model.bytes(fid, &range);
                assert!(right, "{what}: file {fid}, {range:?}, after batch {last}");
            }
        }
    }
    for seq in 1..=all {
        if let Ok(row) = world.store.get(ROWS, &(seq as u64).to_be_bytes()) {
            let want = (seq <= last).then(|| vec![seq as u8; 60]);
            assert_eq!(row.map(|r| r.to_vec()), want, "{what}: row {seq}");
        }
    }
}

fn salvage(image: &Image, settings: &Settings) -> (Store, ExtentIndex) {
    let io = Arc::new(FaultIo::with_image(image, 1));
    let store = Store::salvage(io, Path::new(DIR), Options::default()).unwrap();
    let index = ExtentIndex::open(&store, settings.clone()).unwrap();
    (store, index)
}

/// All records that can be read, and all rows.
fn whole(store: &Store, index: &ExtentIndex) -> (Vec<Record>, Vec<Vec<u8>>) {
    let least = forebay_index::Key::MIN;
    let records = index.engine().view().scan(least).unwrap();
    let rows = store.scan(ROWS, Bound::Unbounded, Bound::Unbounded);
    let rows = rows.filter_map(|r| Some(r.ok()?.0.to_vec()));
    (records.filter_map(Result::ok).collect(), rows.collect())
}

fn may_hold(damage: &[Damage], record: &Record) -> bool {
    let key = record.key;
    let key = [key.fid.to_be_bytes(), key.offset.to_be_bytes()].concat();
    damage.iter().any(|d| match &d.lost {
        PossibleLoss::EngineKeys { first, last } => first[..] <= key[..] && key[..] <= last[..],
        _ => false,
    })
}

fn may_hold_row(damage: &[Damage], row: &[u8]) -> bool {
    let key = [&[ROWS.0], row].concat();
    damage.iter().any(|d| match &d.lost {
        PossibleLoss::Keys { first, last } => first[..] <= key[..] && key[..] <= last[..],
        _ => false,
    })
}

fn harmed_in_any_way(seed: u64, closed: bool, tries: u64) {
    let built = built(seed, closed);
    let (store, index) = salvage(&built.image, &built.settings);
    let (records, rows) = whole(&store, &index);
    assert!(store.survey().is_empty());
    assert!(records.len() > 20 && rows.len() == 80);
    let mut random = Random::new(seed);
    for _ in 0..tries {
        let (bad, path, what) = harm(&built.image, &mut random);
        let what = format!("seed {seed}, closed {closed}, {what}");
        goes_on(&built, &bad, closed, &what);
        let (store, index) = salvage(&bad, &built.settings);
        let damage = store.survey();
        let (held, held_rows) = whole(&store, &index);
        for fid in 0..FILES {
            // Whatever is missing, a lookup is answered or fails.
            let _ = index.get(fid, base(fid)..base(fid) + LEN, usize::MAX);
        }
        if path.to_string_lossy().contains("wal-") {
            // What a batch lost from the log had changed is not known; but no row of another is missing.
            let lost = rows.iter().filter(|row| !held_rows.contains(row)).count() as u64;
            let told = store.opened().damage.iter().map(|d| match d.lost {
                PossibleLoss::Batches {
                    first,
                    last: Some(last),
                } => last + 1 - first,
                PossibleLoss::Batches { .. } => u64::MAX / 4,
                _ => 0,
            });
            let unclean =
                matches!(store.opened().end, LogEnd::Unclean { last, .. } if last + lost <= 80);
            assert!(lost <= told.sum() || unclean, "{what}: {lost} rows");
            continue;
        }
        for record in &held {
            assert!(records.contains(record), "{what}: {record:?}");
        }
        for record in records.iter().filter(|r| !held.contains(r)) {
            assert!(may_hold(&damage, record), "{what}: {record:?} is missing");
        }
        assert!(held_rows.iter().all(|row| rows.contains(row)), "{what}");
        for row in rows.iter().filter(|row| !held_rows.contains(row)) {
            assert!(may_hold_row(&damage, row), "{what}: {row:?} is missing");
        }
    }
}

#[test]
fn a_closed_store_harmed_in_any_way_loses_what_was_harmed_only() {
    seeds::for_each_seed("salvage-closed", (6, 200), |seed| {
        harmed_in_any_way(seed, true, 60)
    });
}

#[test]
fn a_killed_store_harmed_in_any_way_loses_what_was_harmed_only() {
    seeds::for_each_seed("salvage-killed", (6, 200), |seed| {
        harmed_in_any_way(seed, false, 60)
    });
}

#[test]
fn without_a_manifest_tables_and_logs_give_back_the_same_records() {
    seeds::for_each_seed("salvage-no-manifest", (30, 2000), |seed| {
        let mut random = Random::new(seed);
        let stop = (random.below(2) == 0).then(|| 1 + random.below(2000));
        let closed = random.below(2) == 0;
        let built = built_of(seed, closed, 20 + random.below(200), stop);
        let (store, index) = salvage(&built.image, &built.settings);
        let (records, rows) = whole(&store, &index);
        let mut bad = built.image.clone();
        for copy in ["MANIFEST", "MANIFEST.copy"] {
            assert!(bad.remove(&Path::new(DIR).join(copy)));
        }
        let (store, index) = salvage(&bad, &built.settings);
        let (held, held_rows) = whole(&store, &index);
        assert!(
            held == records,
            "seed {seed}: {} of {} records",
            held.len(),
            records.len()
        );
        assert!(held_rows == rows, "seed {seed}");
        let told = &store.opened().damage;
        let manifest = |d: &Damage| d.error.to_string().contains("MANIFEST");
        assert!(told.iter().any(manifest), "seed {seed}: {told:?}");
        if stop.is_none() {
            assert!(
                told.iter().all(|d| d.lost == PossibleLoss::Nothing),
                "seed {seed}: {told:?}"
            );
            let survey = index.engine().check();
            assert!(survey.is_empty(), "seed {seed}: {survey:?}");
        }
    });
}
