//! Files without a name: when they go, that they go wholly, and that their bytes are freed.
use super::super::check::check;
use super::world::*;
use crate::finding::Finding;
use crate::*;
use forebay_index::{Change, Extent, SLICE};
use forebay_proto::files::*;
use forebay_storage::Batch;
use rustix::io::Errno;

/// No record of any file is left on any member.
fn assert_nothing_left(world: &World) {
    for k in 0..world.net.members {
        for keyspace in [
            keys::INODES,
            keys::XATTRS,
            keys::STAGED,
            keys::DECISIONS,
            keys::ORPHANS,
            keys::OUTBOX,
        ] {
            assert_eq!(world.count(k, keyspace), 0, "member {k}, {keyspace:?}");
        }
        assert_eq!(world.extents(k), 0, "member {k}");
    }
    assert_eq!(check(&world.stores()).unwrap(), vec![]);
}

#[test]
fn an_unlinked_file_stays_while_any_member_has_it_open() {
    let world = World::new(3);
    let fid = world.create(0);
    world.open(0, fid, true).unwrap();
    world.open(2, fid, false).unwrap();
    world.write(0, fid, 0..2 * SLICE, 1).unwrap();
    world.unlink(fid);
    world.drain();
    world.write(0, fid, 5..6, 2).unwrap();
    world.close(0, fid, true);
    world.drain();
    assert_eq!(
        byte(&world.read(2, fid).unwrap().1, SLICE),
        Some((1, SLICE))
    );
    world.close(2, fid, false);
    world.drain();
    assert_eq!(errno(world.open(0, fid, false)), Errno::STALE);
    assert_nothing_left(&world);
    let freed: u64 = world.net.freed.lock()[&(0, 1)]
        .iter()
        .map(|r| r.end - r.start)
        .sum();
    assert_eq!(freed, 2 * SLICE);
}

#[test]
fn a_small_file_goes_wholly_in_the_batch_that_takes_its_name() {
    let world = World::new(2);
    let empty = world.create(0);
    let fid = world.create(0);
    let mut batch = Batch::new();
    for fid in [empty, fid] {
        let key = [&fid.0.to_be_bytes()[..], b"user.a"].concat();
        batch.put(keys::XATTRS, key, b"1".to_vec());
    }
    world.store(0).apply(batch).unwrap();
    // The other member's commit leaves a receipt.
    world.write(1, fid, 0..100, 1).unwrap();
    assert!(world.count(0, keys::DECISIONS) > 0);
    assert!(world.unlink_at_once(fid, true) && world.unlink_at_once(empty, true));
    assert_eq!(world.files(0).components.work.pending(), 0);
    assert_eq!(errno(world.open(0, fid, false)), Errno::STALE);
    assert_eq!(errno(world.write(1, fid, 0..1, 2)), Errno::STALE);
    world.drain();
    assert_nothing_left(&world);
    let freed = world.net.freed.lock();
    assert_eq!(freed.len(), 1);
    assert_eq!(freed[&(1, 1)].as_slice(), std::slice::from_ref(&(0..100)));
    drop(freed);
    assert_eq!(world.files(0).open_files(), 0);
}

#[test]
fn a_file_that_is_open_or_large_or_busy_or_lies_elsewhere_is_not_removed_at_once() {
    let world = World::new(2);
    let fid = world.create(0);
    world.open(1, fid, false).unwrap();
    assert!(!world.unlink_at_once(fid, true), "open");
    world.close(1, fid, false);
    {
        let files = world.files(0);
        let _commit = files.components.locks.lock(fid).unwrap();
        assert!(!world.unlink_at_once(fid, true), "busy");
    }
    let pieces =
        |n: u64| -> Vec<Change> { (0..n).map(|i| put(1, &(i * 9..i * 9 + 4), i)).collect() };
    let attr = forebay_proto::files::CommitAttr::default();
    world.commit(1, fid, &pieces(64), attr.clone()).unwrap();
    assert!(!world.unlink_at_once(fid, true), "many extents");
    let wide = world.create(0);
    world.write(1, wide, SLICE - 1..SLICE + 1, 1).unwrap();
    assert!(!world.unlink_at_once(wide, true), "a part elsewhere");
    let few = world.create(0);
    world.commit(1, few, &pieces(63), attr).unwrap();
    assert!(world.unlink_at_once(few, true), "few extents");
    for fid in [fid, wide] {
        world.unlink(fid);
    }
    world.drain();
    assert_nothing_left(&world);
}

