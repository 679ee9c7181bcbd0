//! Opens, lamination, appends.
use super::super::FilesHook;
use super::world::*;
use crate::*;
use forebay_index::SLICE;
use forebay_proto::files::*;
use rustix::io::Errno;

fn laminate(world: &World, fid: Fid) -> Result<Attr> {
    world.ask(0, fid.owner(), Laminate { fid })
}

fn chmod(world: &World, fid: Fid, mode: u32) {
    world
        .inodes(fid.owner())
        .update(fid, |inode, _| {
            inode.mode = mode;
            Ok(())
        })
        .unwrap();
}

fn append(world: &World, from: Member, fid: Fid, len: u64, pending_end: u64) -> u64 {
    let request = ReserveAppend {
        fid,
        len,
        pending_end,
    };
    world.ask(from, fid.owner(), request).unwrap()
}

#[test]
fn lamination_is_busy_while_any_member_writes_then_for_ever() {
    let world = World::new(2);
    let fid = world.create(0);
    world.open(1, fid, true).unwrap();
    world.open(0, fid, true).unwrap();
    assert!(world.files(0).writers(fid));
    assert_eq!(errno(laminate(&world, fid)), Errno::BUSY);
    world.close(0, fid, true);
    assert_eq!(errno(laminate(&world, fid)), Errno::BUSY);
    world.write(1, fid, 0..10, 1).unwrap();
    world.close(1, fid, true);
    assert!(!world.files(0).writers(fid));
    world.open(1, fid, false).unwrap();
    laminate(&world, fid).unwrap();
    laminate(&world, fid).unwrap();
    assert_eq!(
        world.view(0, fid).unwrap().lamination,
        Lamination::Permanent
    );
    assert_eq!(errno(world.open(0, fid, true)), Errno::PERM);
    assert_eq!(errno(world.write(1, fid, 0..10, 1)), Errno::PERM);
    assert_eq!(
        errno(world.write(1, fid, SLICE..SLICE + 10, 1)),
        Errno::PERM
    );
    assert_eq!(errno(world.truncate(1, fid, 0)), Errno::PERM);
    assert!(
        world.files(1).staged.table.is_empty(),
        "the part of the refused commit was dropped"
    );
    assert!(world.open(0, fid, false).is_ok());
    world.restart(0);
    assert_eq!(errno(world.open(0, fid, true)), Errno::PERM);
}

#[test]
fn a_file_created_without_write_bits_is_laminated_softly_at_the_last_write_close() {
    let world = World::new(2);
    let fid = world.create(0);
    chmod(&world, fid, 0o444);
    world.open(0, fid, true).unwrap();
    world.open(1, fid, true).unwrap();
    world.write(0, fid, 0..10, 1).unwrap();
    world.close(0, fid, true);
    assert_eq!(world.view(0, fid).unwrap().lamination, Lamination::None);
    world.write(1, fid, 10..20, 2).unwrap();
    world.close(1, fid, true);
    let before = world.view(0, fid).unwrap();
    assert_eq!(before.lamination, Lamination::ByMode);
    assert_eq!(errno(world.write(1, fid, 0..10, 3)), Errno::PERM);
    // Root opens it for writing: a new generation, laminated again afterwards.
    let opened = world.open(1, fid, true).unwrap();
    assert_eq!(opened.lamination, Lamination::None);
    assert!(opened.generation > before.generation);
    world.write(1, fid, 0..10, 3).unwrap();
    world.close(1, fid, true);
    assert_eq!(world.view(0, fid).unwrap().lamination, Lamination::ByMode);
    // Root truncates it by name.
    assert_eq!(
        world.truncate(0, fid, 0).unwrap().1.lamination,
        Lamination::None
    );
}

#[test]
fn a_writable_file_is_not_laminated_by_closing_it() {
    let world = World::new(1);
    let fid = world.create(0);
    world.open(0, fid, true).unwrap();
    world.close(0, fid, true);
    assert_eq!(world.view(0, fid).unwrap().lamination, Lamination::None);
}

#[test]
fn only_files_are_opened_and_only_existing_ones() {
    let world = World::new(1);
    let dir = world.create(0);
    world
        .inodes(0)
        .update(dir, |inode, _| {
            inode.kind = Kind::Dir;
            Ok(())
        })
        .unwrap();
    assert_eq!(errno(world.open(0, dir, true)), Errno::ISDIR);
    assert_eq!(errno(laminate(&world, dir)), Errno::ISDIR);
    assert_eq!(errno(world.open(0, Fid(12345), false)), Errno::STALE);
    // A close without an open changes nothing.
    let fid = world.create(0);
    world.close(0, fid, true);
    assert_eq!(world.files(0).open_files(), 0);
}

#[test]
fn appends_of_several_members_never_overlap() {
    let world = World::new(3);
    let fid = world.create(0);
    for member in 0..3 {
        world.open(member, fid, true).unwrap();
    }
    world.write(0, fid, 0..100, 1).unwrap();
    assert_eq!(append(&world, 1, fid, 10, 0), 100);
    assert_eq!(append(&world, 2, fid, 5, 0), 110);
    // Own pending writes after the reservations.
    assert_eq!(append(&world, 1, fid, 1, 500), 500);
    assert_eq!(append(&world, 2, fid, 1, 0), 501);
    world.truncate(2, fid, 50).unwrap();
    assert_eq!(append(&world, 1, fid, 10, 0), 50);
    (0..3).for_each(|member| world.close(member, fid, true));
    world.open(0, fid, true).unwrap();
    assert_eq!(
        append(&world, 0, fid, 10, 0),
        50,
        "reservations end with the last close"
    );
    let too_far = ReserveAppend {
        fid,
        len: u64::MAX,
        pending_end: 0,
    };
    assert_eq!(errno(world.ask(0, 0, too_far)), Errno::FBIG);
}
