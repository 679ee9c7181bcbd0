//! Containers that are encoded against an earlier version of their file: they store less and read the same, whatever becomes of the
//! earlier version, and its space is free once nothing needs it.
use crate::common::{Fixture, options};
use crate::encoded::{
    assert_counted, assert_empties, assert_read, checked, containers, encoding, flip,
};
use forebay_data::container::{self, Container, ContainerId, EncodedParts};
use forebay_data::{AppendOptions, LogId, SeriesId};
use forebay_proto::Fid;
use forebay_testkit::random::{Random, seeded_bytes};
use rustix::io::Errno;

const MIB: usize = 1 << 20;

/// Weights as they are in checkpoints: mantissas of any bits, few exponents.
fn weights(seed: u64, bytes: usize) -> Vec<u8> {
    let mut weights = seeded_bytes(seed, bytes);
    for word in weights.chunks_exact_mut(4) {
        word[3] = 0x3c + (word[3] & 1);
    }
    weights
}

/// The same after some steps more: each one differs by a little.
fn trained(weights: &[u8], seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let step = |word: &[u8]| {
        let word = u32::from_le_bytes(word.try_into().unwrap());
        word.wrapping_add(random.next() as u32 & 255).to_le_bytes()
    };
    weights.chunks_exact(4).flat_map(step).collect()
}

/// A version of a series in one log, appended in parts of `step` bytes; every other part before the one that it follows.
fn version(fixture: &Fixture, fid: u64, bytes: &[u8], step: usize) -> LogId {
    version_of(fixture, fid, bytes, step, 1)
}

fn version_of(fixture: &Fixture, fid: u64, bytes: &[u8], step: usize, series: u64) -> LogId {
    let hint = "auto,f32".parse().unwrap();
    let series = Some(SeriesId(series));
    let log = fixture.logs.create_log_in(Fid(fid), hint, series).unwrap();
    let mut parts: Vec<(usize, &[u8])> = bytes.chunks(step).enumerate().collect();
    if fid % 2 == 1 {
        parts.chunks_mut(2).for_each(<[_]>::reverse);
    }
    for (i, part) in parts {
        let options = AppendOptions {
            offset: Some((i * step) as u64),
            ..AppendOptions::default()
        };
        fixture.logs.append_with(log, part, options).unwrap();
    }
    fixture.logs.flush(log, false).unwrap();
    fixture.logs.settle().unwrap();
    log
}

/// What a log reads, of bytes that `version` appended.
fn in_log(fid: u64, bytes: &[u8], step: usize) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = bytes.chunks(step).collect();
    if fid % 2 == 1 {
        parts.chunks_mut(2).for_each(<[_]>::reverse);
    }
    parts.concat()
}

/// Two versions of this length, the second encoded against the first: the log and the bytes of each.
fn two_versions(fixture: &Fixture, len: usize) -> [(LogId, Vec<u8>); 2] {
    let first = weights(1, len);
    let second = trained(&first, 2);
    let logs = [(2, &first), (4, &second)].map(|(fid, bytes)| version(fixture, fid, bytes, MIB));
    assert!(!with_base(fixture).is_empty());
    [(logs[0], first), (logs[1], second)]
}

fn with_base(fixture: &Fixture) -> Vec<Container> {
    let mut containers = containers(fixture);
    containers.retain(|c| c.base().is_some());
    containers
}

fn holds(fixture: &Fixture) -> Vec<ContainerId> {
    let holds = container::all_holds(&fixture.store);
    holds.map(|hold| hold.unwrap().0).collect()
}

fn unique(fixture: &Fixture) -> u64 {
    fixture.logs.stats().unique
}

#[test]
fn a_later_version_is_stored_as_what_changed_and_reads_the_same() {
    for step in [MIB, 300_000, 47_008] {
        let mut fixture = Fixture::new(encoding());
        let first = weights(1, 4 * MIB);
        let versions = [first.clone(), trained(&first, 2), trained(&first, 3)];
        let mut logs = vec![version(&fixture, 1, &versions[0], step)];
        let alone = unique(&fixture);
        assert!(with_base(&fixture).is_empty());
        for (i, bytes) in versions.iter().enumerate().skip(1) {
            let before = unique(&fixture);
            logs.push(version(&fixture, 1 + i as u64, bytes, step));
            let more = unique(&fixture) - before;
            assert!(more * 2 < alone, "step {step}: {more} after {alone}");
        }
        let based = with_base(&fixture);
        // All against the first: one step to decode.
        let needed = based
            .iter()
            .flat_map(|c| container::containers_of(c.base().unwrap()));
        let mut needed: Vec<ContainerId> = needed.collect();
        needed.sort_unstable();
        assert!(based.len() > 4 && based.iter().all(|c| needed.binary_search(&c.id).is_err()));
        assert_eq!(
            holds(&fixture),
            based.iter().map(|c| c.id).collect::<Vec<_>>()
        );
        for settings in [encoding(), options()] {
            for (i, (log, bytes)) in logs.iter().zip(&versions).enumerate() {
                assert_read(&fixture, *log, &in_log(1 + i as u64, bytes, step));
            }
            assert_counted(&fixture);
            assert_eq!(checked(&fixture), (0, 0));
            fixture.reopen(settings);
        }
        fixture.logs.free(&[(logs[1], 0..u64::MAX)]).unwrap();
        fixture.logs.clean(true).unwrap();
        assert!(holds(&fixture).len() < based.len());
        assert_read(&fixture, logs[2], &in_log(3, &versions[2], step));
        fixture.logs.free(&[(logs[2], 0..u64::MAX)]).unwrap();
        fixture.logs.clean(true).unwrap();
        assert_eq!(holds(&fixture), []);
        assert_counted(&fixture);
        assert_read(&fixture, logs[0], &in_log(1, &versions[0], step));
        assert_empties(&fixture);
    }
}

