//! What a power cut takes back at one member while another's decision is on disk, without a disk: records are deleted as
//! if they had never been written. (Cuts of a whole service are tried in `crates/fuse/tests/power_cuts.rs`.)
use super::net::*;
use crate::meta::records::{self, Intent, Tag};
use crate::*;
use forebay_storage::Batch;

/// Member `member` comes back without what it did for the intents of others, and without this inode.
fn loses(net: &Net, member: Member, fid: Fid) {
    let store = net.store(member);
    let mut batch = Batch::new();
    batch.delete(keys::INODES, fid.0.to_be_bytes().to_vec());
    for (id, ()) in records::all::<()>(store, Tag::Applied).unwrap() {
        records::delete(&mut batch, Tag::Applied, id);
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
        records::all::<Intent>(net.store(0), Tag::Intent)
            .unwrap()
            .len()
    };
    assert_eq!(kept(), 1, "the steps are done, perhaps not on disk");
    net.stop(1);
    net.meta(0).forget_done().unwrap();
    assert_eq!(
        kept(),
        1,
        "the other member cannot say that they are on disk"
    );
    net.start(1);
    net.meta(0).forget_done().unwrap();
    assert_eq!(kept(), 0);
}
