//! Records of patterns that cannot be read: what they may have held is an error, the rest stays as it is, and the check names them.
use super::super::check::check;
use super::patterned::{Layer, Model};
use super::world::*;
use crate::*;
use forebay_proto::files::*;
use forebay_storage::Batch;
use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;

/// A file of two strided writers, a few bytes over them by a third commit, and a hole: what is at each byte.
fn file() -> (World, Fid, Model) {
    let world = World::new(2);
    let fid = world.create(0);
    let mut model = Model::default();
    let mut commit = |writer: Member, layer: Layer, fold: bool| {
        let attr = layer.attr();
        let planned = world
            .plan_layer(writer, fid, &layer, &attr, |_| fold)
            .unwrap();
        world.finish(&planned).unwrap();
        model.apply(&layer, &attr);
    };
    let strided = |writer: Member, log: u64, start: u64| {
        let (mut layer, mut end) = (Layer::default(), 0);
        for i in 0..20 {
            layer.write(start + 20 * i, 10, (writer, log), &mut end);
        }
        layer
    };
    commit(0, strided(0, 1, 1000), true);
    commit(1, strided(1, 2, 1010), true);
    // Over the first pattern.
    commit(0, strided(0, 3, 1005), true);
    let mut few = Layer::default();
    few.write(1100, 30, (1, 4), &mut 0);
    commit(1, few, false);
    let mut hole = Layer::default();
    hole.cuts.push(1200..1250);
    commit(1, hole, false);
    (world, fid, model)
}

/// Keys of a kind, in order.
fn keys_of(world: &World, kind: u8) -> Vec<bytes::Bytes> {
    let all = world.store(0).scan(keys::PATTERNS, Unbounded, Unbounded);
    let keys = all.map(|entry| entry.unwrap().0);
    keys.filter(|key| key[8] == kind).collect()
}

/// Changes one record and starts the owner anew.
fn damage(world: &World, key: &[u8], change: impl Fn(&mut Vec<u8>)) {
    let store = world.store(0);
    let mut value = store.get(keys::PATTERNS, key).unwrap().unwrap().to_vec();
    change(&mut value);
    let mut batch = Batch::new();
    batch.put(keys::PATTERNS, key.to_vec(), value);
    store.apply(batch).unwrap();
    world.restart(0);
}

/// Bytes as they are found, those that cannot be read apart.
fn found(world: &World, fid: Fid) -> (BTreeMap<u64, (u64, u64)>, Vec<u64>) {
    let (mut whole, mut lost) = (BTreeMap::new(), Vec::new());
    for e in world.read(1, fid).unwrap().1 {
        for at in e.offset..e.end() {
            if e.log == LOST_LOG {
                lost.push(at);
            } else {
                whole.insert(at, (e.log, e.addr + (at - e.offset)));
            }
        }
    }
    (whole, lost)
}

fn unreadable(world: &World) -> Vec<String> {
    let problems = check(&world.stores()).unwrap();
    // Others name the file too.
    let of_records = problems
        .into_iter()
        .filter(|p| p.text.starts_with("member 0: file "));
    of_records.map(|p| p.text).collect()
}

#[test]
fn bytes_that_a_damaged_pattern_may_have_held_are_lost_and_no_others() {
    let (world, fid, model) = file();
    // That of the second commit, in its frame.
    let key = keys_of(&world, 0)[1].clone();
    damage(&world, &key, |value| *value.last_mut().unwrap() ^= 1);
    let (whole, lost) = found(&world, fid);
    assert!(!lost.is_empty());
    for at in 900..1500 {
        let Some((_, log, addr)) = model.bytes.get(&at).copied() else {
            // A hole that is newer, and what is after its bounds, stays a hole.
            assert!(!whole.contains_key(&at));
            let older = !(1200..1250).contains(&at) && (1010..1400).contains(&at);
            assert_eq!(lost.contains(&at), older, "{at}");
            continue;
        };
        match log {
            // Newer than it.
            3 | 4 => assert_eq!(whole.get(&at), Some(&(log, addr)), "{at}"),
            // Itself.
            2 => assert!(lost.contains(&at), "{at}"),
            // Older: it may have been over it, where its bounds are.
            _ => assert_eq!(lost.contains(&at), (1010..1400).contains(&at), "{at}"),
        }
    }
    let told = unreadable(&world);
    assert_eq!(told.len(), 1);
    let named = |what: &str| told[0].contains(what);
    assert!(
        named(&format!("{:#x}", fid.0)) && named("checksum") && named("expected"),
        "{told:?}"
    );
    // Readers by patterns ask for what is lost, and get the same.
    let by_patterns = world.by_patterns(1, fid);
    for (at, (_, log, addr)) in by_patterns {
        match log {
            LOST_LOG => assert!(lost.contains(&at)),
            log => assert_eq!(whole.get(&at), Some(&(log, addr))),
        }
    }
}