#[test]
fn with_the_base_deleted_all_is_readable_and_its_space_is_free_after_a_collection() {
    for crashes in [false, true] {
        let mut fixture = Fixture::new(encoding());
        let first = weights(1, 4 * MIB);
        let second = trained(&first, 2);
        let key = version(&fixture, 2, &first, MIB);
        let alone = unique(&fixture);
        let log = version(&fixture, 4, &second, MIB);
        assert!(!with_base(&fixture).is_empty());
        fixture.logs.free(&[(key, 0..u64::MAX)]).unwrap();
        // The base is held.
        assert!(unique(&fixture) > alone);
        assert_read(&fixture, log, &second);
        assert_counted(&fixture);
        if crashes {
            fixture.crash();
            assert_read(&fixture, log, &second);
        }
        fixture.logs.clean(true).unwrap();
        assert_eq!(with_base(&fixture), []);
        assert_eq!(holds(&fixture), []);
        let now = unique(&fixture);
        assert!(now < alone * 102 / 100, "{now} of {alone}");
        assert_read(&fixture, log, &second);
        assert_counted(&fixture);
        assert_eq!(checked(&fixture), (0, 0));
        // One that comes now finds none, and is one for those after it.
        let third = version(&fixture, 6, &trained(&first, 3), MIB);
        assert_eq!(with_base(&fixture), []);
        let fourth = trained(&first, 4);
        let last = version(&fixture, 8, &fourth, MIB);
        assert!(!with_base(&fixture).is_empty(), "crashed: {crashes}");
        assert_read(&fixture, last, &fourth);
        assert_read(&fixture, third, &trained(&first, 3));
        fixture.logs.free(&[(last, 0..u64::MAX)]).unwrap();
        fixture.logs.clean(true).unwrap();
        assert_empties(&fixture);
    }
}

#[test]
fn of_a_base_that_is_freed_in_part_only_what_needs_that_is_encoded_anew() {
    let fixture = Fixture::new(encoding());
    let [(key, first), (log, second)] = two_versions(&fixture, 6 * MIB);
    let before = with_base(&fixture).len();
    let lost = MIB as u64..MIB as u64 + 500_000;
    fixture.logs.free(&[(key, lost.clone())]).unwrap();
    fixture.logs.clean(true).unwrap();
    let after = with_base(&fixture).len();
    assert!(after < before && after > 0, "{after} of {before}");
    assert_eq!(holds(&fixture).len(), after);
    assert_read(&fixture, log, &second);
    assert_read(&fixture, key, &first[..MIB]);
    assert_counted(&fixture);
    assert_eq!(checked(&fixture), (0, 0));
    // Parts of the later version go, and containers move: bases are kept.
    let parts = (0..6).map(|i| i * MIB as u64 + 4096..(i + 1) * MIB as u64 - 9000);
    let parts: Vec<_> = parts.map(|range| (log, range)).collect();
    fixture.logs.free(&parts).unwrap();
    fixture.logs.clean(true).unwrap();
    for i in 0..6 {
        let kept = [i * MIB..i * MIB + 4096, (i + 1) * MIB - 9000..(i + 1) * MIB];
        for range in kept {
            let read = fixture.read(log, range.start as u64, range.len()).unwrap();
            assert!(read == second[range.clone()], "{range:?}");
        }
    }
    assert_counted(&fixture);
    fixture.logs.free(&[(log, 0..u64::MAX)]).unwrap();
    fixture.logs.clean(true).unwrap();
    assert_empties(&fixture);
}