#[test]
fn a_removal_whose_batch_did_not_land_has_not_happened() {
    let world = World::new(1);
    let fid = world.create(0);
    world.write(0, fid, 0..10, 1).unwrap();
    assert!(world.unlink_at_once(fid, false));
    world.open(0, fid, true).unwrap();
    world.write(0, fid, 10..20, 2).unwrap();
    world.close(0, fid, true);
    assert_eq!(byte(&world.read(0, fid).unwrap().1, 9), Some((1, 9)));
    assert!(world.unlink_at_once(fid, true));
    world.drain();
    assert_nothing_left(&world);
}

#[test]
fn a_removal_cut_off_at_any_step_is_finished_after_the_restart() {
    for victim in 0..3 {
        for steps in 0.. {
            let world = World::new(3);
            let fid = world.create(0);
            let mut batch = Batch::new();
            batch.put(
                keys::XATTRS,
                [&fid.0.to_be_bytes()[..], b"user.a"].concat(),
                b"1".to_vec(),
            );
            world.store(0).apply(batch).unwrap();
            // Small pieces, so that members need several batches.
            let piece = |i: u64| {
                Change::Put(Extent {
                    offset: i * 32768 + SLICE / 2,
                    len: 100,
                    member: 1,
                    log: 1,
                    addr: i * 200,
                    seq: 0,
                })
            };
            let changes: Vec<Change> = (0..4_000).map(piece).collect();
            let end = 3 * SLICE;
            let attr = forebay_proto::files::CommitAttr {
                end: Some(end),
                ..Default::default()
            };
            world.commit(1, fid, &changes, attr).unwrap();
            world
                .files(victim)
                .components
                .context
                .faults
                .cut_after(steps);
            world.unlink(fid);
            let _ = world.files(0).drain();
            let reached = world.files(victim).components.context.faults.reached();
            world.restart(victim);
            (0..3).for_each(|k| world.files(k).drain().unwrap());
            // A removal that failed waits for its turn in the background; a restart asks for it at once.
            world.restart(0);
            world.drain();
            assert_nothing_left(&world);
            let mut freed: Vec<u64> = world.net.freed.lock()[&(1, 1)]
                .iter()
                .map(|r| r.start)
                .collect();
            freed.sort_unstable();
            freed.dedup();
            assert_eq!(freed.len(), 4_000, "victim {victim}, {steps} steps");
            if !reached {
                assert!(steps >= 2, "member {victim} takes steps");
                break;
            }
        }
    }
}

#[test]
fn opens_do_not_outlive_a_restart_so_orphans_go() {
    let world = World::new(2);
    let fid = world.create(0);
    world.open(1, fid, true).unwrap();
    world.write(1, fid, 0..SLICE + 1, 1).unwrap();
    world.unlink(fid);
    world.restart(0);
    world.drain();
    assert_nothing_left(&world);
    // The late close of the old open.
    world.close(1, fid, true);
}

