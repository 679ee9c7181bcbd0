//! After a power cut that lost the bytes of a commit without a sync, but not its records, readers see what was there before it,
//! and holes where there was nothing. A log loses all of its bytes or none here.
use super::super::check::check;
use super::world::*;
use crate::*;
use forebay_index::SLICE;
use forebay_proto::files::{FilesRequest, SyncFile};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

const OLD: u64 = 1;
const NEW: u64 = 2;

/// A file with these bytes of log `OLD`, from a run that ended in order: an fsync may have promised them.
fn file_of_earlier_run(world: &World, range: Range<u64>) -> Fid {
    let fid = world.create(0);
    world.write(0, fid, range, OLD).unwrap();
    world.drain();
    restart_all(world);
    fid
}

/// All members end in order, and start again.
fn restart_all(world: &World) {
    let members = 0..world.net.members;
    for k in members.clone() {
        world.files(k).outbox.release_displaced().unwrap();
    }
    members.clone().for_each(|k| world.stop(k));
    members.clone().for_each(|k| world.start(k));
    members
        .clone()
        .for_each(|k| world.files(k).recover().unwrap());
    world.restore(members);
}

/// What an fsync of the file promises from here on; it has nothing pending.
fn sync(world: &World, fid: Fid) {
    let request = SyncFile { fid };
    world.ask(0, fid.owner(), request).unwrap();
}

/// Size, and the logs that hold bytes, by offset.
fn found(world: &World, fid: Fid) -> (u64, Vec<(Range<u64>, u64)>) {
    let (attr, extents) = world.read(0, fid).unwrap();
    let mut found: Vec<(Range<u64>, u64)> = Vec::new();
    for e in extents {
        match found.last_mut() {
            Some((range, log)) if range.end == e.offset && *log == e.log => range.end = e.end(),
            _ => found.push((e.offset..e.end(), e.log)),
        }
    }
    (attr.size, found)
}

fn whole(world: &World) {
    world.drain();
    assert_eq!(check(&world.stores()).unwrap(), vec![]);
}

#[test]
fn an_append_in_a_page_of_its_own_was_never_written() {
    let world = World::new(1);
    let fid = file_of_earlier_run(&world, 0..8192);
    world.write(0, fid, 8192..20_000, NEW).unwrap();
    world.cut_power((0, NEW));
    assert_eq!(found(&world, fid), (8192, vec![(0..8192, OLD)]));
    whole(&world);
}

#[test]
fn a_file_synced_in_this_run_loses_only_what_came_later() {
    let world = World::new(1);
    let fid = world.create(0);
    world.write(0, fid, 0..8192, OLD).unwrap();
    sync(&world, fid);
    world.write(0, fid, 12_288..16_384, NEW).unwrap();
    world.cut_power((0, NEW));
    assert_eq!(found(&world, fid), (8192, vec![(0..8192, OLD)]));
    whole(&world);
}

#[test]
fn what_is_written_after_a_truncate_and_a_restart_in_order_leaves_the_empty_file() {
    let world = World::new(1);
    let fid = file_of_earlier_run(&world, 0..8192);
    world.truncate(0, fid, 0).unwrap();
    world.drain();
    restart_all(&world);
    world.write(0, fid, 0..8192, NEW).unwrap();
    world.cut_power((0, NEW));
    assert_eq!(found(&world, fid), (0, vec![]));
    whole(&world);
}

#[test]
fn an_append_to_a_file_over_several_members_was_never_written() {
    for end in [SLICE + 10_000, 2 * SLICE + 10_000, 3 * SLICE + 10_000] {
        let world = World::new(3);
        let old = SLICE - 10..SLICE + 5000;
        let fid = file_of_earlier_run(&world, old.clone());
        world.write(1, fid, old.end..end, NEW).unwrap();
        world.cut_power((1, NEW));
        assert_eq!(found(&world, fid), (old.end, vec![(old, OLD)]), "{end}");
        whole(&world);
    }
}

#[test]
fn bytes_behind_those_lost_of_a_file_over_several_members_stay_where_they_are() {
    let world = World::new(3);
    let old = SLICE - 10..SLICE + 5000;
    let fid = file_of_earlier_run(&world, old.clone());
    world.write(1, fid, old.end..SLICE + 9000, NEW).unwrap();
    let behind = SLICE + 9000..2 * SLICE + 7;
    world.write(2, fid, behind.clone(), 3).unwrap();
    world.cut_power((1, NEW));
    assert_eq!(
        found(&world, fid),
        (behind.end, vec![(old, OLD), (behind, 3)])
    );
    whole(&world);
}

#[test]
fn a_size_that_a_truncate_set_after_the_bytes_that_are_lost_stays() {
    for members in [1, 3] {
        let world = World::new(members);
        let old = match members {
            1 => 0..8192,
            _ => SLICE - 10..SLICE + 8192,
        };
        let fid = file_of_earlier_run(&world, old.clone());
        world.write(0, fid, old.end..old.end + 5000, NEW).unwrap();
        let size = old.end + 100_000;
        world.truncate(0, fid, size).unwrap();
        world.cut_power((0, NEW));
        assert_eq!(found(&world, fid), (size, vec![(old, OLD)]));
        whole(&world);
    }
}

