//! Extended attributes: set, read, listed, removed; limits and refusals as on Linux.
use super::net::*;
use crate::meta::CODEC_XATTR;
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
fn a_codec_hint_is_an_attribute_of_files_and_directories() {
    let net = Net::new(1);
    let f = net.create(Fid::ROOT, "f", file(0o644)).unwrap().fid;
    assert_eq!(errno(get(&net, f, CODEC_XATTR)), Errno::NODATA);
    assert_eq!(errno(remove(&net, f, CODEC_XATTR)), Errno::NODATA);
    assert_eq!(
        errno(set(&net, f, CODEC_XATTR, b"raw", false, true)),
        Errno::NODATA
    );
    let before = net.getattr(f).unwrap();
    set(&net, f, CODEC_XATTR, b"field,stride=3,f32", true, false).unwrap();
    let after = net.getattr(f).unwrap();
    assert!(after.ctime > before.ctime);
    assert_eq!(after.codec, Some("field,f32,stride=3".parse().unwrap()));
    assert_eq!(
        errno(set(&net, f, CODEC_XATTR, b"raw", true, false)),
        Errno::EXIST
    );
    set(&net, f, "user.a", b"1", false, false).unwrap();
    assert_eq!(list(&net, f), ["user.a", CODEC_XATTR]);
    net.restart();
    assert_eq!(get(&net, f, CODEC_XATTR).unwrap(), b"field,f32,stride=3");
    for wrong in [&b"gzip"[..], b"", b"field,f32,f64", b"raw\n", b"\xff"] {
        let refused = set(&net, f, CODEC_XATTR, wrong, false, false).unwrap_err();
        assert_eq!(refused.errno(), Errno::INVAL);
        let text = refused.to_string();
        assert!(text.contains("auto|raw|xor|field|zstd|lz4|pco"), "{text}");
    }
    assert_eq!(get(&net, f, CODEC_XATTR).unwrap(), b"field,f32,stride=3");
    remove(&net, f, CODEC_XATTR).unwrap();
    assert_eq!(list(&net, f), ["user.a"]);
    assert_eq!(net.getattr(f).unwrap().codec, None);
    let new = NewInode::new(Kind::Fifo, 0o644);
    let fifo = net.create(Fid::ROOT, "fifo", new).unwrap().fid;
    assert_eq!(
        errno(set(&net, fifo, CODEC_XATTR, b"raw", false, false)),
        Errno::PERM
    );
}

#[test]
fn a_codec_hint_is_inherited_when_something_is_made_and_never_later() {
    let net = Net::new(3);
    let d = net.dir_at(Fid::ROOT, 1);
    let early = net.create(d, "early", file(0o644)).unwrap();
    assert_eq!(early.codec, None);
    let named = |hint: &str| NewInode {
        codec: Some(hint.parse().unwrap()),
        ..file(0o644)
    };
    let by_name = net.create(d, "named", named("lz4")).unwrap();
    assert_eq!(by_name.codec, Some("lz4".parse().unwrap()));
    set(&net, d, CODEC_XATTR, b"field,f64", false, false).unwrap();
    let field = Some("field,f64".parse().unwrap());
    let f = net.create(d, "f", file(0o644)).unwrap();
    assert_eq!(f.codec, field);
    // Before that of its name, and through directories, of whatever member.
    assert_eq!(net.create(d, "g", named("lz4")).unwrap().codec, field);
    let mut below = d;
    for depth in 0..6 {
        let made = net.create(below, &format!("d{depth}"), dir(0o755)).unwrap();
        assert_eq!(made.codec, field);
        below = made.fid;
    }
    assert_eq!(net.create(below, "f", named("raw")).unwrap().codec, field);
    let link = NewInode {
        target: b"x".to_vec(),
        ..NewInode::new(Kind::Symlink, 0o777)
    };
    let link = net.create(d, "link", link).unwrap();
    assert_eq!(link.codec, None);
    assert_eq!(errno(get(&net, link.fid, CODEC_XATTR)), Errno::NODATA);
    // `auto` is a word like the others: it ends the search.
    set(&net, below, CODEC_XATTR, b"auto", false, false).unwrap();
    let auto = net.create(below, "auto", named("raw")).unwrap();
    assert_eq!(auto.codec, Some("auto".parse().unwrap()));
    // What was made keeps what it has.
    remove(&net, d, CODEC_XATTR).unwrap();
    assert_eq!(net.getattr(early.fid).unwrap().codec, None);
    let other = net.dir_at(Fid::ROOT, 2);
    set(&net, other, CODEC_XATTR, b"zstd", false, false).unwrap();
    net.rename((d, "f"), (other, "f"), RenameFlags::default())
        .unwrap();
    assert_eq!(net.getattr(f.fid).unwrap().codec, field);
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