#[test]
fn the_background_removes_without_being_asked() {
    let world = World::new(2);
    (0..2).for_each(|k| world.files(k).start().unwrap());
    let fids: Vec<Fid> = (0..20).map(|i| world.create(i % 2)).collect();
    for fid in &fids {
        world.write(0, *fid, SLICE - 1..SLICE + 1, fid.0).unwrap();
        world.unlink(*fid);
    }
    let pending = |k| world.files(k).pending().unwrap();
    for _ in 0..60_000 {
        if pending(0) + pending(1) == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_nothing_left(&world);
}

#[test]
fn a_removal_waits_for_a_member_that_cannot_be_reached() {
    let world = World::new(2);
    let fid = world.create(0);
    world.write(1, fid, 0..SLICE + 1, 1).unwrap();
    world.stop(1);
    world.unlink(fid);
    let _ = world.files(0).drain();
    assert_eq!(
        world.inode(fid).nlink,
        0,
        "the inode stays until all slices are gone"
    );
    world.start(1);
    world.restore(1..2);
    world.restart(0);
    world.drain();
    assert_nothing_left(&world);
}

#[test]
fn a_file_linked_again_or_gone_leaves_only_its_orphan_record() {
    let world = World::new(1);
    let fid = world.create(0);
    for orphan in [fid, Fid(777)] {
        let mut batch = Batch::new();
        batch.put(keys::ORPHANS, orphan.0.to_be_bytes().to_vec(), Vec::new());
        world.store(0).apply(batch).unwrap();
    }
    world.restart(0);
    world.drain();
    assert_eq!(world.count(0, keys::ORPHANS), 0);
    assert_eq!(world.inode(fid).nlink, 1);
}

#[test]
fn the_check_names_damage_and_what_is_unfinished() {
    let world = World::new(2);
    let fid = world.create(0);
    world.write(0, fid, 0..SLICE + 100, 1).unwrap();
    assert_eq!(check(&world.stores()).unwrap(), vec![]);

    // A staged part, and a decision that did not get through.
    let attr = forebay_proto::files::CommitAttr {
        end: Some(SLICE + 200),
        ..Default::default()
    };
    let planned = world
        .plan(0, fid, &[put(0, &(SLICE..SLICE + 200), 2)], attr)
        .unwrap();
    world.set_rule(|from, _, _| {
        if from == 0 {
            Fate::RequestLost
        } else {
            Fate::Arrives
        }
    });
    let commit = Commit {
        fid,
        token: planned.token,
        own: planned.own,
        patterns: Vec::new(),
        staged: planned.staged,
        attr: planned.attr,
        sync: false,
    };
    let CommitReply::Committed(CommitSummary { seq, .. }) =
        world.files(0).commit(0, commit).unwrap()
    else {
        panic!("asked for a sync");
    };
    world.clear_rule();
    let problems = check(&world.stores()).unwrap();
    assert_eq!(
        problems,
        vec![
            Finding::note(format!(
                "file {fid:#x}: commit {seq} is not published by members [1] yet; the next start does it"
            )),
            Finding::note(format!(
                "member 1, file {fid:#x}: commit {} of member 0 is staged; the next start completes it or rolls it back",
                planned.token
            )),
        ]
    );
    world.restart(1);
    world.restart(0);
    assert_eq!(check(&world.stores()).unwrap(), vec![]);

    // Extents where they should not be.
    let mut batch = Batch::new();
    let index = forebay_index::ExtentIndex::of(&world.store(0)).unwrap();
    index
        .change(&mut batch, fid.0, &[put(0, &(SLICE + 10..SLICE + 20), 9)])
        .unwrap();
    index
        .change(&mut batch, 4711, &[put(0, &(0..20), 9)])
        .unwrap();
    world
        .inodes(0)
        .update(fid, |inode, _| {
            inode.size = SLICE + 150;
            Ok(())
        })
        .unwrap();
    world.store(0).apply(batch).unwrap();
    let problems = check(&world.stores()).unwrap();
    assert!(problems.iter().all(|p| p.is_damage), "{problems:?}");
    let (from, behind) = (SLICE + 10, SLICE + 150);
    for wanted in [
        format!(
            "member 0, file {fid:#x}: extent [{from}, {}) does not belong to this member",
            SLICE + 20
        ),
        "member 0: 1 extents of file 0x1267, which does not exist".into(),
        format!("lies behind the end, {behind}"),
        format!("file {fid:#x}: its inode counts "),
    ] {
        assert!(
            problems.iter().any(|p| p.text.contains(&wanted)),
            "{wanted}: {problems:?}"
        );
    }
    let of_1 = format!("member 1, file {fid:#x}: extent ");
    assert!(
        problems
            .iter()
            .any(|p| p.text.starts_with(&of_1) && p.text.contains("behind"))
    );
}
