//! Mode, owner and times: what each change does and what comes with it.
use super::net::*;
use crate::*;
use rustix::io::Errno;
use std::sync::atomic::{AtomicI64, Ordering};

fn mode(mode: u32) -> SetAttr {
    SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    }
}

#[test]
fn times_are_set_to_now_or_any_instant() {
    let net = Net::new(1);
    let f = net.create(Fid::ROOT, "f", file(0o644)).unwrap();
    let old = Time {
        secs: -86_400 * 365 * 80,
        nanos: 999_999_999,
    };
    let set = SetAttr {
        atime: Some(SetTime::At(old)),
        ..SetAttr::default()
    };
    let attr = net.setattr(f.fid, set).unwrap();
    assert_eq!((attr.atime, attr.mtime), (old, f.mtime));
    assert!(attr.ctime > f.ctime);
    let set = SetAttr {
        mtime: Some(SetTime::Now),
        ..SetAttr::default()
    };
    let attr = net.setattr(f.fid, set).unwrap();
    assert_eq!((attr.atime, attr.mtime), (old, attr.ctime));
    let bad = Time {
        secs: 0,
        nanos: 1_000_000_000,
    };
    let set = SetAttr {
        mtime: Some(SetTime::At(bad)),
        ..SetAttr::default()
    };
    assert_eq!(errno(net.setattr(f.fid, set)), Errno::INVAL);
    let set = SetAttr {
        size: Some(1),
        ..SetAttr::default()
    };
    assert_eq!(errno(net.setattr(f.fid, set)), Errno::INVAL);
    assert_eq!(
        net.setattr(f.fid, SetAttr::default()).unwrap(),
        attr,
        "nothing asked, nothing changed"
    );
    net.restart();
    assert_eq!(net.getattr(f.fid).unwrap(), attr);
}

#[test]
fn what_changes_nothing_is_written_once_the_clock_has_ticked() {
    static MILLIS: AtomicI64 = AtomicI64::new(0);
    let net = Net::new(1);
    net.set_clock(|| Time {
        secs: 7,
        nanos: MILLIS.load(Ordering::Relaxed) as u32 * 1_000_000,
    });
    let f = net.create(Fid::ROOT, "f", file(0o600)).unwrap();
    let at = |millis, set: &SetAttr| {
        MILLIS.store(millis, Ordering::Relaxed);
        let before = net.store(0).stats().puts;
        let attr = net.setattr(f.fid, set.clone()).unwrap();
        (attr, net.store(0).stats().puts - before)
    };
    let same = SetAttr {
        uid: Some(f.uid),
        gid: Some(f.gid),
        mode: Some(0o600),
        ..SetAttr::default()
    };
    assert_eq!(at(3, &same), (f.clone(), 0));
    let (later, written) = at(4, &same);
    assert_eq!((later.ctime.nanos, written), (4_000_000, 1));
    let (changed, written) = at(5, &mode(0o644));
    assert_eq!((changed.mode, written), (0o644, 1));
    // A clock that was set back tells nothing.
    let (back, written) = at(1, &mode(0o644));
    assert_eq!((back.ctime.nanos, written), (1_000_000, 1));
}

#[test]
fn a_new_owner_takes_the_set_id_bits() {
    let net = Net::new(1);
    let chown = SetAttr {
        uid: Some(7),
        gid: Some(8),
        ..SetAttr::default()
    };
    for (given, left) in [
        (0o6755, 0o755),
        (0o6745, 0o2745),
        (0o4711, 0o711),
        (0o644, 0o644),
    ] {
        let f = net
            .create(Fid::ROOT, &format!("f{given:o}"), file(given))
            .unwrap();
        assert_eq!(f.mode, given);
        let attr = net.setattr(f.fid, chown.clone()).unwrap();
        assert_eq!((attr.mode, attr.uid, attr.gid), (left, 7, 8), "{given:o}");
        assert!(attr.ctime > f.ctime);
    }
    let d = net.create(Fid::ROOT, "d", dir(0o2775)).unwrap();
    assert_eq!(
        net.setattr(d.fid, chown).unwrap().mode,
        0o2775,
        "directories keep them"
    );
}

#[test]
fn set_group_id_directories_hand_down_their_group() {
    let net = Net::new(3);
    let d = net.create(Fid::ROOT, "d", dir(0o2775)).unwrap().fid;
    net.setattr(
        d,
        SetAttr {
            gid: Some(50),
            ..SetAttr::default()
        },
    )
    .unwrap();
    let caller = Caller { uid: 4, gid: 5 };
    let f = net.create_as(d, "f", file(0o644), caller).unwrap();
    assert_eq!((f.uid, f.gid, f.mode), (4, 50, 0o644));
    for i in 0..6 {
        let sub = net
            .create_as(d, &format!("sub{i}"), dir(0o755), caller)
            .unwrap();
        assert_eq!((sub.gid, sub.mode), (50, 0o2755));
        assert_eq!(net.getattr(sub.fid).unwrap(), sub);
    }
    let plain = net.create(Fid::ROOT, "plain", dir(0o755)).unwrap().fid;
    assert_eq!(
        net.create_as(plain, "f", file(0o644), caller).unwrap().gid,
        5
    );
}

#[test]
fn taking_the_last_write_bit_laminates_softly_unless_someone_writes() {
    let net = Net::new(1);
    let f = net.create(Fid::ROOT, "f", file(0o644)).unwrap();
    let soft = net.setattr(f.fid, mode(0o444)).unwrap();
    assert_eq!(
        (soft.lamination, soft.generation),
        (Lamination::ByMode, f.generation)
    );
    let again = net.setattr(f.fid, mode(0o555)).unwrap();
    assert_eq!(
        (again.lamination, again.generation),
        (Lamination::ByMode, f.generation)
    );
    let open = net.setattr(f.fid, mode(0o644)).unwrap();
    assert_eq!(open.lamination, Lamination::None);
    assert!(
        open.generation > f.generation,
        "writable again: a new generation"
    );

    net.writing(f.fid, true);
    assert_eq!(
        net.setattr(f.fid, mode(0o444)).unwrap().lamination,
        Lamination::None
    );
    net.writing(f.fid, false);
    assert_eq!(
        net.setattr(f.fid, mode(0o400)).unwrap().lamination,
        Lamination::ByMode
    );

    let d = net.create(Fid::ROOT, "d", dir(0o755)).unwrap();
    assert_eq!(
        net.setattr(d.fid, mode(0o555)).unwrap().lamination,
        Lamination::None
    );
}

#[test]
fn hard_lamination_outlives_chmod() {
    let net = Net::new(1);
    let f = net.create(Fid::ROOT, "f", file(0o644)).unwrap();
    net.meta(0)
        .coordinator
        .local
        .inodes
        .update(f.fid, |inode, _| {
            inode.lamination = Lamination::Permanent;
            Ok(())
        })
        .unwrap();
    for bits in [0o444, 0o666] {
        let attr = net.setattr(f.fid, mode(bits)).unwrap();
        assert_eq!(
            (attr.mode, attr.lamination, attr.generation),
            (bits, Lamination::Permanent, f.generation)
        );
    }
}