#[test]
fn a_damaged_base_is_told_by_all_that_need_it_and_healed_by_the_same_bytes() {
    let fixture = Fixture::new(encoding());
    let [(key, first), (log, second)] = two_versions(&fixture, MIB);
    let based = with_base(&fixture);
    let base = container::containers_of(based[0].base().unwrap())
        .next()
        .unwrap();
    let base = container::load(&fixture.store, base).unwrap().unwrap();
    flip(&fixture, &base, 1 + 5);
    for log in [key, log] {
        let error = fixture.read(log, 5 * 4096 + 100, 8).unwrap_err();
        assert_eq!(error.errno(), Errno::IO);
        assert!(
            error
                .to_string()
                .contains(&format!("container {}", base.id)),
            "{error}"
        );
    }
    assert!(fixture.read(log, 0, 4 * 4096).unwrap() == second[..4 * 4096]);
    assert!(fixture.read(log, 7 * 4096, MIB / 2).unwrap() == second[7 * 4096..][..MIB / 2]);
    let (of_containers, of_spans) = checked(&fixture);
    assert!(
        of_containers >= 2 && of_spans >= 2,
        "{of_containers} {of_spans}"
    );
    // Written again at once, by a process that knows the container as whole.
    let at_once = version_of(&fixture, 10, &second, MIB, 9);
    assert!(fixture.read(at_once, 0, MIB).unwrap() == second);
    // A chunk of the later version is not named again while it cannot be read.
    let again = version_of(&fixture, 6, &second, MIB, 9);
    assert!(fixture.read(again, 0, MIB).unwrap() == second);
    let healed = version_of(&fixture, 8, &first, MIB, 9);
    for (log, bytes) in [
        (key, &first),
        (log, &second),
        (again, &second),
        (healed, &first),
    ] {
        assert_read(&fixture, log, bytes);
    }
    assert_counted(&fixture);
}

#[test]
fn a_base_with_a_damaged_head_is_told_by_all_that_need_it_and_healed_by_the_same_bytes() {
    let mut fixture = Fixture::new(encoding());
    let [(key, first), (log, second)] = two_versions(&fixture, MIB);
    let based = with_base(&fixture);
    let base = container::containers_of(based[0].base().unwrap()).next();
    let base = container::load(&fixture.store, base.unwrap());
    let base = base.unwrap().unwrap();
    // What was parsed before is not remembered.
    fixture.crash();
    flip(&fixture, &base, EncodedParts::HEAD);
    for log in [key, log] {
        for at in [0, 5 * 4096 + 100, 9 * 4096] {
            let error = fixture.read(log, at, 8).unwrap_err();
            assert_eq!(error.errno(), Errno::IO);
            let named = format!("container {}", base.id);
            assert!(error.to_string().contains(&named), "{error}");
        }
    }
    let (of_containers, of_spans) = checked(&fixture);
    let damage = format!("{of_containers} {of_spans}");
    assert!(of_containers >= 2 && of_spans >= 2, "{damage}");
    let healed = version_of(&fixture, 8, &first, MIB, 9);
    for (log, bytes) in [(key, &first), (log, &second), (healed, &first)] {
        assert_read(&fixture, log, bytes);
    }
    assert_eq!(checked(&fixture), (0, 0));
    assert_counted(&fixture);
}

#[test]
fn a_form_that_is_asked_for_needs_no_base() {
    let fixture = Fixture::new(encoding());
    let [_, (log, second)] = two_versions(&fixture, 2 * MIB);
    let hint = "raw".parse().unwrap();
    fixture.logs.recode(&[(log, 0..u64::MAX)], hint).unwrap();
    assert_eq!(with_base(&fixture), []);
    fixture.logs.clean(true).unwrap();
    assert_eq!(holds(&fixture), []);
    assert_read(&fixture, log, &second);
    assert_counted(&fixture);
    assert_empties(&fixture);
}

#[test]
fn files_that_have_nothing_in_common_are_encoded_alone() {
    let fixture = Fixture::new(encoding());
    let mut logs = Vec::new();
    for fid in 1..4 {
        let bytes = weights(fid, 3 * MIB);
        logs.push((version(&fixture, 2 * fid, &bytes, MIB), bytes));
    }
    assert_eq!(with_base(&fixture), []);
    for (log, bytes) in &logs {
        assert_read(&fixture, *log, bytes);
    }
    assert_empties(&fixture);
}

#[test]
fn another_member_gets_the_bytes_of_what_needs_a_base() {
    // `Fixture::read` reads as another member too: pieces of a length that travel encoded otherwise.
    let fixture = Fixture::new(encoding());
    let [_, (log, second)] = two_versions(&fixture, 2 * MIB);
    for (at, len) in [(0, MIB), (4096, 128 << 10), (MIB - 10, 70_000)] {
        assert!(fixture.read(log, at as u64, len).unwrap() == second[at..at + len]);
    }
}
