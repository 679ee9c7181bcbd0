//! Rename by POSIX rules: over files and directories, with flags, within one directory, member, and across members.
use super::net::*;
use crate::*;
use rustix::io::Errno;

const PLAIN: RenameFlags = RenameFlags {
    no_replace: false,
    exchange: false,
};
const NO_REPLACE: RenameFlags = RenameFlags {
    no_replace: true,
    exchange: false,
};
const EXCHANGE: RenameFlags = RenameFlags {
    no_replace: false,
    exchange: true,
};

/// The rules hold for any pair of directories: the same, two of one member, two of different members.
fn for_pairs(test: impl Fn(&Net, Fid, Fid)) {
    for (members, a, b) in [(1, 0, 0), (3, 1, 1), (3, 0, 2), (3, 2, 1)] {
        let net = Net::new(members);
        let (from, to) = (net.dir_at(Fid::ROOT, a), net.dir_at(Fid::ROOT, b));
        test(&net, from, to);
        assert_eq!(
            net.check(),
            vec![],
            "members {members}, directories at {a} and {b}"
        );
    }
    let net = Net::new(3);
    let both = net.dir_at(Fid::ROOT, 1);
    test(&net, both, both);
    assert_eq!(net.check(), vec![]);
}

#[track_caller]
fn fails(net: &Net, from: (Fid, &str), to: (Fid, &str), flags: RenameFlags, errno: Errno) {
    let renamed = net.rename(from, to, flags);
    assert_eq!(renamed.unwrap_err().errno(), errno);
}

/// One directory was moved: its `..` is counted where it is now.
#[track_caller]
fn counts_what_moved(net: &Net, from: Fid, to: Fid) {
    let links = |fid| net.getattr(fid).unwrap().nlink;
    let expected = if from == to { (3, 3) } else { (2, 3) };
    assert_eq!((links(from), links(to)), expected);
}

#[test]
fn a_file_takes_the_place_of_a_file() {
    for_pairs(|net, from, to| {
        let f = net.create(from, "f", file(0o644)).unwrap();
        let g = net.create(to, "g", file(0o644)).unwrap();
        fails(net, (from, "f"), (to, "g"), NO_REPLACE, Errno::EXIST);
        net.rename((from, "f"), (to, "g"), PLAIN).unwrap();
        assert_eq!(errno(net.lookup(from, "f")), Errno::NOENT);
        let now = net.lookup(to, "g").unwrap();
        assert_eq!((now.fid, now.nlink), (f.fid, 1));
        assert!(now.ctime > f.ctime && now.mtime == f.mtime);
        assert_eq!(errno(net.getattr(g.fid)), Errno::STALE);
        net.rename((to, "g"), (from, "back"), NO_REPLACE).unwrap();
        assert_eq!(net.lookup(from, "back").unwrap().fid, f.fid);
        fails(net, (from, "none"), (to, "x"), PLAIN, Errno::NOENT);
        net.unlink(from, "back", ROOT).unwrap();
        assert_eq!(errno(net.getattr(f.fid)), Errno::STALE);
    });
}

#[test]
fn kinds_must_fit_and_directories_be_empty() {
    for_pairs(|net, from, to| {
        let d = net.create(from, "d", dir(0o755)).unwrap().fid;
        let e = net.create(to, "e", dir(0o755)).unwrap().fid;
        net.create(from, "f", file(0o644)).unwrap();
        net.create(e, "full", file(0o644)).unwrap();
        fails(net, (from, "f"), (to, "e"), PLAIN, Errno::ISDIR);
        fails(net, (to, "e"), (from, "f"), PLAIN, Errno::NOTDIR);
        fails(net, (from, "d"), (to, "e"), PLAIN, Errno::NOTEMPTY);
        net.unlink(e, "full", ROOT).unwrap();
        net.create(d, "inside", file(0o644)).unwrap();
        net.rename((from, "d"), (to, "e"), PLAIN).unwrap();
        assert_eq!(net.lookup(to, "e").unwrap().fid, d);
        assert!(net.lookup(d, "inside").is_ok());
        assert_eq!(
            errno(net.create(e, "late", file(0))),
            Errno::NOENT,
            "the replaced directory is dead"
        );
        counts_what_moved(net, from, to);
    });
}

