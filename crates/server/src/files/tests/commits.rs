//! What a commit does to attributes and extents; retries; truncates; who may commit.
use super::world::*;
use crate::*;
use forebay_index::{Change, SLICE};
use forebay_proto::files::*;
use rustix::io::Errno;

#[test]
fn a_commit_shows_its_bytes_and_grows_the_file() {
    let world = World::new(1);
    let fid = world.create(0);
    let (first, attr) = world.write(0, fid, 100..200, 7).unwrap();
    assert_eq!((attr.size, attr.bytes, attr.generation), (200, 100, first));
    let (second, attr) = world.write(0, fid, 150..160, 8).unwrap();
    assert!(second > first);
    assert_eq!((attr.size, attr.bytes), (200, 100));
    let (_, extents) = world.read(0, fid).unwrap();
    assert_eq!(
        [99, 100, 149, 150, 159, 160, 200].map(|o| byte(&extents, o)),
        [
            None,
            Some((7, 0)),
            Some((7, 49)),
            Some((8, 0)),
            Some((8, 9)),
            Some((7, 60)),
            None
        ]
    );
    world.drain();
    assert_eq!(world.net.freed.lock()[&(0, 7)], vec![50..60]);
}

#[test]
fn a_commit_over_three_members_is_read_by_each() {
    let world = World::new(3);
    let fid = world.create(1);
    let range = SLICE - 10..2 * SLICE + 10;
    let (seq, attr) = world.write(2, fid, range.clone(), 5).unwrap();
    assert_eq!(
        (attr.size, attr.bytes, attr.generation),
        (range.end, SLICE + 20, seq)
    );
    for reader in 0..3 {
        let (attr, extents) = world.read(reader, fid).unwrap();
        assert_eq!(attr.generation, seq);
        assert_eq!(byte(&extents, range.start), Some((5, 0)));
        assert_eq!(byte(&extents, SLICE + 1), Some((5, 11)));
        assert_eq!(byte(&extents, range.end - 1), Some((5, SLICE + 19)));
        assert_eq!(byte(&extents, range.end), None);
        assert!(extents.iter().all(|e| e.seq == seq));
    }
    let leftovers: usize = (0..3)
        .map(|k| {
            world
                .files(k)
                .staged
                .table
                .older(std::time::Duration::ZERO)
                .len()
        })
        .sum();
    assert_eq!(leftovers, 0);
    assert!(world.files(1).components.decided.files().is_empty());
}

#[test]
fn a_retried_commit_answers_the_same_and_changes_nothing() {
    for writer in [0, 1] {
        let world = World::new(2);
        let fid = world.create(0);
        for range in [0..10, SLICE - 5..SLICE + 5] {
            let changes = [put(writer, &range, 3)];
            let attr = CommitAttr {
                end: Some(range.end),
                ..Default::default()
            };
            let planned = world.plan(writer, fid, &changes, attr).unwrap();
            let (seq, _) = world.finish(&planned).unwrap();
            let (later, _) = world.write(1 - writer, fid, range.clone(), 4).unwrap();
            assert_eq!(world.finish(&planned).unwrap().0, seq);
            let (attr, extents) = world.read(0, fid).unwrap();
            assert_eq!(attr.generation, later);
            assert_eq!(byte(&extents, range.start), Some((4, 0)));
        }
    }
}

#[test]
fn a_retry_from_another_member_is_known_after_a_restart_of_the_owner() {
    let world = World::new(2);
    let fid = world.create(0);
    for range in [0..10, SLICE - 5..SLICE + 5] {
        let attr = CommitAttr {
            end: Some(range.end),
            ..Default::default()
        };
        let planned = world.plan(1, fid, &[put(1, &range, 3)], attr).unwrap();
        let (seq, _) = world.finish(&planned).unwrap();
        let (later, _) = world.write(0, fid, range.clone(), 4).unwrap();
        world.restart(0);
        assert_eq!(world.finish(&planned).unwrap().0, seq);
        assert_eq!(world.view(1, fid).unwrap().generation, later);
    }
}

