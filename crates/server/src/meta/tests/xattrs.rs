//! Extended attributes: set, read, listed, removed; limits and refusals as on Linux.
use super::net::*;
use crate::*;
use forebay_proto::meta::*;
use rustix::io::Errno;

fn set(net: &Net, fid: Fid, name: &str, value: &[u8], create: bool, replace: bool) -> Result<()> {
    let request = SetXattr {
        fid,
        name: name.into(),
        value: value.into(),
        create,
        replace,
    };
    net.ask(fid.owner(), request)
}

fn get(net: &Net, fid: Fid, name: &str) -> Result<Vec<u8>> {
    let name = name.into();
    net.ask(fid.owner(), GetXattr { fid, name })
}

fn list(net: &Net, fid: Fid) -> Vec<String> {
    let names = net.ask(fid.owner(), ListXattrs { fid }).unwrap();
    let text = |name| String::from_utf8(name).unwrap();
    names.into_iter().map(text).collect()
}

fn remove(net: &Net, fid: Fid, name: &str) -> Result<()> {
    let name = name.into();
    net.ask(fid.owner(), RemoveXattr { fid, name })
}

#[test]
fn attributes_come_and_go() {
    let net = Net::new(1);
    let f = net.create(Fid::ROOT, "f", file(0o644)).unwrap();
    let g = net.create(Fid::ROOT, "g", file(0o644)).unwrap().fid;
    set(&net, f.fid, "user.b", b"1", false, false).unwrap();
    set(&net, f.fid, "user.a", b"", true, false).unwrap();
    set(&net, f.fid, "user.b", b"2", false, true).unwrap();
    assert!(net.getattr(f.fid).unwrap().ctime > f.ctime);
    assert_eq!(list(&net, f.fid), ["user.a", "user.b"]);
    assert_eq!(list(&net, g), [""; 0]);
    net.restart();
    assert_eq!(
        (
            get(&net, f.fid, "user.a").unwrap(),
            get(&net, f.fid, "user.b").unwrap()
        ),
        (vec![], b"2".to_vec())
    );
    remove(&net, f.fid, "user.a").unwrap();
    assert_eq!(errno(get(&net, f.fid, "user.a")), Errno::NODATA);
    assert_eq!(errno(remove(&net, f.fid, "user.a")), Errno::NODATA);
    net.unlink(Fid::ROOT, "f", ROOT).unwrap();
    let left = net
        .store(0)
        .scan(
            keys::XATTRS,
            std::ops::Bound::Unbounded,
            std::ops::Bound::Unbounded,
        )
        .count();
    assert_eq!(left, 0, "they go with the file");
    assert_eq!(errno(get(&net, f.fid, "user.b")), Errno::STALE);
}

#[test]
fn limits_and_refusals() {
    let net = Net::new(1);
    let f = net.create(Fid::ROOT, "f", file(0o644)).unwrap().fid;
    set(&net, f, "user.a", b"1", false, false).unwrap();
    assert_eq!(
        errno(set(&net, f, "user.a", b"2", true, false)),
        Errno::EXIST
    );
    assert_eq!(
        errno(set(&net, f, "user.b", b"2", false, true)),
        Errno::NODATA
    );
    assert_eq!(
        errno(set(&net, f, "user.b", b"2", true, true)),
        Errno::INVAL
    );
    assert_eq!(
        errno(set(&net, f, "system.posix_acl_access", b"", false, false)),
        Errno::OPNOTSUPP
    );
    assert_eq!(
        errno(get(&net, f, "system.posix_acl_access")),
        Errno::OPNOTSUPP
    );
    assert_eq!(
        errno(set(&net, f, "other", b"", false, false)),
        Errno::OPNOTSUPP
    );
    assert_eq!(
        errno(set(&net, f, "user.", b"", false, false)),
        Errno::INVAL
    );
    assert_eq!(errno(set(&net, f, "", b"", false, false)), Errno::RANGE);
    let longest = format!("user.{}", "n".repeat(250));
    set(&net, f, &longest, &vec![7; 64 << 10], false, false).unwrap();
    assert_eq!(get(&net, f, &longest).unwrap().len(), 64 << 10);
    assert_eq!(
        errno(set(&net, f, &format!("{longest}n"), b"", false, false)),
        Errno::RANGE
    );
    assert_eq!(
        errno(set(
            &net,
            f,
            "user.big",
            &vec![7; (64 << 10) + 1],
            false,
            false
        )),
        Errno::TOOBIG
    );
    let fifo = net
        .create(
            Fid::ROOT,
            "fifo",
            NewInode {
                kind: Kind::Fifo,
                ..file(0o644)
            },
        )
        .unwrap()
        .fid;
    assert_eq!(
        errno(set(&net, fifo, "user.a", b"", false, false)),
        Errno::PERM
    );
    set(&net, fifo, "trusted.a", b"1", false, false).unwrap();
    assert_eq!(get(&net, fifo, "trusted.a").unwrap(), b"1");
}

#[test]
fn the_list_of_names_stays_readable() {
    let net = Net::new(1);
    let f = net.create(Fid::ROOT, "f", file(0o644)).unwrap().fid;
    let name = |i: usize| format!("user.{i:0>250}");
    for i in 0..256 {
        set(&net, f, &name(i), b"", false, false).unwrap();
    }
    assert_eq!(
        errno(set(&net, f, &name(256), b"", false, false)),
        Errno::NOSPC
    );
    set(&net, f, &name(0), b"still changes", false, false).unwrap();
    assert_eq!(list(&net, f).len(), 256);
}

#[test]
fn the_greatest_fid_of_all_is_as_any_other_that_is_not_there() {
    let net = Net::new(1);
    let fid = Fid(u64::MAX);
    let list = ListXattrs { fid };
    assert_eq!(net.ask(0, list).unwrap_err().errno(), Errno::STALE);
    let read = ReadDir {
        fid,
        after: None,
        limit: 10,
    };
    assert_eq!(net.ask(0, read).unwrap_err().errno(), Errno::STALE);
}
