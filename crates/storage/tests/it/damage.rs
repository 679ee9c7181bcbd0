//! A flipped bit anywhere is reported or harmless; it is never returned as data, and costs what it touches, not the store. Newer and
//! foreign files are refused with advice.

use crate::support::*;
use forebay_storage::fault::{Call, FaultIo, HookedIo, Image};
use forebay_storage::{
    Batch, Durability, Error, Io, Keyspace, LogEnd, Options, PossibleLoss, Store,
};
use forebay_testkit::random::Random;
use forebay_testkit::seeds;
use std::io::ErrorKind;
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The history of [`built`], without its `gone`th batch after the tables were compacted.
fn steps(gone: Option<usize>) -> (Vec<Step>, Vec<Step>) {
    let mut log = history(6, 40);
    if let Some(gone) = gone {
        let batches = log.iter().enumerate();
        let at = batches
            .filter(|(_, s)| matches!(s, Step::Apply(_)))
            .nth(gone);
        let at = at.map(|(at, _)| at).unwrap();
        log.remove(at);
    }
    (history(5, 120), log)
}

fn state(gone: Option<usize>) -> Model {
    let (mut all, mut log) = steps(gone);
    all.append(&mut log);
    states(&all).pop().unwrap()
}

/// A killed store with tables on two levels, a manifest of several edits, and a log with records.
fn built() -> (Image, Model, Options) {
    let options = Options {
        level0_tables: 4,
        ..options(Durability::Disk)
    };
    let (first, log) = steps(None);
    let io = FaultIo::new(5);
    let store = open(&io, &options).unwrap();
    run(&store, &first);
    store.compact().unwrap();
    run(&store, &log);
    let model = state(None);
    assert_eq!(contents(&store).unwrap(), model);
    let image = io.kill();
    (image, model, options)
}

fn salvage(image: &Image, options: &Options) -> Store {
    let io = Arc::new(FaultIo::with_image(image, 1));
    Store::salvage(io, Path::new(DIR), options.clone()).unwrap()
}

/// All that a salvaged store shows, and all that it says it cannot.
fn salvaged(store: &Store) -> (Model, Vec<Error>) {
    let (mut model, mut errors) = (Model::new(), Vec::new());
    for keyspace in [0u8, 15] {
        for entry in store.scan(Keyspace(keyspace), Bound::Unbounded, Bound::Unbounded) {
            match entry {
                Ok((key, value)) => drop(model.insert((keyspace, key.to_vec()), value.to_vec())),
                Err(e) => errors.push(e),
            }
        }
    }
    (model, errors)
}

fn file(image: &Image, part: &str) -> Vec<PathBuf> {
    image
        .files()
        .filter(|(p, b)| p.to_string_lossy().contains(part) && !b.is_empty())
        .map(|(p, _)| p.to_path_buf())
        .collect()
}

fn length(image: &Image, path: &Path) -> u64 {
    image.files().find(|(p, _)| *p == path).unwrap().1.len() as u64
}

/// Where the bytes of a file end that are not zero.
fn written(image: &Image, path: &Path) -> u64 {
    let bytes = image.files().find(|(p, _)| *p == path).unwrap().1;
    bytes.iter().rposition(|b| *b != 0).unwrap() as u64 + 1
}

/// What is done to a file.
#[derive(Clone, Copy)]
enum Damage {
    FlipBit,
    /// Four bits of one byte.
    ChangeByte,
    CutAtByte,
}

impl Damage {
    /// Does it to places of these bytes of the file, each time to the whole image. Gives the damaged image, the place (of a bit: its
    /// number in the file), and what to say if something is wrong with it.
    fn tries<'a>(
        self,
        image: &'a Image,
        path: &'a Path,
        bytes: Range<u64>,
        random: &'a mut Random,
        tries: u64,
    ) -> impl Iterator<Item = (Image, u64, String)> + 'a {
        let (unit, name) = match self {
            Damage::FlipBit => (8, "bit"),
            Damage::ChangeByte => (1, "byte"),
            Damage::CutAtByte => (1, "cut at byte"),
        };
        (0..tries).map(move |_| {
            let at = bytes.start * unit + random.below((bytes.end - bytes.start) * unit);
            let mut bad = image.clone();
            match self {
                Damage::FlipBit => assert!(bad.flip_bit(path, at)),
                Damage::ChangeByte => bad.bytes_mut(path).unwrap()[at as usize] ^= 0x5a,
                Damage::CutAtByte => bad.bytes_mut(path).unwrap().truncate(at as usize),
            }
            let what = format!("{} {name} {at} of {}", path.display(), bytes.end * unit);
            (bad, at, what)
        })
    }
}

