//! Names appear, are found and listed, and go, by POSIX rules; on one member and over several.
use super::net::*;
use crate::meta::steps::LINK_MAX;
use crate::*;
use forebay_proto::meta::*;
use rustix::io::Errno;
use std::ops::Bound;

#[test]
fn files_and_directories_are_made_found_listed_and_removed() {
    for members in [1, 3] {
        let net = Net::new(members);
        let d = net.create(Fid::ROOT, "d", dir(0o750)).unwrap();
        assert_eq!((d.kind, d.mode, d.nlink), (Kind::Dir, 0o750, 2));
        assert_eq!(net.getattr(Fid::ROOT).unwrap().nlink, 3);
        let f = net.create(d.fid, "f", file(0o640)).unwrap();
        assert_eq!((f.kind, f.nlink, f.size), (Kind::File, 1, 0));
        assert_eq!(
            f.fid.owner(),
            d.fid.owner(),
            "a file lives with its directory"
        );
        assert_eq!(net.lookup(d.fid, "f").unwrap(), f);
        assert_eq!(errno(net.create(d.fid, "f", file(0o640))), Errno::EXIST);
        assert_eq!(errno(net.create(d.fid, "f", dir(0o640))), Errno::EXIST);
        assert_eq!(errno(net.lookup(f.fid, "x")), Errno::NOTDIR);
        assert_eq!(errno(net.create(f.fid, "x", file(0))), Errno::NOTDIR);
        assert_eq!(errno(net.rmdir(Fid::ROOT, "d")), Errno::NOTEMPTY);
        assert_eq!(errno(net.unlink(Fid::ROOT, "d", ROOT)), Errno::ISDIR);
        assert_eq!(errno(net.rmdir(d.fid, "f")), Errno::NOTDIR);
        net.unlink(d.fid, "f", ROOT).unwrap();
        assert_eq!(errno(net.lookup(d.fid, "f")), Errno::NOENT);
        assert_eq!(errno(net.getattr(f.fid)), Errno::STALE);
        net.rmdir(Fid::ROOT, "d").unwrap();
        assert_eq!(errno(net.create(d.fid, "late", file(0))), Errno::NOENT);
        assert_eq!(
            net.getattr(d.fid).unwrap().nlink,
            0,
            "who is in a removed directory can still look at it"
        );
        assert_eq!(net.readdir(d.fid, None, 10).unwrap(), vec![]);
        assert_eq!(net.getattr(Fid::ROOT).unwrap().nlink, 2);
        assert_eq!(net.check(), vec![]);
        net.restart();
        assert_eq!(errno(net.getattr(d.fid)), Errno::STALE);
        assert_eq!(net.check(), vec![]);
    }
}

#[test]
fn names_that_cannot_be_are_refused_everywhere() {
    let net = Net::new(1);
    net.create(Fid::ROOT, "f", file(0o644)).unwrap();
    let long = "n".repeat(256);
    for (name, expected) in [
        (".", Errno::INVAL),
        ("..", Errno::INVAL),
        ("", Errno::NOENT),
        (&long, Errno::NAMETOOLONG),
    ] {
        assert_eq!(errno(net.lookup(Fid::ROOT, name)), expected);
        assert_eq!(errno(net.create(Fid::ROOT, name, file(0))), expected);
        assert_eq!(errno(net.unlink(Fid::ROOT, name, ROOT)), expected);
        assert_eq!(errno(net.rmdir(Fid::ROOT, name)), expected);
        assert_eq!(
            errno(net.rename((Fid::ROOT, "f"), (Fid::ROOT, name), RenameFlags::default())),
            expected
        );
    }
    net.create(Fid::ROOT, &"n".repeat(255), file(0o644))
        .unwrap();
}

#[test]
fn symlinks_keep_their_target() {
    let net = Net::new(3);
    let link = |target: &[u8]| NewInode {
        kind: Kind::Symlink,
        target: target.into(),
        ..file(0)
    };
    let long = [b'x'; 4095];
    for (name, target) in [("a", &b"../somewhere"[..]), ("b", &long)] {
        let attr = net.create(Fid::ROOT, name, link(target)).unwrap();
        assert_eq!((attr.mode, attr.size), (0o777, target.len() as u64));
        let read = net.ask(0, ReadLink { fid: attr.fid }).unwrap();
        assert_eq!(read, target);
    }
    assert_eq!(
        errno(net.create(Fid::ROOT, "c", link(&[b'x'; 4096]))),
        Errno::NAMETOOLONG
    );
    assert_eq!(errno(net.create(Fid::ROOT, "c", link(b""))), Errno::NOENT);
    assert_eq!(errno(net.ask(0, ReadLink { fid: Fid::ROOT })), Errno::INVAL);
}