#[test]
fn truncate_cuts_on_every_member_and_gives_the_bytes_back() {
    let world = World::new(3);
    let fid = world.create(0);
    world.write(0, fid, 0..3 * SLICE, 1).unwrap();
    let (_, attr) = world.truncate(1, fid, SLICE + 7).unwrap();
    assert_eq!((attr.size, attr.bytes), (SLICE + 7, SLICE + 7));
    let (_, attr) = world.truncate(1, fid, 3 * SLICE).unwrap();
    assert_eq!((attr.size, attr.bytes), (3 * SLICE, SLICE + 7));
    let (_, extents) = world.read(2, fid).unwrap();
    assert_eq!(byte(&extents, SLICE + 6), Some((1, SLICE + 6)));
    assert_eq!(
        [SLICE + 7, 2 * SLICE, 3 * SLICE - 1].map(|o| byte(&extents, o)),
        [None; 3]
    );
    world.drain();
    let freed: u64 = world.net.freed.lock()[&(0, 1)]
        .iter()
        .map(|r| r.end - r.start)
        .sum();
    assert_eq!(freed, 2 * SLICE - 7);
}

#[test]
fn a_truncate_planned_before_the_file_grew_is_planned_again() {
    let world = World::new(3);
    let fid = world.create(0);
    world.write(0, fid, 0..10, 1).unwrap();
    let attr = CommitAttr {
        size: Some(5),
        ..Default::default()
    };
    let planned = world
        .plan(
            1,
            fid,
            &[Change::Cut {
                start: 5,
                end: u64::MAX,
            }],
            attr,
        )
        .unwrap();
    world.write(2, fid, 10..2 * SLICE, 2).unwrap();
    assert!(matches!(world.finish(&planned), Err(Error::Replan)));
    assert_eq!(world.truncate(1, fid, 5).unwrap().1.size, 5);
    let (attr, extents) = world.read(0, fid).unwrap();
    assert_eq!((attr.bytes, extents.len()), (5, 1));
}

#[test]
fn a_sparse_file_of_many_slices_is_cut_with_one_change_a_member() {
    let world = World::new(2);
    let fid = world.create(0);
    world.write(0, fid, (1 << 60)..(1 << 60) + 4096, 1).unwrap();
    let before = world
        .net
        .messages
        .load(std::sync::atomic::Ordering::Relaxed);
    let (_, attr) = world.truncate(0, fid, 0).unwrap();
    assert_eq!((attr.size, attr.bytes), (0, 0));
    assert!(
        world
            .net
            .messages
            .load(std::sync::atomic::Ordering::Relaxed)
            - before
            <= 4
    );
}

#[test]
fn a_commit_of_another_members_slice_is_refused() {
    let world = World::new(2);
    let fid = world.create(0);
    let commit = |own: Vec<Change>, staged: Vec<u16>| {
        let attr = CommitAttr::default();
        world.ask(
            0,
            0,
            Commit {
                fid,
                token: world.token(),
                own,
                patterns: Vec::new(),
                staged,
                attr,
                sync: false,
            },
        )
    };
    assert_eq!(
        errno(commit(vec![put(0, &(SLICE..SLICE + 1), 1)], vec![])),
        Errno::INVAL
    );
    assert_eq!(
        errno(commit(vec![put(0, &(SLICE - 1..SLICE + 1), 1)], vec![])),
        Errno::INVAL
    );
    assert_eq!(errno(commit(vec![], vec![0])), Errno::INVAL);
    assert_eq!(errno(commit(vec![], vec![2])), Errno::INVAL);
    let stage = StageChanges {
        fid,
        token: 1,
        changes: vec![put(0, &(0..1), 1)],
        sync: false,
    };
    assert_eq!(errno(world.ask(0, 1, stage)), Errno::INVAL);
    assert_eq!(world.view(0, fid).unwrap().generation, 0);
}

