//! The library against a running service.

use crate::backends::{BackendKind, World, over_both_backends};
use forebay_client::{Fallocate, Kind, Lamination, OpenOptions};
use forebay_testkit::wait::until;
use rustix::io::Errno;
use std::io::{Read, Seek, SeekFrom, Write};

over_both_backends![
    paths_links_and_their_errors,
    streaming_positional_and_shared_over_nodes,
    names_attributes_and_lamination,
    a_temporary_file_loses_the_name_that_it_was_made_with,
    a_codec_hint_that_is_none_is_refused_with_those_there_are,
];

fn a_codec_hint_that_is_none_is_refused_with_those_there_are(kind: BackendKind) {
    let run = World::start(2, kind);
    let (a, b) = (&run.clients[0], &run.clients[1]);
    const CODEC: &str = "user.forebay.codec";
    for (client, path) in [(a, "/d"), (b, "/e")] {
        client.create_dir(path).unwrap();
        let refused = client.attributes(path).set_xattr(CODEC, b"field,f33");
        let refused = refused.unwrap_err();
        assert_eq!(refused.errno(), Errno::INVAL);
        let text = refused.to_string();
        for part in [path, "`f33`", "auto|raw|xor|field|zstd|lz4|pco[,f32|f64"] {
            assert!(text.contains(part), "{text}");
        }
        client.attributes(path).set_xattr(CODEC, b"xor").unwrap();
        let file = format!("{path}/f");
        client.write(&file, b"1").unwrap();
        assert_eq!(b.attributes(&file).xattr(CODEC).unwrap(), b"xor");
        assert_eq!(a.attributes(&file).list_xattrs().unwrap(), [CODEC]);
    }
    // It is an attribute of what is laminated, too.
    a.attributes("/d/f").laminate().unwrap();
    b.attributes("/d/f").set_xattr(CODEC, b"raw").unwrap();
    assert_eq!(a.attributes("/d/f").xattr(CODEC).unwrap(), b"raw");
    a.attributes("/d/f").remove_xattr(CODEC).unwrap();
    let none = b.attributes("/d/f").xattr(CODEC);
    assert_eq!(none.unwrap_err().errno(), Errno::NODATA);
    run.stop();
}

fn paths_links_and_their_errors(kind: BackendKind) {
    let run = World::start(3, kind);
    let c = &run.clients[1];
    c.create_dir_all("/a/b/c").unwrap();
    c.create_dir_all("/a/b/c").unwrap();
    c.write("/a/b/f", b"text").unwrap();
    assert_eq!(
        c.create_dir_all("/a/b/f").unwrap_err().errno(),
        Errno::EXIST
    );
    assert_eq!(
        c.create_dir_all("/a/b/f/g").unwrap_err().errno(),
        Errno::NOTDIR
    );
    c.symlink("../b/f", "/a/b/rel").unwrap();
    c.symlink("/a/b", "/abs").unwrap();
    assert_eq!(c.read("/abs/c/../rel").unwrap(), b"text");
    assert_eq!(c.read("a/b/./f").unwrap(), b"text");
    assert_eq!(c.read_link("/abs").unwrap().to_str(), Some("/a/b"));
    assert_eq!(c.metadata("/abs").unwrap().kind(), Kind::Dir);
    assert_eq!(c.symlink_metadata("/abs").unwrap().kind(), Kind::Symlink);
    assert_eq!(c.symlink_metadata("/abs/").unwrap().kind(), Kind::Dir);
    assert_eq!(c.metadata("/a/b/f/").unwrap_err().errno(), Errno::NOTDIR);
    c.symlink("l1", "/l2").unwrap();
    c.symlink("l2", "/l1").unwrap();
    assert_eq!(c.open("/l1").err().unwrap().errno(), Errno::LOOP);
    assert_eq!(c.metadata("/../../a").unwrap(), c.metadata("/a").unwrap());
    assert_eq!(c.metadata("").unwrap_err().errno(), Errno::NOENT);
    // Creating through a dangling link makes what it names; exclusively it does not.
    c.symlink("made", "/a/dangling").unwrap();
    assert_eq!(
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(c, "/a/dangling")
            .err()
            .unwrap()
            .errno(),
        Errno::EXIST
    );
    c.write("/a/dangling", b"x").unwrap();
    assert_eq!(c.read("/a/made").unwrap(), b"x");
    c.remove_file("/abs/").unwrap_err();
    c.remove_file("/abs").unwrap();
    assert_eq!(c.remove_dir("/a").unwrap_err().errno(), Errno::NOTEMPTY);
    let error = c.open("/a/none").err().unwrap();
    assert_eq!(
        error.to_string(),
        "cannot open /a/none: No such file or directory (os error 2)"
    );
    assert_eq!(
        std::io::Error::from(error).kind(),
        std::io::ErrorKind::NotFound
    );
    c.remove_dir_all("/a").unwrap();
    assert!(!run.clients[2].exists("/a"));
    run.stop();
}