/// Opens the damaged image and compares what it says with the model: right, missing with an error, or an error.
fn survey(image: &Image, model: &Model, options: &Options, what: &str) -> Vec<Error> {
    let store = match open(&FaultIo::with_image(image, 1), options) {
        Ok(store) => store,
        Err(e) => return vec![e],
    };
    let mut errors = store.check();
    for ((keyspace, key), value) in model {
        match store.get(Keyspace(*keyspace), key) {
            Ok(got) => assert_eq!(got.as_deref(), Some(&value[..]), "{what}"),
            Err(e) => errors.push(e),
        }
    }
    match contents(&store) {
        Ok(held) => assert_eq!(held, *model, "{what}"),
        Err(e) => errors.push(e),
    }
    errors
}

#[test]
fn every_flipped_bit_in_a_table_is_reported() {
    let (image, model, options) = built();
    let tables = file(&image, ".tbl");
    assert!(tables.len() >= 2);
    let mut random = Random::new(1);
    for path in tables {
        let (all, tries) = (0..length(&image, &path), seeds::count(60, 20_000));
        for (bad, _, what) in Damage::FlipBit.tries(&image, &path, all, &mut random, tries) {
            let errors = survey(&bad, &model, &options, &what);
            assert!(
                errors.iter().any(|e| matches!(e, Error::Corrupt { .. })),
                "{what}: not reported: {errors:?}"
            );
            assert!(
                errors
                    .iter()
                    .any(|e| e.to_string().contains("forebay fsck")),
                "{what}"
            );
        }
    }
}

#[test]
fn a_flipped_bit_in_either_manifest_costs_nothing_and_is_told() {
    let (image, model, options) = built();
    let mut random = Random::new(2);
    for path in file(&image, "MANIFEST") {
        let (all, tries) = (0..written(&image, &path), seeds::count(200, 20_000));
        let mut told = 0;
        for (bad, _, what) in Damage::FlipBit.tries(&image, &path, all, &mut random, tries) {
            let store = open(&FaultIo::with_image(&bad, 1), &options);
            let store = store.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(contents(&store).unwrap(), model, "{what}");
            assert!(store.check().is_empty(), "{what}: not put right");
            let damage = &store.opened().damage;
            assert!(
                damage.iter().all(|d| d.lost == PossibleLoss::Nothing),
                "{what}"
            );
            assert!(damage.iter().all(|d| d.path() == path), "{what}");
            told += u64::from(!damage.is_empty());
            assert_eq!(salvaged(&salvage(&bad, &options)).0, model, "{what}");
        }
        // Not told: the padding of records, and the last seal, which a crash may tear.
        assert!(
            told * 10 > tries * 8,
            "{}: {told} of {tries}",
            path.display()
        );
    }
}

#[test]
fn a_manifest_cut_short_or_gone_costs_nothing() {
    let (image, model, options) = built();
    for path in file(&image, "MANIFEST") {
        let length = image.files().find(|(p, _)| **p == path).unwrap().1.len();
        for cut in (0..length.min(3000)).step_by(97).map(Some).chain([None]) {
            let mut bad = image.clone();
            match cut {
                Some(cut) => bad.bytes_mut(&path).unwrap().truncate(cut),
                None => assert!(bad.remove(&path)),
            }
            let what = format!("{} cut at {cut:?}", path.display());
            assert_eq!(salvaged(&salvage(&bad, &options)).0, model, "{what}");
            let io = FaultIo::with_image(&bad, 1);
            let store = open(&io, &options).unwrap();
            assert_eq!(contents(&store).unwrap(), model, "{what}");
            assert!(!store.opened().damage.is_empty(), "{what}");
            assert!(store.check().is_empty(), "{what}: not put right");
            // The other copy may be damaged next.
            let mut next = io.kill();
            drop(store);
            for other in file(&image, "MANIFEST").iter().filter(|p| **p != path) {
                assert!(next.remove(other));
            }
            let store = open(&FaultIo::with_image(&next, 1), &options).unwrap();
            assert_eq!(contents(&store).unwrap(), model, "{what}");
        }
    }
}