#[test]
fn exchange_swaps_whatever_is_there() {
    for_pairs(|net, from, to| {
        let d = net.create(from, "d", dir(0o755)).unwrap().fid;
        let f = net.create(to, "f", file(0o644)).unwrap().fid;
        net.create(d, "inside", file(0o644)).unwrap();
        fails(net, (from, "d"), (to, "none"), EXCHANGE, Errno::NOENT);
        let both = RenameFlags {
            no_replace: true,
            exchange: true,
        };
        fails(net, (from, "d"), (to, "f"), both, Errno::INVAL);
        net.rename((from, "d"), (to, "f"), EXCHANGE).unwrap();
        assert_eq!(
            (
                net.lookup(from, "d").unwrap().fid,
                net.lookup(to, "f").unwrap().fid
            ),
            (f, d)
        );
        counts_what_moved(net, from, to);
    });
}

#[test]
fn two_links_of_one_file_stay_both() {
    for_pairs(|net, from, to| {
        let f = net.create(from, "f", file(0o644)).unwrap();
        let linked = net.link(f.fid, to, "g").unwrap();
        assert_eq!((linked.fid, linked.nlink), (f.fid, 2));
        assert_eq!(errno(net.link(f.fid, to, "g")), Errno::EXIST);
        net.rename((from, "f"), (to, "g"), PLAIN).unwrap();
        net.rename((from, "f"), (from, "f"), PLAIN).unwrap();
        assert_eq!(net.lookup(from, "f").unwrap().nlink, 2);
        net.unlink(from, "f", ROOT).unwrap();
        assert_eq!(net.lookup(to, "g").unwrap().nlink, 1);
        net.unlink(to, "g", ROOT).unwrap();
        assert_eq!(errno(net.link(f.fid, to, "again")), Errno::NOENT);
    });
}

#[test]
fn a_directory_never_moves_into_itself() {
    for_pairs(|net, from, to| {
        let d = net.create(from, "d", dir(0o755)).unwrap().fid;
        let e = net.create(d, "e", dir(0o755)).unwrap().fid;
        fails(net, (from, "d"), (d, "x"), PLAIN, Errno::INVAL);
        fails(net, (from, "d"), (e, "x"), PLAIN, Errno::INVAL);
        fails(net, (from, "d"), (d, "e"), EXCHANGE, Errno::INVAL);
        fails(net, (d, "e"), (from, "d"), EXCHANGE, Errno::INVAL);
        fails(net, (d, "e"), (from, "d"), PLAIN, Errno::NOTEMPTY);
        net.rename((d, "e"), (to, "up"), PLAIN).unwrap();
        net.rename((from, "d"), (e, "down"), PLAIN).unwrap();
        assert_eq!(net.lookup(e, "down").unwrap().fid, d);
    });
}

#[test]
fn sticky_directories_protect_the_files_of_others() {
    let (alice, bob, owner) = (
        Caller { uid: 1, gid: 1 },
        Caller { uid: 2, gid: 2 },
        Caller { uid: 9, gid: 9 },
    );
    for_pairs(|net, from, to| {
        let sticky = SetAttr {
            mode: Some(0o1777),
            uid: Some(9),
            ..SetAttr::default()
        };
        net.setattr(from, sticky.clone()).unwrap();
        net.setattr(to, sticky).unwrap();
        net.create_as(from, "a", file(0o666), alice).unwrap();
        net.create_as(to, "b", file(0o666), bob).unwrap();
        assert_eq!(errno(net.unlink(from, "a", bob)), Errno::PERM);
        assert_eq!(
            errno(net.rename_as((from, "a"), (to, "x"), PLAIN, bob)),
            Errno::PERM
        );
        assert_eq!(
            errno(net.rename_as((from, "a"), (to, "b"), PLAIN, alice)),
            Errno::PERM
        );
        net.rename_as((from, "a"), (to, "x"), PLAIN, alice).unwrap();
        assert_eq!(errno(net.unlink(to, "x", bob)), Errno::PERM);
        net.unlink(to, "x", owner).unwrap();
        net.unlink(to, "b", ROOT).unwrap();
    });
}

#[test]
fn times_follow_names() {
    for_pairs(|net, from, to| {
        let f = net.create(from, "f", file(0o644)).unwrap();
        let before = (net.getattr(from).unwrap(), net.getattr(to).unwrap());
        assert!(before.0.mtime >= f.mtime);
        net.rename((from, "f"), (to, "g"), PLAIN).unwrap();
        let after = (net.getattr(from).unwrap(), net.getattr(to).unwrap());
        assert!(after.0.mtime > before.0.mtime && after.1.mtime > before.1.mtime);
        assert!(after.0.ctime == after.0.mtime && after.1.ctime == after.1.mtime);
        net.link(f.fid, from, "h").unwrap();
        let linked = net.getattr(f.fid).unwrap();
        net.unlink(to, "g", ROOT).unwrap();
        let left = net.getattr(f.fid).unwrap();
        assert!(linked.ctime > f.ctime && left.ctime > linked.ctime && left.mtime == f.mtime);
    });
}