fn a_temporary_file_loses_the_name_that_it_was_made_with(kind: BackendKind) {
    let run = World::start(2, kind);
    let (a, b) = (&run.clients[0], &run.clients[1]);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).temporary(true);
    a.create_dir("/d").unwrap();
    for end in ["closed", "dropped", "renamed", "replaced", "removed"] {
        let path = format!("/d/{end}");
        let file = options.open(a, &path).unwrap();
        file.write_at(end.as_bytes(), 0).unwrap();
        file.commit().unwrap();
        assert_eq!(b.read(&path).unwrap(), end.as_bytes());
        match end {
            "closed" => file.close().unwrap(),
            "dropped" => drop(file),
            "renamed" => {
                b.rename(&path, "/d/kept").unwrap();
                file.close().unwrap();
            }
            "replaced" => {
                b.write("/d/other", b"other").unwrap();
                b.rename("/d/other", &path).unwrap();
                file.close().unwrap();
            }
            _ => {
                b.remove_file(&path).unwrap();
                file.close().unwrap();
            }
        }
    }
    // A dropped file of the link is closed with a later call.
    a.metadata("/d").unwrap();
    let names = || {
        let entries = b.read_dir("/d").unwrap();
        let name = |entry: forebay_client::DirEntry| entry.file_name().to_owned();
        let names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
        names
    };
    until("their names are gone", || names() == ["kept", "replaced"]);
    assert_eq!(b.read("/d/kept").unwrap(), b"renamed");
    assert_eq!(b.read("/d/replaced").unwrap(), b"other");
    // What is there already is not this handle's to remove.
    options.create_new(false).create(true);
    let refused = options.open(a, "/d/kept").map(drop).unwrap_err();
    assert_eq!(refused.errno(), Errno::INVAL);
    run.stop();
}

fn streaming_positional_and_shared_over_nodes(kind: BackendKind) {
    let run = World::start(3, kind);
    let (a, b) = (&run.clients[0], &run.clients[2]);
    let mut f = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(a, "/f")
        .unwrap();
    f.write_all(&[7; 3 << 20]).unwrap();
    assert_eq!(f.stream_position().unwrap(), 3 << 20);
    f.seek(SeekFrom::End(-1)).unwrap();
    f.write_all(b"end").unwrap();
    f.seek(SeekFrom::Start((3 << 20) - 2)).unwrap();
    let mut tail = String::new();
    f.read_to_string(&mut tail).unwrap();
    assert_eq!(tail, "\u{7}end");
    assert_eq!(b.metadata("/f").unwrap().len(), 0);
    f.commit().unwrap();
    assert_eq!(b.read("/f").unwrap().len(), (3 << 20) + 2);
    f.set_len(10).unwrap();
    f.allocate(
        Fallocate {
            punch: true,
            zero: false,
            keep_size: true,
        },
        2,
        3,
    )
    .unwrap();
    f.close().unwrap();
    assert_eq!(b.read("/f").unwrap(), [7, 7, 0, 0, 0, 7, 7, 7, 7, 7]);
    let mut log = OpenOptions::new()
        .read(true)
        .append(true)
        .open(b, "/f")
        .unwrap();
    log.write_all(b"log").unwrap();
    assert_eq!(log.stream_position().unwrap(), 13);
    log.close().unwrap();
    assert_eq!(a.read("/f").unwrap().len(), 13);
    assert_eq!(
        a.open("/f").unwrap().write_at(b"x", 0).unwrap_err().errno(),
        Errno::BADF
    );
    assert_eq!(
        a.create("/f")
            .unwrap()
            .read_at(&mut [0], 0)
            .unwrap_err()
            .errno(),
        Errno::BADF
    );
    run.stop();
}

fn names_attributes_and_lamination(kind: BackendKind) {
    let run = World::start(2, kind);
    let (a, b) = (&run.clients[0], &run.clients[1]);
    a.create_dir("/d").unwrap();
    for n in 0..2500 {
        a.create(format!("/d/{n:04}")).unwrap().close().unwrap();
    }
    let names: Vec<_> = b
        .read_dir("/d")
        .unwrap()
        .map(|e| e.unwrap().file_name().to_owned())
        .collect();
    assert_eq!(names.len(), 2500);
    assert!(names.is_sorted());
    a.hard_link("/d/0000", "/h").unwrap();
    b.rename("/d/0001", "/d/0000").unwrap();
    assert_eq!(a.metadata("/h").unwrap().nlink(), 1);
    a.attributes("/h").set_permissions(0o600).unwrap();
    a.attributes("/h").set_xattr("user.k", b"v").unwrap();
    assert_eq!(b.attributes("/h").xattr("user.k").unwrap(), b"v");
    assert_eq!(b.attributes("/h").list_xattrs().unwrap(), ["user.k"]);
    b.attributes("/h").remove_xattr("user.k").unwrap();
    assert_eq!(
        b.attributes("/h").xattr("user.k").unwrap_err().errno(),
        Errno::NODATA
    );
    let before = std::time::SystemTime::UNIX_EPOCH - std::time::Duration::from_millis(1200);
    a.attributes("/h").set_modified(before).unwrap();
    assert_eq!(b.metadata("/h").unwrap().modified(), Some(before));
    let writer = OpenOptions::new().write(true).open(b, "/h").unwrap();
    assert_eq!(
        a.attributes("/h").laminate().unwrap_err().errno(),
        Errno::BUSY
    );
    writer.close().unwrap();
    a.attributes("/h").laminate().unwrap();
    assert_eq!(
        b.metadata("/h").unwrap().lamination(),
        Lamination::Permanent
    );
    assert!(OpenOptions::new().write(true).open(b, "/h").is_err());
    assert!(b.space().unwrap().total > 0);
    run.stop();
}
