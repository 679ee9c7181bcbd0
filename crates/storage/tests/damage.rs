//! A flipped bit anywhere is reported or harmless; it is never returned as data. Newer and foreign files are refused with advice.
#![allow(clippy::unwrap_used)]
mod support;

use forebay_storage::fault::{FaultIo, Image};
use forebay_storage::{Durability, Error, Keyspace, Options};
use std::path::PathBuf;
use support::*;

/// A closed store with tables on two levels, a manifest of several edits, and a log with records.
fn built() -> (Image, Model, Options) {
    let options = Options {
        level0_tables: 4,
        ..options(Durability::Disk)
    };
    let steps = history(5, 120);
    let io = FaultIo::new(5);
    let store = open(&io, &options).unwrap();
    run(&store, &steps);
    store.compact().unwrap();
    let mut all: Vec<Step> = history(6, 40);
    run(&store, &all);
    let mut states_of = steps;
    states_of.append(&mut all);
    let model = states(&states_of).pop().unwrap();
    assert_eq!(contents(&store).unwrap(), model);
    store.close().unwrap();
    let image = io.kill();
    (image, model, options)
}

fn file(image: &Image, part: &str) -> Vec<PathBuf> {
    image
        .files()
        .filter(|(p, b)| p.to_string_lossy().contains(part) && !b.is_empty())
        .map(|(p, _)| p.to_path_buf())
        .collect()
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
    let mut random = Random(1);
    for path in tables {
        let bits = image.files().find(|(p, _)| **p == path).unwrap().1.len() as u64 * 8;
        for _ in 0..soak(60, 20_000) {
            let bit = random.below(bits);
            let mut bad = image.clone();
            assert!(bad.flip_bit(&path, bit));
            let what = format!("{} bit {bit} of {bits}", path.display());
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
fn every_flipped_bit_in_log_and_manifest_is_reported_or_harmless() {
    let (image, model, options) = built();
    let mut random = Random(2);
    for path in file(&image, "wal-")
        .into_iter()
        .chain(file(&image, "MANIFEST"))
    {
        let bits = image.files().find(|(p, _)| **p == path).unwrap().1.len() as u64 * 8;
        let mut reported = 0;
        let tries = soak(300, 20_000);
        for _ in 0..tries {
            let bit = random.below(bits.min(40_000));
            let mut bad = image.clone();
            assert!(bad.flip_bit(&path, bit));
            // Harmless: padding, the zeros behind the end, the seal. `survey` compares all data.
            let errors = survey(
                &bad,
                &model,
                &options,
                &format!("{} bit {bit}", path.display()),
            );
            reported += u64::from(!errors.is_empty());
        }
        assert!(reported > 0, "{}: nothing reported", path.display());
    }
}

#[test]
fn a_version_from_the_future_is_refused_with_advice() {
    let (image, _, options) = built();
    for (part, crc_end) in [("MANIFEST", 28), ("wal-", 28)] {
        let mut newer = image.clone();
        let path = file(&image, part).pop().unwrap();
        let bytes = newer.bytes_mut(&path).unwrap();
        bytes[8] = 200;
        let sum = crc32c::crc32c(&bytes[..crc_end]);
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
    assert!(bad.remove(&file(&image, "MANIFEST")[0]));
    let error = open(&FaultIo::with_image(&bad, 1), &options)
        .err()
        .expect("refused");
    assert!(
        matches!(error, Error::Format { .. }) && error.to_string().contains("MANIFEST"),
        "{error}"
    );
    let mut bad = image.clone();
    assert!(bad.remove(&file(&image, ".tbl")[0]));
    let store = open(&FaultIo::with_image(&bad, 1), &options).unwrap();
    assert!(store.check().iter().any(|e| e.to_string().contains(".tbl")));
    assert!(contents(&store).is_err());
}
