//! A member that is down: what needs it fails, all else goes on, and what was decided is done when it is back.
use super::net::*;
use crate::*;
use rustix::io::Errno;

const PLAIN: RenameFlags = RenameFlags {
    no_replace: false,
    exchange: false,
};

#[test]
fn what_was_decided_is_done_when_the_member_is_back() {
    let net = Net::new(3);
    let [a, b] = [0, 1].map(|m| net.dir_at(Fid::ROOT, m));
    let f = net.create(b, "f", file(0o644)).unwrap().fid;
    net.rename((b, "f"), (a, "f"), PLAIN).unwrap();
    net.stop(1);
    net.unlink(a, "f", ROOT).unwrap();
    assert_eq!(errno(net.lookup(a, "f")), Errno::NOENT);
    assert_eq!(net.meta(0).coordinator.intents.left(), 1);
    net.meta(0).recovery.retry_unfinished();
    assert_eq!(net.meta(0).coordinator.intents.left(), 1, "still down");
    net.start(1);
    assert_eq!(net.getattr(f).unwrap().nlink, 1);
    net.meta(0).recovery.retry_unfinished();
    assert_eq!(net.meta(0).coordinator.intents.left(), 0);
    assert_eq!(errno(net.getattr(f)), Errno::STALE);
    assert_eq!(net.check(), vec![]);
}

#[test]
fn what_is_not_decided_does_not_happen() {
    let net = Net::new(3);
    let [a, b] = [0, 1].map(|m| net.dir_at(Fid::ROOT, m));
    net.create(b, "f", file(0o644)).unwrap();
    let f = net.create(a, "mine", file(0o644)).unwrap().fid;
    let before = net.tree();
    net.stop(1);
    assert_eq!(errno(net.rename((b, "f"), (a, "f"), PLAIN)), Errno::IO);
    assert_eq!(errno(net.lookup(b, "f")), Errno::IO);
    net.rename((a, "mine"), (a, "yours"), PLAIN).unwrap();
    net.link(f, a, "mine").unwrap();
    net.unlink(a, "yours", ROOT).unwrap();
    net.start(1);
    assert_eq!(net.tree(), before);
    assert_eq!(net.check(), vec![]);
}

#[test]
fn a_directory_for_a_dead_member_is_made_here() {
    let net = Net::new(3);
    net.stop(2);
    for i in 0..12 {
        let made = net.create(Fid::ROOT, &format!("d{i}"), dir(0o755)).unwrap();
        assert_ne!(made.fid.owner(), 2);
        net.create(made.fid, "f", file(0o644)).unwrap();
    }
    net.start(2);
    assert_eq!(net.tree().len(), 24);
    assert_eq!(net.check(), vec![]);
}

#[test]
fn a_holder_that_never_decided_does_not_block_others() {
    let net = Net::new(3);
    let [_, b, c] = [0, 1, 2].map(|m| net.dir_at(Fid::ROOT, m));
    net.create(b, "f", file(0o644)).unwrap();
    let d = net.create(b, "d", dir(0o755)).unwrap().fid;
    // Member 2 stops just before its commit point: the hold at member 1 and the lock of directory moves stay behind.
    let mut held = false;
    for at in 0..8 {
        net.cut_at(at, false);
        let failed = net.rename((b, "d"), (c, "d"), PLAIN).is_err();
        net.cut_off();
        let stopped = net.stopped();
        if failed
            && stopped == [2]
            && !net
                .meta(1)
                .coordinator
                .local
                .holds
                .older(Default::default())
                .is_empty()
        {
            held = true;
            assert_eq!(
                errno(net.unlink(b, "f", ROOT).and(net.rmdir(b, "d"))),
                Errno::IO,
                "who decides is down"
            );
            net.start(2);
            net.create(b, "f", file(0o644)).unwrap();
            net.rmdir(b, "d").unwrap();
            break;
        }
        stopped.into_iter().for_each(|member| net.start(member));
        net.recover();
        if net.lookup(c, "d").is_ok() {
            net.rename((c, "d"), (b, "d"), PLAIN).unwrap();
        }
    }
    assert!(held, "no cut left a hold");
    assert_eq!(net.getattr(d).unwrap().nlink, 0);
    let e = net.create(b, "e", dir(0o755)).unwrap().fid;
    net.rename((b, "e"), (c, "e"), PLAIN).unwrap();
    assert_eq!(net.lookup(c, "e").unwrap().fid, e);
    net.recover();
    assert_eq!(net.check(), vec![]);
}
