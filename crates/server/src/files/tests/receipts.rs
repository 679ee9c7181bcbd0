//! Receipts of commits: kept as long as their writer may ask again, and no longer.
use super::world::*;
use crate::*;

fn planned(world: &World, fid: Fid, log: u64) -> Planned {
    let change = [put(1, &(0..100), log)];
    world.plan(1, fid, &change, Default::default()).unwrap()
}

#[test]
fn a_close_sweeps_the_receipt_of_the_commit_before_it_and_none_later() {
    let world = World::new(2);
    let fid = world.create(0);
    world.open(1, fid, true).unwrap();
    world.finish(&planned(&world, fid, 1)).unwrap();
    world.close(1, fid, true);
    // Opened and committed again before the sweep.
    world.open(1, fid, true).unwrap();
    let second = planned(&world, fid, 2);
    let (seq, _) = world.finish(&second).unwrap();
    world.drain();
    world.restart(0);
    let again = world.finish(&second).unwrap();
    assert_eq!(again.0, seq, "a commit that happened was done again");
    // The owner does not know of the open any more; the close is still the end of the receipt.
    world.close(1, fid, true);
    world.drain();
    assert_eq!(world.count(0, keys::DECISIONS), 0);
}

#[test]
fn a_start_without_any_writer_of_before_sweeps_what_was_left() {
    let world = World::new(2);
    let files: Vec<Fid> = (0..300).map(|_| world.create(0)).collect();
    for fid in &files {
        world.write(1, *fid, 0..100, 1).unwrap();
    }
    let wide = world.create(0);
    let slice = forebay_index::SLICE;
    world.write(1, wide, slice - 1..slice + 1, 1).unwrap();
    world.restart(0);
    assert_eq!(world.count(0, keys::DECISIONS), 302, "receipts, and a span");
    world.files(0).forget_writers().unwrap();
    assert_eq!(world.count(0, keys::DECISIONS), 1, "the span stays");
    assert!(world.count(1, keys::DECISIONS) == 0);
}