#[test]
fn a_pattern_whose_bounds_are_not_known_may_have_held_anything_older() {
    let (world, fid, model) = file();
    let key = keys_of(&world, 0)[1].clone();
    damage(&world, &key, |value| value[3] ^= 1);
    let (whole, lost) = found(&world, fid);
    for (at, (_, log, addr)) in &model.bytes {
        match log {
            3 | 4 => assert_eq!(whole.get(at), Some(&(*log, *addr))),
            _ => assert!(lost.contains(at)),
        }
    }
    assert!(lost.contains(&0) && !lost.contains(&1220));
    assert_eq!(unreadable(&world).len(), 1);
    // Written over, they are right again; cut off as a whole, nothing is left of it.
    world.write(1, fid, 0..1300, 9).unwrap();
    let (whole, lost) = found(&world, fid);
    assert!(lost.iter().all(|at| *at >= 1300) && whole.contains_key(&0));
    world.truncate(1, fid, 0).unwrap();
    let shown = world.view(0, fid).unwrap();
    assert_eq!(
        (shown.size, shown.bytes, shown.layout),
        (0, 0, ExtentLayout::OwnerOnly)
    );
    assert_eq!(world.count(0, keys::PATTERNS), 0);
    assert!(check(&world.stores()).unwrap().is_empty());
}

#[test]
fn a_pattern_of_a_newer_version_says_so() {
    let (world, fid, _) = file();
    for (at, what) in [(21, "newer"), (0, "newer")] {
        let key = keys_of(&world, 0)[0].clone();
        damage(&world, &key, |value| {
            value[at] = if at == 0 { 9 } else { 0x0f }
        });
        let (_, lost) = found(&world, fid);
        assert!(!lost.is_empty());
        let told = unreadable(&world);
        assert!(told[0].to_lowercase().contains(what), "{told:?}");
    }
}

#[test]
fn a_damaged_hole_loses_what_it_may_have_taken_away() {
    let (world, fid, model) = file();
    let key = keys_of(&world, 2)[0].clone();
    damage(&world, &key, |value| value[3] ^= 1);
    let (whole, lost) = found(&world, fid);
    for at in 900..1500 {
        match model.bytes.get(&at) {
            // An extent of the index: newer than any pattern, and no hole of patterns is over it.
            Some((_, 4, addr)) => assert_eq!(whole.get(&at), Some(&(4, *addr))),
            Some(_) => assert!(lost.contains(&at)),
            None => assert!(!whole.contains_key(&at)),
        }
    }
    assert!(unreadable(&world)[0].contains("hole"));
}

#[test]
fn a_damaged_merged_record_is_merged_again() {
    let (world, fid, model) = file();
    let laminate = Laminate { fid };
    world.ask(0, 0, laminate).unwrap();
    let key = keys_of(&world, 3)[0].clone();
    for at in [2, 15] {
        damage(&world, &key, |value| value[at] ^= 1);
        assert_eq!(world.by_patterns(1, fid), model.bytes);
    }
    damage(&world, &key, |value| *value.last_mut().unwrap() ^= 1);
    assert_eq!(world.by_patterns(1, fid), model.bytes);
    assert!(check(&world.stores()).unwrap().is_empty());
}

#[test]
fn without_its_count_a_pattern_does_not_bring_back_what_was_taken_from_it() {
    for laminate in [true, false] {
        let (world, fid, model) = file();
        for key in keys_of(&world, 1) {
            damage(&world, &key, |value| value[3] ^= 1);
        }
        assert_eq!(found(&world, fid).1, Vec::<u64>::new());
        if laminate {
            let laminate = Laminate { fid };
            world.ask(0, 0, laminate).unwrap();
        } else {
            // Counts are written anew.
            world.write(1, fid, 1300..1305, 9).unwrap();
            world.restart(0);
            world.ask(0, 0, Laminate { fid }).unwrap();
        }
        let (whole, _) = found(&world, fid);
        for at in 900..1300 {
            let wanted = model.bytes.get(&at).map(|(_, log, addr)| (*log, *addr));
            assert_eq!(whole.get(&at).copied(), wanted, "{at}");
        }
        assert!(check(&world.stores()).unwrap().is_empty());
    }
}

#[test]
fn removing_a_file_gives_back_what_a_damaged_pattern_held_in_logs_that_others_name() {
    let world = World::new(2);
    let fid = world.create(0);
    let mut end = 0;
    for start in [1000, 5000, 9000] {
        let mut layer = Layer::default();
        for i in 0..20 {
            layer.write(start + 20 * i, 10, (1, 2), &mut end);
        }
        let attr = layer.attr();
        let planned = world.plan_layer(1, fid, &layer, &attr, |_| true).unwrap();
        world.finish(&planned).unwrap();
    }
    let key = keys_of(&world, 0)[2].clone();
    damage(&world, &key, |value| *value.last_mut().unwrap() ^= 1);
    world.unlink(fid);
    world.drain();
    assert_eq!(world.count(0, keys::PATTERNS), 0);
    let freed = world.net.freed.lock();
    let of_log = &freed[&(1, 2)];
    // The log is this file's alone.
    for addr in [0, 199, 200, 399, 400, end - 1] {
        assert!(of_log.iter().any(|r| r.contains(&addr)), "{addr}");
    }
    assert_eq!(freed.len(), 1);
}