#[test]
fn one_flipped_bit_in_a_log_is_put_right_and_told() {
    let (image, model, options) = built();
    let mut random = Random::new(33);
    for path in file(&image, "wal-") {
        let (all, tries) = (0..written(&image, &path), seeds::count(300, 20_000));
        let mut told = 0;
        for (bad, bit, what) in Damage::FlipBit.tries(&image, &path, all, &mut random, tries) {
            let corrected = |store: &Store| {
                let byte = PossibleLoss::Corrected { byte: bit / 8 };
                store.opened().damage.iter().any(|d| d.lost == byte)
            };
            let salvaged_store = salvage(&bad, &options);
            assert_eq!(salvaged(&salvaged_store).0, model, "{what}");
            let store = open(&FaultIo::with_image(&bad, 1), &options);
            let store = store.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(contents(&store).unwrap(), model, "{what}");
            if corrected(&store) {
                assert!(corrected(&salvaged_store), "{what}");
                told += 1;
                let survey = store.survey();
                assert!(survey.iter().all(|d| d.lost.is_nothing()), "{survey:?}");
                assert!(!survey.is_empty(), "{what}");
            }
        }
        assert!(told > tries / 2, "{told} of {tries}");
    }
}

#[test]
fn one_flipped_bit_in_a_table_is_put_right_and_told() {
    let (image, model, options) = built();
    let mut random = Random::new(34);
    let mut corrected = 0;
    for path in file(&image, ".tbl") {
        let (all, tries) = (0..length(&image, &path), seeds::count(60, 20_000));
        for (bad, bit, what) in Damage::FlipBit.tries(&image, &path, all, &mut random, tries) {
            let store = open(&FaultIo::with_image(&bad, 1), &options).unwrap();
            assert_eq!(shows(&store, &model, &what), 0, "{what}");
            assert_eq!(contents(&store).unwrap(), model, "{what}");
            let told = PossibleLoss::Corrected { byte: bit / 8 };
            let met = store.damage_notes().iter().any(|d| d.lost == told);
            assert!(store.survey().iter().all(|d| d.lost.is_nothing()), "{what}");
            assert!(
                !met || store.survey().iter().any(|d| d.lost == told),
                "{what}"
            );
            corrected += u64::from(met);
            assert_eq!(salvaged(&salvage(&bad, &options)).0, model, "{what}");
        }
    }
    assert!(corrected > 0, "no block was put right");
}

