//! What a power cut takes back at one member while another's decision is on disk, without a disk: records are deleted as
//! if they had never been written. (Cuts of a whole service are tried in `crates/fuse/tests/it/power_cuts.rs`.)
use super::net::*;
use crate::meta::records::{self, Intent, RecordTag};
use crate::*;
use forebay_storage::Batch;

/// Member `member` comes back without what it did for the intents of others, and without this inode.
fn loses(net: &Net, member: Member, fid: Fid) {
    let store = net.store(member);
    let mut batch = Batch::new();
    batch.delete(keys::INODES, fid.0.to_be_bytes().to_vec());
    for (id, ()) in records::all::<()>(store, RecordTag::Applied).unwrap() {
        records::delete(&mut batch, RecordTag::Applied, id);
    }
    store.apply(batch).unwrap();
}

#[test]
fn a_directory_that_its_member_lost_is_made_again_before_it_is_moved() {
    let net = Net::new(3);
    let home = net.dir_at(Fid::ROOT, 2);
    net.forget_done();
    let made = net.dir_at(Fid::ROOT, 1);
    let listed = net.readdir(Fid::ROOT, None, 10).unwrap();
    let entry = listed.iter().find(|e| e.fid == made).unwrap();
    let name = String::from_utf8(entry.name.clone()).unwrap();
    // Decided by another member, whose intent also has a step for the inode.
    net.rename((Fid::ROOT, &name), (home, "moved"), RenameFlags::default())
        .unwrap();
    let tree = net.tree();
    loses(&net, 1, made);
    net.restart();
    assert_eq!(net.tree(), tree);
    assert_eq!(net.check(), vec![]);
}

#[test]
fn an_intent_is_kept_until_the_others_have_its_steps_on_disk() {
    let net = Net::new(2);
    net.dir_at(Fid::ROOT, 1);
    let kept = || {
        records::all::<Intent>(net.store(0), RecordTag::Intent)
            .unwrap()
            .len()
    };
    assert_eq!(kept(), 1, "the steps are done, perhaps not on disk");
    net.stop(1);
    net.meta(0).coordinator.forget_done().unwrap();
    assert_eq!(
        kept(),
        1,
        "the other member cannot say that they are on disk"
    );
    net.start(1);
    net.meta(0).coordinator.forget_done().unwrap();
    assert_eq!(kept(), 0);
}

#[test]
fn while_a_member_is_dead_neither_intents_nor_markers_pile_up() {
    let net = Net::new(3);
    let (one, two) = (net.dir_at(Fid::ROOT, 1), net.dir_at(Fid::ROOT, 2));
    let flags = RenameFlags::default();
    net.create(two, "f", file(0o644)).unwrap();
    net.rename((two, "f"), (one, "f"), flags).unwrap();
    net.create(Fid::ROOT, "g", file(0o644)).unwrap();
    net.forget_done();
    // One more that both have a part of, and that nobody has synced.
    net.rename((one, "f"), (Fid::ROOT, "f"), flags).unwrap();
    let intents = |member| {
        let intents = records::all::<Intent>(net.store(member), RecordTag::Intent).unwrap();
        intents.into_iter().map(|(_, intent)| intent)
    };
    let parts: Vec<Member> = intents(0).flat_map(|i| i.parts).map(|p| p.0).collect();
    assert!(parts.contains(&1) && parts.contains(&2), "{parts:?}");
    net.stop(2);
    for _ in 0..40 {
        for _ in 0..5 {
            net.rename((Fid::ROOT, "g"), (one, "g"), flags).unwrap();
            net.rename((one, "g"), (Fid::ROOT, "g"), flags).unwrap();
        }
        for member in [0, 1] {
            net.meta(member).coordinator.forget_done().unwrap();
        }
    }
    for member in [0, 1] {
        let markers = records::all::<()>(net.store(member), RecordTag::Applied).unwrap();
        let kept = (intents(member).count(), markers.len());
        assert!(kept.0 <= 1 && kept.1 < 80, "member {member}: {kept:?}");
    }
    let left: Vec<Member> = intents(0).flat_map(|i| i.parts).map(|p| p.0).collect();
    assert_eq!(left, vec![2], "it waits for the dead member alone");
    net.start(2);
    net.forget_done();
    assert_eq!(intents(0).count(), 0);
    assert_eq!(net.check(), vec![]);
}
