//! A commit spanning members is seen whole or not at all: with any member stopped at any step, with any message lost, and by
//! readers between steps and at the same time.
use super::world::*;
use crate::*;
use forebay_index::SLICE;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One byte in each of the slices the commits touch (owner 0, then 1, 2, and 0 again).
const PLACES: [u64; 4] = [SLICE - 1, SLICE, 2 * SLICE + 5, 3 * SLICE];
const OLD: u64 = 1;
const NEW: u64 = 2;

fn spanning() -> std::ops::Range<u64> {
    SLICE - 10..3 * SLICE + 10
}

/// The one log that all places show; panics if they differ.
fn shown(world: &World, reader: Member, fid: Fid) -> Result<u64> {
    let (_, extents) = world.read(reader, fid)?;
    let logs = PLACES.map(|place| byte(&extents, place).map(|(log, _)| log));
    assert!(
        logs.iter().all(|log| *log == logs[0]),
        "a commit is seen in part: {logs:?}"
    );
    Ok(logs[0].expect("the old content was there"))
}

fn prepared() -> (World, Fid) {
    let world = World::new(3);
    let fid = world.create(0);
    world.write(1, fid, spanning(), OLD).unwrap();
    (world, fid)
}

#[test]
fn a_commit_cut_off_at_any_step_of_any_member_is_seen_whole_or_not_at_all() {
    let (mut seen_old, mut seen_new) = (0, 0);
    for victim in 0..3 {
        for steps in 0.. {
            let (world, fid) = prepared();
            world
                .files(victim)
                .components
                .context
                .faults
                .cut_after(steps);
            let result = world.write(1, fid, spanning(), NEW);
            if !world.files(victim).components.context.faults.reached() {
                assert!(result.is_ok());
                assert!(steps > 2, "member {victim} has steps");
                break;
            }
            // Readers while the victim hangs: an error, or all of one commit.
            for reader in 0..3 {
                let _ = shown(&world, reader, fid);
            }
            world.restart(victim);
            let content = shown(&world, 2, fid).unwrap();
            assert!(
                result.is_err() || content == NEW,
                "an acknowledged commit was lost"
            );
            *if content == OLD {
                &mut seen_old
            } else {
                &mut seen_new
            } += 1;
            // The others restart too: nothing changes.
            (0..3).for_each(|k| world.stop(k));
            (0..3).for_each(|k| world.start(k));
            (0..3).for_each(|k| world.files(k).recover().unwrap());
            world.restore(0..3);
            assert_eq!(shown(&world, 0, fid).unwrap(), content);
            // And the next commit goes through, over whatever was left.
            world.write(2, fid, spanning(), 3).unwrap();
            assert_eq!(shown(&world, 1, fid).unwrap(), 3);
            world.drain();
            assert_eq!(world.inode(fid).bytes, spanning().end - spanning().start);
        }
    }
    assert!(
        seen_old > 3 && seen_new > 3,
        "both outcomes happen: {seen_old} old, {seen_new} new"
    );
}

#[test]
fn a_commit_with_any_message_lost_is_seen_whole_or_not_at_all() {
    for fate in [Fate::RequestLost, Fate::ReplyLost] {
        for nth in 0.. {
            let (world, fid) = prepared();
            let count = Arc::new(AtomicU64::new(0));
            let counter = count.clone();
            world.set_rule(
                move |_, _, _| match counter.fetch_add(1, Ordering::Relaxed) == nth {
                    true => fate,
                    false => Fate::Arrives,
                },
            );
            let _ = world.write(1, fid, spanning(), NEW);
            let used = count.load(Ordering::Relaxed);
            world.clear_rule();
            let content = shown(&world, 2, fid).unwrap();
            world.files(0).drain().unwrap();
            assert_eq!(shown(&world, 0, fid).unwrap(), content);
            world.write(0, fid, spanning(), 3).unwrap();
            assert_eq!(shown(&world, 1, fid).unwrap(), 3);
            world.drain();
            assert_eq!(world.inode(fid).bytes, spanning().end - spanning().start);
            if used <= nth {
                assert!(nth >= 5, "view, two stages, commit, two publishes");
                break;
            }
        }
    }
}

#[test]
fn while_a_member_cannot_be_told_its_slices_fail_and_others_do_not_lie() {
    let (world, fid) = prepared();
    // Nothing from the owner reaches member 2, and it cannot ask the owner.
    world.set_rule(|from, to, _| match (from, to) {
        (0, 2) | (2, 0) => Fate::RequestLost,
        _ => Fate::Arrives,
    });
    world.write(1, fid, spanning(), NEW).unwrap();
    assert_eq!(errno(world.read(1, fid)), rustix::io::Errno::IO);
    // A later commit with a part there must wait; one without goes through.
    assert_eq!(
        errno(world.write(1, fid, spanning(), 3)),
        rustix::io::Errno::IO
    );
    world.write(1, fid, SLICE - 1..SLICE, 4).unwrap();
    world.clear_rule();
    let (_, extents) = world.read(1, fid).unwrap();
    let logs = PLACES.map(|place| byte(&extents, place).map(|(log, _)| log));
    assert_eq!(logs, [Some(4), Some(NEW), Some(NEW), Some(NEW)]);
    world.write(2, fid, spanning(), 5).unwrap();
    assert_eq!(shown(&world, 0, fid).unwrap(), 5);
}

#[test]
fn a_member_that_restarts_between_stage_and_commit_makes_the_commit_fail_not_tear() {
    let (world, fid) = prepared();
    let attr = forebay_proto::files::CommitAttr {
        end: Some(spanning().end),
        ..Default::default()
    };
    let planned = world
        .plan(1, fid, &[put(1, &spanning(), NEW)], attr)
        .unwrap();
    world.restart(2);
    assert!(matches!(world.finish(&planned), Err(Error::Replan)));
    assert_eq!(shown(&world, 0, fid).unwrap(), OLD);
    // The promise outlives the owner.
    world.restart(0);
    assert!(matches!(world.finish(&planned), Err(Error::Replan)));
    assert_eq!(shown(&world, 0, fid).unwrap(), OLD);
    (0..3).for_each(|k| assert!(world.files(k).staged.table.is_empty()));
}

#[test]
fn readers_beside_writers_see_whole_commits() {
    let (world, fid) = prepared();
    (0..3).for_each(|k| world.files(k).start().unwrap());
    let done = AtomicBool::new(false);
    let rounds = forebay_testkit::seeds::count(100, 5000);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|reader| {
                let (world, done) = (&world, &done);
                scope.spawn(move || {
                    let mut reads = 0;
                    while !done.load(Ordering::Relaxed) || reads == 0 {
                        shown(world, reader, fid).unwrap();
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let world = &world;
                scope.spawn(move || {
                    (0..rounds).for_each(|i| {
                        world
                            .write(writer, fid, spanning(), 10 + 2 * i + u64::from(writer))
                            .unwrap();
                    })
                })
            })
            .collect();
        writers.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, Ordering::Relaxed);
        assert!(readers.into_iter().all(|r| r.join().unwrap() > 0));
    });
    world.drain();
    assert_eq!(world.inode(fid).bytes, spanning().end - spanning().start);
}