#[test]
fn a_changed_byte_in_the_log_costs_its_batch_and_is_never_passed_over() {
    let (image, model, options) = built();
    let without: Vec<Model> = (0..)
        .take_while(|n| {
            *n < steps(None)
                .1
                .iter()
                .filter(|s| matches!(s, Step::Apply(_)))
                .count()
        })
        .map(|n| state(Some(n)))
        .collect();
    let mut random = Random::new(3);
    for path in file(&image, "wal-") {
        let (all, tries) = (0..written(&image, &path), seeds::count(300, 20_000));
        let mut refused = 0;
        for (bad, _, what) in Damage::ChangeByte.tries(&image, &path, all, &mut random, tries) {
            let store = salvage(&bad, &options);
            let (held, errors) = salvaged(&store);
            assert!(errors.is_empty(), "{what}: {errors:?}");
            let whole = held == model;
            // Some batches change nothing that later ones leave.
            assert!(
                whole || without.contains(&held),
                "{what}: more than one batch is lost"
            );
            let lost = store
                .opened()
                .damage
                .iter()
                .any(|d| d.lost != PossibleLoss::Nothing);
            assert!(whole || lost, "{what}: not told: {:?}", store.opened());
            match open(&FaultIo::with_image(&bad, 1), &options) {
                Ok(store) => {
                    assert_eq!(contents(&store).unwrap(), model, "{what}: passed over");
                    assert!(store.check().is_empty(), "{what}");
                }
                Err(e) => {
                    assert!(lost, "{what}: {e}");
                    assert!(e.to_string().contains("fsck --repair"), "{what}: {e}");
                    assert!(e.to_string().contains("mount --salvage"), "{what}: {e}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "{}: nothing refused", path.display());
    }
}

#[test]
fn a_killed_store_says_where_its_log_ended() {
    let (image, _, options) = built();
    let store = open(&FaultIo::with_image(&image, 1), &options).unwrap();
    let end = store.opened().end;
    assert!(
        matches!(end, LogEnd::Unclean { last, synced, cut: None } if synced == last),
        "{end:?}"
    );
}

#[test]
fn a_killed_store_with_a_torn_log_says_where_that_was_cut() {
    let options = options(Durability::Process);
    let io = FaultIo::new(5);
    let store = open(&io, &options).unwrap();
    run(&store, &history(6, 40));
    let io = FaultIo::with_image(&io.kill(), 1);
    let logs = io.list(Path::new(DIR)).unwrap().into_iter();
    let log = logs
        .map(|entry| entry.name)
        .filter(|n| n.ends_with(".log"))
        .max()
        .unwrap();
    let path = Path::new(DIR).join(&log);
    let file = io.open(&path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let end = bytes.iter().rposition(|b| *b != 0).unwrap() as u64;
    file.set_len(end - 2).unwrap();
    let store = open(&io, &options).unwrap();
    let LogEnd::Unclean { cut: Some(cut), .. } = store.opened().end else {
        panic!("{:?}", store.opened());
    };
    assert!(cut.offset > 0 && cut.offset < end, "{cut:?} {end}");
    let said = store.opened().end.to_string();
    for part in [&log, &format!("cut at byte {}", cut.offset)] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

/// A salvaged store with a damaged table tells it, shows nothing wrong, and all but what that may have held.
fn costs_what_it_tells(bad: &Image, model: &Model, options: &Options, what: &str) {
    let store = salvage(bad, options);
    let damage = store.survey();
    assert!(!damage.is_empty(), "{what}: not told");
    let inside = |key: &(u8, Vec<u8>)| {
        let key = [&[key.0], &key.1[..]].concat();
        damage.iter().any(|d| match &d.lost {
            PossibleLoss::Keys { first, last } => first[..] <= key[..] && key[..] <= last[..],
            _ => false,
        })
    };
    let (held, _) = salvaged(&store);
    for (key, value) in &held {
        assert_eq!(model.get(key), Some(value), "{what}: {key:?}");
    }
    for (key, value) in model {
        match store.get(Keyspace(key.0), &key.1) {
            Ok(got) => assert_eq!(got.as_deref(), Some(&value[..]), "{what}"),
            Err(_) => assert!(inside(key), "{what}: {key:?}"),
        }
        assert!(inside(key) || held.contains_key(key), "{what}: {key:?}");
    }
}

#[test]
fn a_changed_byte_in_a_table_costs_its_block_when_salvaged() {
    let (image, model, options) = built();
    let mut random = Random::new(4);
    for path in file(&image, ".tbl") {
        let (all, tries) = (0..length(&image, &path), seeds::count(60, 20_000));
        for (bad, _, what) in Damage::ChangeByte.tries(&image, &path, all, &mut random, tries) {
            costs_what_it_tells(&bad, &model, &options, &what);
        }
    }
}

#[test]
fn a_table_cut_short_keeps_its_whole_blocks() {
    let (image, model, options) = built();
    let mut random = Random::new(5);
    let mut lossy = 0;
    for path in file(&image, ".tbl") {
        let (all, tries) = (0..length(&image, &path), seeds::count(30, 2_000));
        for (bad, cut, what) in Damage::CutAtByte.tries(&image, &path, all, &mut random, tries) {
            costs_what_it_tells(&bad, &model, &options, &what);
            let store = salvage(&bad, &options);
            let lost = store
                .survey()
                .iter()
                .any(|d| d.lost != PossibleLoss::Nothing);
            let blocks = blocks_end(&image, &path);
            assert!(!lost || cut < blocks, "{what}, blocks end at {blocks}");
            lossy += u64::from(lost);
        }
    }
    assert!(lossy > 0, "no cut took a block");
}

/// Where the blocks of a table end: its footer says where the filter begins.
fn blocks_end(image: &Image, path: &Path) -> u64 {
    let bytes = image.files().find(|(p, _)| *p == path).unwrap().1;
    let at = bytes.len() - 64 + 24;
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn a_table_with_a_damaged_filter_region_or_footer_is_read_whole() {
    let (image, model, options) = built();
    let mut random = Random::new(6);
    for path in file(&image, ".tbl") {
        let behind = blocks_end(&image, &path)..length(&image, &path);
        let tries = seeds::count(60, 20_000);
        for (bad, _, what) in Damage::FlipBit.tries(&image, &path, behind, &mut random, tries) {
            let store = open(&FaultIo::with_image(&bad, 1), &options).unwrap();
            assert_eq!(contents(&store).unwrap(), model, "{what}");
            let damage = store.survey();
            assert!(!damage.is_empty(), "{what}: not told");
            assert!(
                damage.iter().all(|d| d.lost == PossibleLoss::Nothing),
                "{what}"
            );
            assert_eq!(salvaged(&salvage(&bad, &options)).0, model, "{what}");
        }
    }
}

#[test]
fn a_salvaged_store_takes_nothing() {
    let (image, model, options) = built();
    let store = salvage(&image, &options);
    let mut batch = Batch::new();
    batch.put(Keyspace(0), "key", "value");
    let error = store.apply(batch).unwrap_err().to_string();
    assert!(error.contains("salvaged"), "{error}");
    store.close().unwrap();
    assert_eq!(salvaged(&store).0, model);
}

#[test]
fn a_version_from_the_future_is_refused_with_advice() {
    let (image, _, options) = built();
    for (part, crc_end) in [("MANIFEST", 28), ("wal-", 28)] {
        let mut newer = image.clone();
        let path = file(&image, part).pop().unwrap();
        let bytes = newer.bytes_mut(&path).unwrap();
        bytes[8] = 200;
        let sum = forebay_checksum::crc32c(&bytes[..crc_end]);
        bytes[crc_end..crc_end + 4].copy_from_slice(&sum.to_le_bytes());
        let error = open(&FaultIo::with_image(&newer, 1), &options)
            .err()
            .expect("refused");
        assert!(matches!(error, Error::Format { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains("use the forebay release that wrote it"),
            "{error}"
        );
    }
}

#[test]
fn missing_files_are_noticed() {
    let (image, _, options) = built();
    let mut bad = image.clone();
    for copy in file(&image, "MANIFEST") {
        assert!(bad.remove(&copy));
    }
    let error = open(&FaultIo::with_image(&bad, 1), &options)
        .err()
        .expect("refused");
    assert!(
        matches!(error, Error::Format { .. }) && error.to_string().contains("MANIFEST"),
        "{error}"
    );
    let newest = file(&image, "wal-").pop().unwrap();
    let mut bad = image.clone();
    assert!(bad.remove(&newest));
    let error = open(&FaultIo::with_image(&bad, 1), &options).err();
    let error = error.expect("refused").to_string();
    assert!(error.contains(newest.to_str().unwrap()), "{error}");
    assert!(error.contains("fsck --repair"), "{error}");
    let store = salvage(&bad, &options);
    let damage = &store.opened().damage[0].lost;
    assert!(
        matches!(damage, PossibleLoss::Batches { last: None, .. }),
        "{damage:?}"
    );
    let mut bad = image.clone();
    assert!(bad.remove(&file(&image, ".tbl")[0]));
    let store = salvage(&bad, &options);
    assert!(store.check().iter().any(|e| e.to_string().contains(".tbl")));
}

/// The model's entries that tables keep twice.
fn kept_twice(model: &Model) -> Model {
    let twice = |(key, _): &(&(u8, Vec<u8>), &Vec<u8>)| Keyspace(key.0) >= Keyspace::FIRST_MIRRORED;
    let twice = model.iter().filter(twice);
    twice.map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// What the store shows of an entry of the model is right, or an error that is told.
fn shows(store: &Store, model: &Model, what: &str) -> usize {
    let mut errors = 0;
    for ((keyspace, key), value) in model {
        match store.get(Keyspace(*keyspace), key) {
            Ok(got) => assert_eq!(got.as_deref(), Some(&value[..]), "{what}"),
            Err(_) => errors += 1,
        }
    }
    errors
}

#[test]
fn what_is_kept_twice_is_there_whatever_becomes_of_one_file() {
    let (image, model, options) = built();
    let twice = kept_twice(&model);
    assert!(twice.len() > 20 && twice.len() < model.len());
    let mut random = Random::new(31);
    let copies = file(&image, ".copy");
    let copies = copies
        .into_iter()
        .filter(|p| p.to_string_lossy().contains("table-"));
    let mut lost = 0;
    for path in file(&image, ".tbl").into_iter().chain(copies) {
        let len = image.files().find(|(p, _)| **p == path).unwrap().1.len();
        for round in 0..seeds::count(30, 3000) {
            let at = random.below(len as u64) as usize;
            let mut bad = image.clone();
            let what = format!("{} at {at} of {len}, round {round}", path.display());
            let bytes = bad.bytes_mut(&path).unwrap();
            match round % 3 {
                0 => bytes.truncate(at),
                1 => bytes[at..(at + 4096).min(len)]
                    .iter_mut()
                    .for_each(|b| *b ^= 0x5a),
                _ => bytes[at..(at + 3).min(len)]
                    .iter_mut()
                    .for_each(|b| *b ^= 0x11),
            }
            let store = open(&FaultIo::with_image(&bad, 1), &options);
            let store = store.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(shows(&store, &twice, &what), 0, "{what}");
            let all = store.scan(Keyspace(15), Bound::Unbounded, Bound::Unbounded);
            let all: Result<Vec<_>, _> = all.collect();
            assert_eq!(all.unwrap().len(), twice.len(), "{what}");
            let errors = shows(&store, &model, &what);
            if errors > 0 {
                lost += 1;
                assert!(
                    store
                        .damage_notes()
                        .iter()
                        .any(|d| d.lost != PossibleLoss::Nothing),
                    "{what}"
                );
            }
            assert!(!store.check().is_empty(), "{what}");
        }
    }
    assert!(lost > 0, "no try lost anything: nothing was shown");
}

#[test]
fn a_check_tells_of_every_changed_byte_of_a_copy() {
    let (image, _, options) = built();
    let copies = file(&image, ".copy").into_iter();
    for path in copies.filter(|p| p.to_string_lossy().contains("table-")) {
        let len = image.files().find(|(p, _)| **p == path).unwrap().1.len();
        for at in 0..len {
            let mut bad = image.clone();
            bad.bytes_mut(&path).unwrap()[at] ^= 0x11;
            let store = open(&FaultIo::with_image(&bad, 1), &options).unwrap();
            assert!(
                !store.check().is_empty(),
                "{} at {at} of {len}",
                path.display()
            );
        }
    }
}

#[test]
fn a_missing_table_is_refused_by_name_and_salvaged_without_what_stood_in_it_alone() {
    let (image, model, options) = built();
    let twice = kept_twice(&model);
    let mut lost = 0;
    for path in file(&image, ".tbl") {
        let mut bad = image.clone();
        bad.remove(&path);
        let refused = open(&FaultIo::with_image(&bad, 1), &options)
            .err()
            .unwrap()
            .to_string();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            refused.contains(&name) && refused.contains("--salvage"),
            "{refused}"
        );
        let store = salvage(&bad, &options);
        assert_eq!(shows(&store, &twice, &name), 0, "{name}");
        lost += shows(&store, &model, &name);
        assert!(!store.survey().is_empty());
    }
    assert!(lost > 0, "no table held anything but what is mirrored");
    for path in file(&image, ".copy") {
        if !path.to_string_lossy().contains("table-") {
            continue;
        }
        let mut bad = image.clone();
        bad.remove(&path);
        let store = open(&FaultIo::with_image(&bad, 1), &options).unwrap();
        assert_eq!(store.opened().damage.len(), 1);
        assert_eq!(shows(&store, &model, "without a copy"), 0);
    }
}

/// A disk that cannot read one sector of a file.
fn unreadable_sector(image: &Image, path: &Path, sector: u64) -> HookedIo {
    let (at, bad) = (path.to_path_buf(), sector * 512..sector * 512 + 512);
    HookedIo::new(
        FaultIo::with_image(image, 1),
        move |path, call| match call {
            Call::Read { offset, len }
                if *path == *at && offset < bad.end && offset + len > bad.start =>
            {
                Err(rustix::io::Errno::IO.into())
            }
            _ => Ok(()),
        },
    )
}

#[test]
fn a_sector_of_a_log_that_the_disk_cannot_read_is_never_taken_for_its_end() {
    let (image, model, options) = built();
    let right = |store: &Store| {
        let found = salvaged(store).0.into_iter();
        found.filter(|(k, v)| model.get(k) == Some(v)).count()
    };
    for path in file(&image, "wal-") {
        let bytes = image.files().find(|(p, _)| **p == path).unwrap().1;
        let end = bytes.iter().rposition(|b| *b != 0).unwrap() as u64;
        let mut without = image.clone();
        without.bytes_mut(&path).unwrap().clear();
        let without = right(&salvage(&without, &options));
        let mut more = 0;
        for sector in 0..=end / 512 {
            let what = format!("{} sector {sector}", path.display());
            let disk = Arc::new(unreadable_sector(&image, &path, sector));
            let opened = Store::open(disk.clone(), Path::new(DIR), options.clone());
            assert!(matches!(opened, Err(Error::Io { .. })), "{what}");
            let store = Store::salvage(disk, Path::new(DIR), options.clone()).unwrap();
            let damage = &store.opened().damage;
            assert!(
                damage.iter().any(|d| !d.lost.is_nothing()),
                "{what}: {damage:?}"
            );
            more += u64::from(right(&store) > without);
        }
        assert!(more > end / 512 / 2, "{more} of {}", end / 512);
    }
}

#[test]
fn a_sector_of_a_table_that_the_disk_cannot_read_costs_what_stood_in_it() {
    let (image, model, options) = built();
    let twice = kept_twice(&model);
    let mut lost = 0;
    for path in file(&image, ".tbl") {
        let len = image.files().find(|(p, _)| **p == path).unwrap().1.len() as u64;
        for bad in 0..len.div_ceil(512) {
            let what = format!("{} sector {bad}", path.display());
            let disk = unreadable_sector(&image, &path, bad);
            let store = Store::open(Arc::new(disk), Path::new(DIR), options.clone());
            let store = store.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(shows(&store, &twice, &what), 0, "{what}");
            let errors = shows(&store, &model, &what);
            assert!(
                errors < model.len() - twice.len() || len <= 1024,
                "{what}: {errors}"
            );
            let told = store
                .damage_notes()
                .iter()
                .any(|d| d.lost != PossibleLoss::Nothing);
            assert_eq!(told, errors > 0, "{what}");
            assert!(!store.check().is_empty(), "{what}");
            lost += u64::from(errors > 0);
        }
    }
    assert!(lost > 0, "no sector held anything");
}

/// Batches over many keys, some in rising order, so that tables move down as they are and stay beside merged ones.
fn wide(seed: u64, length: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    let mut rising = 0;
    let mut step = |i: usize| match random.below(60) {
        0 => Step::Flush,
        1 if random.below(4) == 0 => Step::Compact,
        _ => {
            let mut batch = Batch::new();
            let from = match random.below(3) {
                0 => {
                    rising += 7;
                    rising
                }
                _ => random.below(600),
            };
            for key in from..from + 1 + random.below(9) {
                let (keyspace, key) = (Keyspace(key as u8 % 2 * 15), format!("{:05}", key % 700));
                match random.below(4) {
                    0 => batch.delete(keyspace, key),
                    _ => batch.put(keyspace, key, vec![i as u8; random.below(60) as usize + 1]),
                }
            }
            Step::Apply(batch)
        }
    };
    (0..length).map(&mut step).collect()
}

#[test]
fn without_a_manifest_tables_and_logs_give_back_the_same_rows() {
    let (mut deep, mut killed, mut torn) = (0, 0, 0);
    for seed in 1..seeds::count(60, 1000) {
        let mut random = Random::new(seed);
        let options = Options {
            memtable_bytes: 1200,
            level1_bytes: 1500,
            ..options(Durability::Disk)
        };
        let io = FaultIo::new(seed);
        let store = open(&io, &options).unwrap();
        run(&store, &wide(seed, random.below(400) as usize));
        // Tables that are superseded stay as long as it sees them.
        let snapshot = (random.below(2) == 0).then(|| store.snapshot());
        if random.below(3) > 0 {
            io.stop_after(1 + random.below(400));
            killed += 1;
        }
        run(&store, &wide(seed + 1_000_000, random.below(200) as usize));
        if random.below(3) == 0 {
            // Fails if the process is gone.
            let _ = store.close();
        }
        let cut = random.below(2) == 0;
        let image = if cut { io.crash() } else { io.kill() };
        drop((snapshot, store));
        let whole = salvage(&image, &options);
        let (model, errors) = salvaged(&whole);
        assert!(errors.is_empty(), "seed {seed}: {errors:?}");
        drop(whole);
        let tables = file(&image, "/table-").len();
        deep += usize::from(tables > 12);
        let mut bad = image.clone();
        match random.below(3) {
            // Both copies of the first edit.
            0 => {
                for path in file(&image, "MANIFEST") {
                    assert!(bad.flip_bit(&path, 8 * 40));
                }
            }
            _ => {
                for path in file(&image, "MANIFEST") {
                    assert!(bad.remove(&path));
                }
            }
        }
        let store = salvage(&bad, &options);
        assert!(!store.opened().damage.is_empty(), "seed {seed}: silence");
        let (found, errors) = salvaged(&store);
        if cut && !errors.is_empty() {
            // A power cut may leave the end of a table that was not synced yet, and not all before it: nobody else tells that it was not.
            torn += 1;
            assert!(!store.survey().is_empty());
            continue;
        }
        assert!(errors.is_empty(), "seed {seed}: {errors:?}");
        let differ = |key: &&(u8, Vec<u8>)| found.get(*key) != model.get(*key);
        let keys = model.keys().chain(found.keys());
        let differ: Vec<_> = keys.filter(differ).collect();
        assert!(differ.is_empty(), "seed {seed}, {tables} files: {differ:?}");
    }
    assert!(deep > 10 && killed > 10, "{deep} deep, {killed} killed");
    assert!(torn * 50 < killed, "{torn} torn");
}

#[test]
fn a_read_that_fails_once_while_a_scan_begins_is_an_error_and_shows_no_other_keys() {
    let options = options(Durability::Process);
    let io = FaultIo::new(1);
    let store = open(&io, &options).unwrap();
    let key = |i: u32| format!("key-{i:05}");
    for i in 0..2000 {
        let mut batch = Batch::new();
        batch.put(Keyspace(0), key(i), vec![7; 40]);
        store.apply(batch).unwrap();
    }
    store.compact().unwrap();
    let image = io.kill();
    let mut failed = 0;
    for (n, first) in (1..20).flat_map(|n| [3, 777, 1500].map(|first| (n, first))) {
        let io = FaultIo::with_image(&image, 1);
        let store = open(&io, &options).unwrap();
        io.fail_after(n, ErrorKind::Other);
        let from = key(first);
        let scan = store.scan(
            Keyspace(0),
            Bound::Included(from.as_bytes()),
            Bound::Unbounded,
        );
        let mut want = first..2000;
        for entry in scan {
            let Ok((found, _)) = entry else {
                failed += 1;
                want = 0..0;
                break;
            };
            let next = want.next().map(key);
            assert_eq!(
                Some(&found[..]),
                next.as_ref().map(|k| k.as_bytes()),
                "call {n} failed"
            );
        }
        assert!(
            want.is_empty(),
            "{want:?} are missing, and no error tells so"
        );
    }
    assert!(failed > 0, "no call of a scan failed");
}