#[test]
fn synced_bytes_come_back_though_the_append_that_wrote_them_still_has_a_record() {
    for members in [1, 3] {
        let world = World::new(members);
        let start = if members == 1 { 0 } else { SLICE - 10 };
        let fid = file_of_earlier_run(&world, start..start + 8192);
        let appended = start + 8192..start + 10_000;
        world.write(0, fid, appended.clone(), 3).unwrap();
        sync(&world, fid);
        world
            .write(0, fid, appended.end - 500..appended.end, NEW)
            .unwrap();
        world.cut_power((0, NEW));
        let now = vec![(start..start + 8192, OLD), (appended.clone(), 3)];
        assert_eq!(found(&world, fid), (appended.end, now));
        whole(&world);
    }
}

#[test]
fn what_a_recovery_publishes_late_gives_way_to_what_it_displaced() {
    let world = World::new(2);
    let old = SLICE - 10..SLICE + 8192;
    let fid = file_of_earlier_run(&world, old.clone());
    world.set_rule(|_, _, request| match request {
        FilesRequest::PublishStaged(_) => Fate::RequestLost,
        _ => Fate::Arrives,
    });
    world.write(0, fid, SLICE - 5..SLICE + 4096, NEW).unwrap();
    // The member with the part stops before it hears of the decision; the rule ends with the cut.
    let lost = (0, NEW);
    world.stop(0);
    world.stop(1);
    world.clear_rule();
    world.cut_power(lost);
    assert_eq!(found(&world, fid), (old.end, vec![(old, OLD)]));
    whole(&world);
}

#[test]
fn a_synced_size_behind_the_old_end_stays_where_an_append_was_lost_and_cut_off() {
    let world = World::new(3);
    let old = SLICE - 10..SLICE + 8192;
    let fid = file_of_earlier_run(&world, old.clone());
    world.write(0, fid, old.end..old.end + 5000, NEW).unwrap();
    world.truncate(0, fid, old.end).unwrap();
    world.truncate(0, fid, old.end + 3000).unwrap();
    sync(&world, fid);
    world.cut_power((0, NEW));
    assert_eq!(found(&world, fid), (old.end + 3000, vec![(old, OLD)]));
    whole(&world);
}

#[test]
fn an_append_whose_part_another_member_never_got_was_never_written() {
    let world = World::new(2);
    let old = SLICE - 10..SLICE + 8192;
    let fid = file_of_earlier_run(&world, old.clone());
    let end = old.end + 5000;
    // As if the owner's log were on disk to its end, and the other's not.
    let changes = [put(0, &(old.end..end), NEW)];
    let attr = forebay_proto::files::CommitAttr {
        end: Some(end),
        ..Default::default()
    };
    let planned = world.plan(0, fid, &changes, attr).unwrap();
    let mut batch = forebay_storage::Batch::new();
    let id = super::super::records::CommitId {
        fid,
        writer: 0,
        token: planned.token,
    };
    let key = id.key(super::super::records::STAGED_CHANGES);
    batch.delete(keys::STAGED, key);
    world.store(1).apply(batch).unwrap();
    world.finish(&planned).unwrap();
    assert_eq!(found(&world, fid).0, end);
    world.cut_power((0, NEW));
    assert_eq!(found(&world, fid), (old.end, vec![(old, OLD)]));
    whole(&world);
}

#[test]
fn what_a_start_cannot_tell_is_restored_by_the_next_one_in_its_order() {
    for (members, unanswered) in [(1, 1), (1, 2), (1, 3), (3, 1), (3, 2), (3, 3)] {
        let world = World::new(members);
        let start = if members == 1 { 0 } else { SLICE - 10 };
        let old = start..start + 8192;
        let fid = file_of_earlier_run(&world, old.clone());
        let synced = start..start + 4096;
        world.write(0, fid, synced.clone(), 3).unwrap();
        sync(&world, fid);
        world.write(0, fid, synced.clone(), NEW).unwrap();
        let appended = old.end..old.end + 5000;
        world.write(0, fid, appended, NEW).unwrap();
        world.net.unanswered.store(unanswered, Relaxed);
        world.cut_power((0, NEW));
        world.net.unanswered.store(0, Relaxed);
        restart_all(&world);
        let now = vec![(synced.clone(), 3), (synced.end..old.end, OLD)];
        let what = format!("{members} members, {unanswered} questions not answered");
        let (size, extents) = found(&world, fid);
        assert_eq!(extents, now, "{what}");
        // The member with the slice may have made the lost bytes a hole before the owner could tell that the end has to move.
        assert!(size == old.end || members > 1, "{what}: {size}");
        whole(&world);
    }
}

#[test]
fn a_file_that_is_removed_while_its_bytes_are_restored_leaves_nothing() {
    for members in [1, 3] {
        for question in 1..=6 {
            let world = World::new(members);
            let start = if members == 1 { 0 } else { SLICE - 10 };
            let old = start..start + 8192;
            let fid = file_of_earlier_run(&world, old.clone());
            world.write(0, fid, start..start + 4096, NEW).unwrap();
            world.write(0, fid, old.end..old.end + 5000, NEW).unwrap();
            world.unlink(fid);
            *world.net.works_at.lock() = Some((question, fid.owner()));
            world.cut_power((0, NEW));
            whole(&world);
        }
    }
}