#[test]
fn a_file_is_spread_once_another_member_has_a_part() {
    let world = World::new(2);
    let fid = world.create(0);
    let layout = || world.view(1, fid).unwrap().layout;
    assert_eq!(layout(), ExtentLayout::OwnerOnly);
    world.write(1, fid, 0..10, 1).unwrap();
    assert_eq!(layout(), ExtentLayout::OwnerOnly);
    world.write(1, fid, SLICE..SLICE + 10, 2).unwrap();
    assert_eq!(layout(), ExtentLayout::BySlice);
    world.truncate(0, fid, 0).unwrap();
    assert_eq!(layout(), ExtentLayout::BySlice);
}

#[test]
fn a_cut_of_a_file_with_no_parts_elsewhere_needs_none_there() {
    let world = World::new(2);
    let fid = world.create(0);
    let attr = |size| CommitAttr {
        size: Some(size),
        ..Default::default()
    };
    let cut = |size| Planned {
        writer: 1,
        fid,
        token: world.token(),
        own: vec![Change::Cut {
            start: size,
            end: u64::MAX,
        }],
        patterns: Vec::new(),
        staged: Vec::new(),
        attr: attr(size),
    };
    world.finish(&cut(4 * SLICE)).unwrap();
    world.finish(&cut(5)).unwrap();
    assert_eq!(world.view(0, fid).unwrap().size, 5);
    world.write(1, fid, SLICE..SLICE + 10, 2).unwrap();
    assert!(matches!(world.finish(&cut(5)), Err(Error::Replan)));
    // Bytes that only other members could have: no part of the owner.
    let fid = world.create(0);
    world.truncate(1, fid, 4 * SLICE).unwrap();
    world.truncate(1, fid, SLICE).unwrap();
    assert_eq!(world.view(0, fid).unwrap().size, SLICE);
}

#[test]
fn a_hole_must_reach_every_member_that_may_have_bytes_there() {
    let world = World::new(2);
    let fid = world.create(0);
    let hole = || Planned {
        writer: 1,
        fid,
        token: world.token(),
        own: vec![Change::Cut {
            start: SLICE,
            end: SLICE + 5,
        }],
        patterns: Vec::new(),
        staged: Vec::new(),
        attr: CommitAttr::default(),
    };
    world.finish(&hole()).unwrap();
    world.write(1, fid, SLICE..SLICE + 10, 2).unwrap();
    assert!(matches!(world.finish(&hole()), Err(Error::Replan)));
    let cut = [Change::Cut {
        start: SLICE,
        end: SLICE + 5,
    }];
    world.commit(1, fid, &cut, CommitAttr::default()).unwrap();
    let (_, extents) = world.read(0, fid).unwrap();
    assert_eq!(byte(&extents, SLICE), None);
    assert_eq!(byte(&extents, SLICE + 5), Some((2, 5)));
}

#[test]
fn set_id_bits_go_with_a_write_that_asks_for_it() {
    let world = World::new(1);
    let fid = world.create(0);
    for (mode, after) in [(0o6755, 0o755), (0o6745, 0o2745)] {
        world
            .inodes(0)
            .update(fid, |inode, _| {
                inode.mode = mode;
                Ok(())
            })
            .unwrap();
        let attr = CommitAttr {
            clear_setid: true,
            mtime: Some(Time { secs: 9, nanos: 1 }),
            ..Default::default()
        };
        let (_, attr) = world.commit(0, fid, &[], attr).unwrap();
        assert_eq!((attr.mode, attr.mtime), (after, Time { secs: 9, nanos: 1 }));
    }
}

#[test]
fn a_commit_to_a_removed_file_is_stale() {
    let world = World::new(2);
    let fid = world.create(0);
    world.unlink(fid);
    world.drain();
    assert_eq!(errno(world.write(0, fid, 0..1, 1)), Errno::STALE);
}