#[test]
fn create_without_exclusive_answers_what_is_there() {
    let net = Net::new(3);
    let create = |parent: Fid, name: &str| {
        let request = Create {
            parent,
            name: name.into(),
            new: file(0o600),
            caller: ROOT,
            exclusive: false,
            open: None,
        };
        let created = net.ask(parent.owner(), request)?;
        Ok::<_, Error>((created.attr.fid, created.made))
    };
    let [a, b] = [1, 2].map(|m| net.dir_at(Fid::ROOT, m));
    let (f, made) = create(a, "f").unwrap();
    assert!(made);
    assert_eq!(create(a, "f").unwrap(), (f, false));
    net.rename((a, "f"), (b, "f"), RenameFlags::default())
        .unwrap();
    assert_eq!(
        create(b, "f").unwrap(),
        (f, false),
        "also if the file is at another member"
    );
    net.create(a, "d", dir(0o755)).unwrap();
    assert_eq!(errno(create(a, "d")), Errno::ISDIR);
}

#[test]
fn a_large_directory_is_listed_in_pages_in_name_order() {
    let net = Net::new(1);
    let d = net.create(Fid::ROOT, "d", dir(0o755)).unwrap().fid;
    let next = net.create(Fid::ROOT, "next", dir(0o755)).unwrap().fid;
    net.create(next, "not of d", file(0o644)).unwrap();
    let names: Vec<String> = (0..2_000).map(|i| format!("{i:05}")).collect();
    for name in names.iter().rev() {
        net.create(d, name, file(0o644)).unwrap();
    }
    let (mut listed, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = net.readdir(d, after.as_deref(), 333).unwrap();
        let Some(last) = page.last() else { break };
        after = Some(String::from_utf8(last.name.clone()).unwrap());
        listed.extend(
            page.into_iter()
                .map(|entry| String::from_utf8(entry.name).unwrap()),
        );
    }
    assert_eq!(listed, names);
    assert_eq!(errno(net.rmdir(Fid::ROOT, "d")), Errno::NOTEMPTY);
}

#[test]
fn a_file_has_at_most_so_many_names() {
    let net = Net::new(3);
    let [a, b] = [1, 2].map(|m| net.dir_at(Fid::ROOT, m));
    let f = net.create(a, "f", file(0o644)).unwrap().fid;
    net.meta(1)
        .coordinator
        .local
        .inodes
        .update(f, |inode, _| {
            inode.nlink = LINK_MAX;
            Ok(())
        })
        .unwrap();
    assert_eq!(errno(net.link(f, a, "g")), Errno::MLINK);
    assert_eq!(errno(net.link(f, b, "g")), Errno::MLINK);
    assert_eq!(errno(net.link(a, b, "dir")), Errno::PERM);
    assert_eq!(errno(net.lookup(b, "g")), Errno::NOENT);
}

#[test]
fn dead_directories_do_not_pile_up() {
    let net = Net::new(1);
    for i in 0..1_100 {
        net.create(Fid::ROOT, &format!("d{i}"), dir(0o755)).unwrap();
        net.rmdir(Fid::ROOT, &format!("d{i}")).unwrap();
    }
    let count = |keyspace| {
        net.store(0)
            .scan(keyspace, Bound::Unbounded, Bound::Unbounded)
            .count()
    };
    assert_eq!(
        (count(keys::INODES), count(keys::ORPHANS)),
        (1 + 1_024, 1_024)
    );
    net.restart();
    assert_eq!((count(keys::INODES), count(keys::ORPHANS)), (1, 0));
}

#[test]
fn a_file_without_a_name_gets_its_first_and_loses_its_last() {
    let net = Net::new(3);
    let [a, b] = [1, 2].map(|m| net.dir_at(Fid::ROOT, m));
    for (member, dir) in [(1, a), (1, b)] {
        let fid = net.unnamed(member, 11, true);
        assert_eq!(net.orphans(member), [fid]);
        let linked = net.link(fid, dir, "first").unwrap();
        assert_eq!((linked.fid, linked.nlink, linked.uid), (fid, 1, 11));
        assert_eq!(net.orphans(member), []);
        assert_eq!(net.link(fid, b, "second").unwrap().nlink, 2);
        assert_eq!(errno(net.link(fid, b, "second")), Errno::EXIST);
        assert_eq!(net.lookup(dir, "first").unwrap().fid, fid);
        for (dir, name) in [(dir, "first"), (b, "second")] {
            net.unlink(dir, name, ROOT).unwrap();
        }
        assert_eq!(errno(net.link(fid, b, "again")), Errno::NOENT);
    }
    // One that may not get a name, and one that is in the way of nothing when its first name is taken already.
    let closed = net.unnamed(1, 11, false);
    assert_eq!(errno(net.link(closed, a, "f")), Errno::NOENT);
    assert_eq!(errno(net.link(closed, b, "f")), Errno::NOENT);
    net.create(b, "taken", file(0o644)).unwrap();
    let fid = net.unnamed(1, 11, true);
    assert_eq!(errno(net.link(fid, b, "taken")), Errno::EXIST);
    assert_eq!(net.link(fid, b, "free").unwrap().nlink, 1);
    assert_eq!(net.orphans(1), [closed]);
    assert_eq!(net.check(), vec![]);
}
